//! The fast path: one transaction without an intent; and each reason for which an update takes another way.

use crate::shapes::fragment;
use crate::stress::{FILE, Image};
use crate::{UNRESERVED, counted, kernels_tree, make_file, set, try_make, xattr};
use xfskit_engine::{AttrPath, Caller, Error, MountOptions, SetMode, Volume};

const FELL: [&str; 4] =
    ["attr_fell_disabled", "attr_fell_not_shortform", "attr_fell_remote_value", "attr_fell_no_room"];

/// The counters of the updates that fell through: one for `reason`, none for others.
fn fell_for(reason: Option<&'static str>) -> [(&'static str, u64); 4] {
    FELL.map(|name| (name, u64::from(Some(name) == reason)))
}

#[test]
fn a_short_value_takes_one_transaction_and_no_intent() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    for (name, value) in [("user.a", &b"first"[..]), ("user.b", b"another"), ("user.a", b"longer than first")] {
        let count = counted(&fs, || set(&fs, inode, name, value));
        count.expect(&[("attr_fast_path", 1), ("transactions", 1), ("intents_whited_out", 0), ("intents_logged", 0)]);
        count.expect(&fell_for(None));
    }
    let count = counted(&fs, || fs.remove_xattr(inode, b"user.b", SetMode::Any, &Caller::root()).unwrap());
    count.expect(&[("attr_fast_path", 1), ("transactions", 1), ("intents_whited_out", 0)]);
    // With its name, a file gets a parent pointer.
    let count = counted(&fs, || _ = make_file(&fs, "second"));
    count.expect(&[("attr_fast_path", 1), ("transactions", 1)]);
    let count = counted(&fs, || fs.sync().unwrap());
    count.expect(&[("intents_logged", 0)]);
    drop(fs);
    let Some(tree) = kernels_tree(&image) else { return };
    assert_eq!(xattr(&tree, "file", "user.a"), Some(&b"longer than first"[..]));
    assert_eq!(xattr(&tree, "file", "user.b"), None);
}

#[test]
fn an_option_forbids_it() {
    let image = Image::new(64, &[]);
    let fs = image.open_with(MountOptions { attr_path: AttrPath::General, ..Default::default() });
    let inode = make_file(&fs, "file");
    let count = counted(&fs, || set(&fs, inode, "user.a", b"value"));
    count.expect(&[("attr_fast_path", 0), ("transactions", 1)]);
    count.expect(&fell_for(Some("attr_fell_disabled")));
    fs.sync().unwrap();
    drop(fs);
    let Some(tree) = kernels_tree(&image) else { return };
    assert_eq!(xattr(&tree, "file", "user.a"), Some(&b"value"[..]));
}

#[test]
fn a_tree_takes_no_short_value_in_the_inode() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.long", &[1; 3000]);
    for (name, value) in [("user.a", &b"new"[..]), ("user.a", b"new value")] {
        let count = counted(&fs, || set(&fs, inode, name, value));
        count.expect(&[("attr_fast_path", 0), ("transactions", 1)]);
        count.expect(&fell_for(Some("attr_fell_not_shortform")));
    }
    fs.sync().unwrap();
    drop(fs);
    let Some(tree) = kernels_tree(&image) else { return };
    assert_eq!(xattr(&tree, "file", "user.a"), Some(&b"new value"[..]));
    assert_eq!(xattr(&tree, "file", "user.long"), Some(&[1; 3000][..]));
}

/// A shortform entry counts its value in one byte.
#[test]
fn a_value_of_256_bytes_is_too_long() {
    for (length, fast) in [(255, 1), (256, 0)] {
        let image = Image::new(64, &[('i', "size=1024")]);
        let fs = image.open();
        let inode = make_file(&fs, "file");
        let count = counted(&fs, || set(&fs, inode, "user.a", &vec![7; length]));
        count.expect(&[("attr_fast_path", fast), ("transactions", 1)]);
        count.expect(&fell_for((fast == 0).then_some("attr_fell_remote_value")));
        fs.sync().unwrap();
        drop(fs);
        let Some(tree) = kernels_tree(&image) else { return };
        assert_eq!(xattr(&tree, "file", "user.a"), Some(&vec![7; length][..]));
    }
}

#[test]
fn without_room_in_the_inode_a_set_and_a_replace_fall_through() {
    for replaces in [false, true] {
        let image = Image::new(64, &[]);
        let fs = image.open();
        let inode = make_file(&fs, "file");
        set(&fs, inode, "user.a", &[1; 100]);
        set(&fs, inode, "user.b", &[2; 50]);
        let (name, value) = if replaces { ("user.b", [3; 240]) } else { ("user.c", [4; 240]) };
        let count = counted(&fs, || set(&fs, inode, name, &value));
        count.expect(&[("attr_fast_path", 0), ("transactions", 1), ("intents_whited_out", 0)]);
        count.expect(&fell_for(Some("attr_fell_no_room")));
        // The old value is gone, and the new one is there once.
        assert_eq!(fs.list_xattrs(inode).unwrap().len(), if replaces { 2 } else { 3 });
        fs.sync().unwrap();
        drop(fs);
        let Some(tree) = kernels_tree(&image) else { return };
        assert_eq!(xattr(&tree, "file", "user.a"), Some(&[1; 100][..]));
        assert_eq!(xattr(&tree, "file", name), Some(&value[..]));
        assert_eq!(xattr(&tree, "file", "user.b"), Some(if replaces { &value[..] } else { &[2; 50][..] }));
    }
}

/// What the inode alone takes reserves no blocks: it is done where none are left.
#[test]
fn without_a_free_block_a_short_value_is_set_and_a_long_one_is_not() {
    let image = Image::new(64, UNRESERVED);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    fragment(&fs, 0);
    use_up(&fs);
    let put =
        |name: &str, bytes: usize, mode| fs.set_xattr(inode, name.as_bytes(), &vec![7; bytes], mode, &Caller::root());
    assert!(matches!(put("user.long", 3000, SetMode::Any), Err(Error::NoSpace)));
    let count = counted(&fs, || put("user.a", 20, SetMode::Any).unwrap());
    count.expect(&[("attr_fast_path", 1), ("transactions", 1)]);
    let count = counted(&fs, || put("user.a", 25, SetMode::Replace).unwrap());
    count.expect(&[("attr_fast_path", 1), ("transactions", 1)]);
    let count = counted(&fs, || fs.remove_xattr(inode, b"user.a", SetMode::Any, &Caller::root()).unwrap());
    count.expect(&[("attr_fast_path", 1), ("transactions", 1)]);
    image.close(fs);
}

/// Uses up the last blocks by attributes, of which a set may not dip into the reserve for removals.
fn use_up(fs: &Volume) {
    for n in 0.. {
        let Ok(made) = try_make(fs, fs.root(), &format!("n{n}"), FILE | 0o644) else { return };
        if fs.set_xattr(made, b"user.a", &[1; 3000], SetMode::Any, &Caller::root()).is_err() {
            return;
        }
    }
}

#[test]
fn what_must_be_there_or_not_is_asked_on_the_fast_path_too() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    let put = |mode| fs.set_xattr(inode, b"user.a", b"value", mode, &Caller::root());
    let none = counted(&fs, || assert!(matches!(put(SetMode::Replace), Err(Error::NoAttribute))));
    none.expect(&[("transactions", 0), ("attr_fast_path", 0)]);
    put(SetMode::Create).unwrap();
    let none = counted(&fs, || assert!(matches!(put(SetMode::Create), Err(Error::Exists))));
    none.expect(&[("transactions", 0), ("attr_fast_path", 0)]);
    put(SetMode::Replace).unwrap();
    let remove = |name: &[u8]| fs.remove_xattr(inode, name, SetMode::Any, &Caller::root());
    assert!(matches!(remove(b"user.b"), Err(Error::NoAttribute)));
    remove(b"user.a").unwrap();
    image.close(fs);
}
