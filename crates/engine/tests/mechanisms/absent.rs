//! Searches that are skipped, since the inode is known not to have such an attribute, and each way in which that
//! knowledge comes and goes.

use crate::acl::acl;
use crate::stress::{DIR, FILE, Image};
use crate::{counted, intents, kernels_tree, make, make_file, set, xattr};
use xfskit_engine::error_tags::LARP;
use xfskit_engine::{AttrPath, Caller, Error, MountOptions, Permissions, SetAttr, SetMode, Volume, XattrChange};
use xfskit_ondisk::InodeNumber;

/// An attribute of each kind.
const KINDS: [&str; 5] = ["user.a", "trusted.a", "security.a", "system.posix_acl_access", "system.posix_acl_default"];

/// Which kinds an attribute on the disk belongs to: an ACL is one of `trusted.` as well.
fn kinds_of(name: &str) -> Vec<usize> {
    let at = KINDS.iter().position(|kind| *kind == name).expect("one of the kinds");
    if at > 2 { vec![1, at] } else { vec![at] }
}

/// A value for an attribute of some kind.
fn value(name: &str) -> Vec<u8> {
    if name.starts_with("system") { acl() } else { b"value".to_vec() }
}

/// Asserts that a search for each kind is skipped or made.
#[track_caller]
fn assert_skipped(fs: &Volume, inode: InodeNumber, skipped: [bool; 5]) {
    let found = KINDS.map(|kind| {
        let other = if kind.starts_with("system") { kind.to_owned() } else { kind.replace(".a", ".missing") };
        let count = counted(fs, || drop(fs.get_xattr(inode, other.as_bytes())));
        assert_eq!(count.get("attr_searches") + count.get("attr_searches_skipped"), 1, "{other}");
        count.get("attr_searches_skipped") == 1
    });
    assert_eq!(found, skipped, "of {KINDS:?}");
}

const ALL: [bool; 5] = [true; 5];
const NONE: [bool; 5] = [false; 5];

/// All kinds but those of an attribute.
fn all_but(name: &str) -> [bool; 5] {
    let mut skipped = ALL;
    kinds_of(name).into_iter().for_each(|kind| skipped[kind] = false);
    skipped
}

#[test]
fn a_new_inode_is_known_to_have_none_of_any_kind() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let dir = make(&fs, fs.root(), "dir", DIR | 0o755);
    assert_skipped(&fs, dir, ALL);
    let count = counted(&fs, || assert!(fs.list_xattrs(dir).unwrap().is_empty()));
    count.expect(&[("attr_searches", 0), ("attr_searches_skipped", 1)]);
    // A set that finds nothing need not search either.
    let count = counted(&fs, || set(&fs, dir, "user.a", b"value"));
    count.expect(&[("attr_searches", 0), ("attr_searches_skipped", 1)]);
    image.close(fs);
    let fs = image.open_with(MountOptions { known_absent: false, ..Default::default() });
    assert_skipped(&fs, make(&fs, fs.root(), "other", DIR | 0o755), NONE);
    image.close(fs);
}

/// How an attribute is added.
type Add = (&'static str, fn(&Volume, InodeNumber, &str), fn() -> MountOptions);

fn add_plain(fs: &Volume, inode: InodeNumber, name: &str) {
    set(fs, inode, name, &value(name));
}

fn add_in_batch(fs: &Volume, inode: InodeNumber, name: &str) {
    let change = |name: &str| XattrChange { name: name.as_bytes().to_vec(), value: Some(value(name)) };
    // Two changes of one name are a batch and one attribute.
    fs.change_xattrs(inode, &[change(name), change(name)], SetMode::Any, &Caller::root()).unwrap();
}

/// An attribute with a value of this length, which an ACL cannot have.
fn add_long(fs: &Volume, inode: InodeNumber, name: &str, bytes: usize) {
    let value = if name.starts_with("system") { value(name) } else { vec![7; bytes] };
    set(fs, inode, name, &value);
}

const WAYS: [Add; 6] = [
    ("in the inode", add_plain, MountOptions::default),
    ("in a batch", add_in_batch, MountOptions::default),
    ("in a leaf", |fs, inode, name| add_long(fs, inode, name, 1500), MountOptions::default),
    ("in blocks of its own", |fs, inode, name| add_long(fs, inode, name, 20_000), MountOptions::default),
    ("the general way", add_plain, || MountOptions { attr_path: AttrPath::General, ..Default::default() }),
    ("by an intent", add_plain, intents),
];

#[test]
fn each_way_to_add_an_attribute_forgets_its_kinds_and_no_others() {
    for (how, add, options) in WAYS {
        let image = Image::new(64, &[]);
        let fs = image.open_with(options());
        for name in KINDS {
            eprintln!("{name} is added {how}");
            let inode = make(&fs, fs.root(), &format!("with {name}"), DIR | 0o755);
            assert_skipped(&fs, inode, ALL);
            add(&fs, inode, name);
            fs.get_xattr(inode, name.as_bytes()).expect("what was added is found");
            assert_eq!(fs.list_xattrs(inode).unwrap().len(), kinds_of(name).len(), "an ACL shows twice");
            assert_skipped(&fs, inode, all_but(name));
        }
        image.close(fs);
        let Some(tree) = kernels_tree(&image) else { return };
        for name in KINDS {
            assert!(xattr(&tree, &format!("with {name}"), name).is_some(), "{name}, {how}");
        }
    }
}

#[test]
fn an_attribute_that_found_no_room_in_the_inode_is_not_forgotten() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", &[1; 200]);
    let count = counted(&fs, || set(&fs, inode, "trusted.a", &[2; 200]));
    count.expect(&[("attr_fell_no_room", 1)]);
    assert_eq!(fs.get_xattr(inode, b"trusted.a").unwrap(), [2; 200]);
    assert_skipped(&fs, inode, [false, false, true, true, true]);
    image.close(fs);
}

#[test]
fn what_an_inode_inherits_is_not_known_to_be_absent() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let dir = make(&fs, fs.root(), "dir", DIR | 0o755);
    set(&fs, dir, "system.posix_acl_default", &acl());
    let below = make(&fs, dir, "below", DIR | 0o777);
    assert_skipped(&fs, below, [true, false, true, false, false]);
    let file = make(&fs, dir, "file", FILE | 0o777);
    assert_skipped(&fs, file, [true, false, true, false, true]);
    image.close(fs);
}

/// A list shows every kind, so what it does not show is known.
#[test]
fn a_list_and_an_acl_that_was_not_found_teach_what_is_absent() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let (dir, big) = (make(&fs, fs.root(), "dir", DIR | 0o755), make(&fs, fs.root(), "big", DIR | 0o755));
    set(&fs, dir, "trusted.a", b"value");
    set(&fs, big, "trusted.a", &[1; 3000]);
    fs.unmount().unwrap();
    for inode in [dir, big] {
        let fs = image.open();
        assert_skipped(&fs, inode, NONE);
        assert_eq!(fs.list_xattrs(inode).unwrap(), [b"trusted.a"]);
        assert_skipped(&fs, inode, all_but("trusted.a"));
        fs.unmount().unwrap();
        // A change of mode asks for the access ACL, a new file for the default ACL of its directory.
        let fs = image.open();
        let mode = SetAttr { permissions: Some(Permissions::new(0o700)), ..Default::default() };
        fs.set_attr(inode, &mode, &Caller::root()).unwrap();
        assert_skipped(&fs, inode, [false, false, false, true, false]);
        make(&fs, inode, "new", FILE | 0o644);
        assert_skipped(&fs, inode, [false, false, false, true, true]);
        fs.unlink(inode, b"new", &Caller::root()).unwrap();
        image.close(fs);
    }
}

/// The default ACL of a directory is searched for with the first file that is made there, and not again.
#[test]
fn only_the_first_file_of_a_directory_searches_for_a_default_acl() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let dir = make(&fs, fs.root(), "dir", DIR | 0o755);
    fs.unmount().unwrap();
    let fs = image.open();
    let count = counted(&fs, || _ = make(&fs, dir, "first", FILE | 0o644));
    assert_eq!((count.get("attr_searches"), count.get("attr_searches_skipped")), (1, 0));
    let count = counted(&fs, || _ = make(&fs, dir, "second", FILE | 0o644));
    assert_eq!((count.get("attr_searches"), count.get("attr_searches_skipped")), (0, 1));
    image.close(fs);
}

#[test]
fn an_inode_that_left_the_cache_is_known_no_longer() {
    let image = Image::new(256, &[]);
    let fs = image.open_with(MountOptions { cache_bytes: 1 << 20, ..Default::default() });
    let dir = make(&fs, fs.root(), "dir", DIR | 0o755);
    assert_skipped(&fs, dir, ALL);
    let many: Vec<_> = (0..6000).map(|n| make_file(&fs, &format!("file {n}"))).collect();
    fs.sync().unwrap();
    for _ in 0..2 {
        many.iter().for_each(|file| _ = fs.stat(*file).unwrap());
    }
    let count = counted(&fs, || _ = fs.stat(dir).unwrap());
    count.expect(&[("inode_misses", 1)]);
    assert_skipped(&fs, dir, NONE);
    image.close(fs);
}

/// The knowledge is of one inode: its number may be used again.
#[test]
fn an_inode_that_takes_the_number_of_another_is_known_for_itself() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let file = make_file(&fs, "file");
    set(&fs, file, "user.a", b"value");
    assert_skipped(&fs, file, all_but("user.a"));
    fs.unlink(fs.root(), b"file", &Caller::root()).unwrap();
    let again = make_file(&fs, "again");
    assert_eq!(again, file, "the number is free");
    assert_skipped(&fs, again, ALL);
    image.close(fs);
}

#[test]
fn what_recovery_adds_is_found() {
    let image = Image::new(64, &[]);
    let fs = image.open_with(intents());
    let inode = make(&fs, fs.root(), "dir", DIR | 0o755);
    fs.sync().unwrap();
    fs.mount().error_tags.arm(LARP, 1);
    let stopped = fs.set_xattr(inode, b"trusted.a", b"value", SetMode::Any, &Caller::root());
    assert!(matches!(stopped, Err(Error::Shutdown(_))), "{stopped:?}");
    drop(fs);
    let fs = image.open();
    assert_eq!(fs.get_xattr(inode, b"trusted.a").unwrap(), b"value");
    assert_skipped(&fs, inode, NONE);
    image.close(fs);
}

/// A search is skipped in a tree as well: nothing of it is read.
#[test]
fn no_block_of_a_tree_is_read_for_what_is_absent() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", &[1; 3000]);
    for name in ["trusted.a", "security.capability", "system.posix_acl_access"] {
        let count = counted(&fs, || {
            let got = fs.get_xattr(inode, name.as_bytes());
            assert!(matches!(got, Err(Error::NoAttribute)), "{name}: {got:?}");
        });
        count.expect(&[("attr_searches_skipped", 1), ("attr_searches", 0), ("buffer_hits", 0), ("buffer_misses", 0)]);
    }
    image.close(fs);
}
