//! Every place that may refuse does so, one at a time, under every verb: the operation fails or finds another way, and
//! when it fails nothing has changed, the mount lives, and the same operation works afterwards.

use crate::acl::acl;
use crate::shapes::{OLD, file, scattered};
use std::sync::Arc;
use xfskit_check::{CheckOptions, Quiet, check};
use xfskit_device::{BlockDevice, MemoryDevice, OverlayDevice};
use xfskit_engine::error_tags;
use xfskit_engine::{
    AttrLogging, AttrPath, Caller, Error, Fallocate, LastLink, MountOptions, NewFile, Permissions, RenameFlags,
    SetAttr, SetMode, SetTime, Volume, WholeFile, XattrChange,
};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{InodeNumber, Timestamp};

const TAGS: &[&str] = &[
    error_tags::REFUSE_EXTENT,
    error_tags::REFUSE_INODE,
    error_tags::REFUSE_WINDOW,
    error_tags::REFUSE_BLOCKS,
    error_tags::REFUSE_RECORDS,
    error_tags::REFUSE_FORK,
    error_tags::REFUSE_ACL,
    error_tags::REFUSE_LOCK,
    error_tags::REDUCE_MAX_IEXTENTS,
    error_tags::ATTR_NO_SPACE,
];

/// What an operation that fails may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// Nothing.
    Nothing,
    /// Changes of the size or of a part of the bytes of a file, and of its dirty blocks.
    Some,
}

struct Verb {
    name: &'static str,
    failed: Failed,
    run: fn(&Volume) -> Result<(), Error>,
}

fn at(fs: &Volume, path: &str) -> InodeNumber {
    fs.resolve(path.as_bytes(), LastLink::Keep).unwrap_or_else(|error| panic!("{path}: {error}")).inode
}

fn create(fs: &Volume, dir: &str, new: &NewFile<'_>) -> Result<(), Error> {
    fs.create(at(fs, dir), &[b'n'; 200], new, &Caller::root()).map(drop)
}

fn rename(fs: &Volume, from: (&str, &str), to: (&str, &str), flags: RenameFlags) -> Result<(), Error> {
    fs.rename(at(fs, from.0), from.1.as_bytes(), at(fs, to.0), to.1.as_bytes(), flags, &Caller::root())
}

fn set(fs: &Volume, path: &str, name: &str, length: usize) -> Result<(), Error> {
    fs.set_xattr(at(fs, path), name.as_bytes(), &vec![7; length], SetMode::Any, &Caller::root())
}

fn set_acl(fs: &Volume, path: &str, users: u32) -> Result<(), Error> {
    fs.set_xattr(at(fs, path), b"system.posix_acl_access", &acl(users), SetMode::Any, &Caller::root())
}

fn change(fs: &Volume, path: &str, change: SetAttr) -> Result<(), Error> {
    fs.set_attr(at(fs, path), &change, &Caller::root()).map(drop)
}

fn chmod(fs: &Volume, path: &str) -> Result<(), Error> {
    change(fs, path, SetAttr { permissions: Some(Permissions::new(0o701)), uid: Some(5), ..Default::default() })
}

const REPLACE: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true, whiteout: false };
const WHITEOUT: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: true };

macro_rules! verbs {
    ($($failed:ident $name:literal $run:expr;)+) => {
        &[$(Verb { name: $name, failed: Failed::$failed, run: $run }),+]
    };
}

const VERBS: &[Verb] = verbs! {
    Nothing "create" |fs| create(fs, "/d", &NewFile::file(0o644));
    Nothing "mkdir" |fs| create(fs, "/d", &NewFile::dir(0o755));
    Nothing "symlink" |fs| create(fs, "/d", &NewFile::symlink(&[b't'; 900]));
    Nothing "mknod" |fs| create(fs, "/large", &NewFile { device: 0x0103, ..NewFile::of_mode(0o020_600).unwrap() });
    Nothing "create in a large directory" |fs| create(fs, "/large", &NewFile::file(0o644));
    Nothing "create below a default ACL" |fs| create(fs, "/acl-dir", &NewFile::file(0o644));
    Nothing "mkdir below a default ACL" |fs| create(fs, "/acl-dir", &NewFile::dir(0o755));
    Nothing "mkdir below a long default ACL" |fs| create(fs, "/long-acl-dir", &NewFile::dir(0o755));
    Nothing "tmpfile" |fs| fs.tmpfile(at(fs, "/acl-dir"), &NewFile::file(0o644), &Caller::root()).map(drop);
    Nothing "make files" |fs| {
        let then = Timestamp::default();
        let (xattrs, contents) = (&[][..], &[5; 5000][..]);
        let name = |number: usize| format!("small {number}").into_bytes();
        let names: Vec<_> = (0..3).map(name).collect();
        let permissions = Permissions::new(0o644);
        let of = |name| WholeFile { name, permissions, uid: 0, gid: 0, atime: then, mtime: then, xattrs, contents };
        let files: Vec<_> = names.iter().map(|name| of(name)).collect();
        fs.make_files(at(fs, "/d"), &files).map(drop)
    };
    Nothing "link" |fs| fs.link(at(fs, "/large"), b"one more", at(fs, "/full"), &Caller::root()).map(drop);
    Nothing "link over" |fs| fs.link_over(at(fs, "/d"), b"sub-file", at(fs, "/full"), &Caller::root());
    Nothing "unlink" |fs| fs.unlink(fs.root(), b"full", &Caller::root());
    Nothing "unlink of many extents" |fs| fs.unlink(fs.root(), b"wide", &Caller::root());
    Nothing "unlink of attributes" |fs| fs.unlink(fs.root(), b"remote", &Caller::root());
    Nothing "unlink of one name" |fs| fs.unlink(at(fs, "/large"), b"name 700", &Caller::root());
    Nothing "rmdir" |fs| fs.rmdir(at(fs, "/d"), b"sub", &Caller::root());
    Nothing "rename" |fs| rename(fs, ("/", "full"), ("/large", "moved"), REPLACE);
    Nothing "rename of a directory" |fs| rename(fs, ("/d", "sub"), ("/large", "moved"), REPLACE);
    Nothing "rename over a file" |fs| rename(fs, ("/", "full"), ("/d", "sub-file"), REPLACE);
    Nothing "rename over one of two names" |fs| rename(fs, ("/", "full"), ("/large", "name 7"), REPLACE);
    Nothing "rename over a directory" |fs| rename(fs, ("/", "empty"), ("/d", "sub"), REPLACE);
    Nothing "exchange" |fs| rename(fs, ("/", "full"), ("/d", "sub"), EXCHANGE);
    Nothing "whiteout" |fs| rename(fs, ("/", "full"), ("/d", "moved"), WHITEOUT);
    Nothing "whiteout over a file" |fs| rename(fs, ("/", "full"), ("/d", "sub-file"), WHITEOUT);
    Nothing "whiteout over one of two names" |fs| rename(fs, ("/d", "sub-file"), ("/large", "name 7"), WHITEOUT);
    Nothing "whiteout in a later AG than the file that goes" |fs| {
        let ag = |path: &str| fs.mount().geometry.split_inode(at(fs, path)).unwrap().0;
        assert!(ag("/full") < ag("/acl-dir"), "the directory is in a later AG");
        rename(fs, ("/acl-dir", "far"), ("/", "full"), WHITEOUT)
    };
    Nothing "rename between AGs" |fs| rename(fs, ("/acl-dir", "far"), ("/", "full"), REPLACE);
    Nothing "exchange between AGs" |fs| rename(fs, ("/acl-dir", "far"), ("/", "leaf"), EXCHANGE);
    Nothing "unlink in another AG" |fs| fs.unlink(at(fs, "/acl-dir"), b"far", &Caller::root());
    Nothing "first attribute" |fs| set(fs, "/full", "user.a", 30);
    Nothing "first attribute beside a wide map" |fs| set(fs, "/wide", "user.a", 150);
    Nothing "first attribute of a directory" |fs| set(fs, "/large", "security.selinux", 30);
    Nothing "attribute for a leaf" |fs| set(fs, "/full", "user.a", 700);
    Nothing "attribute in blocks" |fs| set(fs, "/wide", "user.a", 60_000);
    Nothing "attribute in a leaf" |fs| set(fs, "/leaf", "user.new", 200);
    Nothing "short attribute replaced in blocks" |fs| set(fs, "/short", "user.a", 50_000);
    Nothing "replaced attribute" |fs| set(fs, "/leaf", "user.3", 90);
    Nothing "replaced attribute in blocks" |fs| set(fs, "/remote", "user.remote", 65_000);
    Nothing "removed attribute" |fs| fs.remove_xattr(at(fs, "/leaf"), b"user.3", SetMode::Any, &Caller::root());
    Nothing "removed attribute in blocks" |fs| {
        fs.remove_xattr(at(fs, "/remote"), b"user.remote", SetMode::Any, &Caller::root())
    };
    Nothing "batch" |fs| {
        let change = |name: &str, length| XattrChange { name: name.into(), value: Some(vec![3; length]) };
        let changes = [change("user.a", 20), change("user.b", 20_000), change("user.c", 300), change("user.d", 9_000)];
        fs.change_xattrs(at(fs, "/full"), &changes, SetMode::Any, &Caller::root())
    };
    Nothing "ACL" |fs| set_acl(fs, "/full", 2);
    Nothing "ACL beside a wide map" |fs| set_acl(fs, "/wide", 2);
    Nothing "long ACL" |fs| set_acl(fs, "/wide", 3000);
    Nothing "ACL that the mode says" |fs| set_acl(fs, "/acl", 0);
    Nothing "default ACL" |fs| {
        fs.set_xattr(at(fs, "/large"), b"system.posix_acl_default", &acl(90), SetMode::Any, &Caller::root())
    };
    Nothing "chmod" |fs| chmod(fs, "/full");
    Nothing "chmod beside an ACL" |fs| chmod(fs, "/acl");
    Nothing "chmod beside an ACL in a leaf" |fs| chmod(fs, "/leaf-acl");
    Nothing "chmod beside a long ACL" |fs| chmod(fs, "/long-acl");
    Some "chmod and truncate" |fs| {
        let permissions = Some(Permissions::new(0o600));
        change(fs, "/acl", SetAttr { permissions, size: Some(10_000), ..Default::default() })
    };
    Nothing "times" |fs| change(fs, "/full", SetAttr { mtime: Some(SetTime::Now), ..Default::default() });
    Nothing "truncate" |fs| fs.truncate(at(fs, "/full"), 1234);
    Nothing "truncate of many extents" |fs| fs.truncate(at(fs, "/wide"), 3 * 1024 + 5);
    Some "extension" |fs| fs.truncate(at(fs, "/full"), 1 << 30);
    Nothing "small write" |fs| fs.write_at(at(fs, "/full"), 77_777, b"some bytes");
    Some "small write and fsync" |fs| {
        fs.write_at(at(fs, "/full"), 77_777, b"some bytes")?;
        fs.fsync(at(fs, "/full"))
    };
    Some "large write" |fs| fs.write_at(at(fs, "/full"), 50_000, &vec![8; 700_000]);
    Some "write into shared blocks" |fs| {
        fs.write_at(at(fs, "/clone"), 3000, &[8; 3000])?;
        fs.fsync(at(fs, "/clone"))
    };
    Some "append" |fs| fs.append(at(fs, "/full"), &[8; 300_000]).map(drop);
    Some "allocation" |fs| fs.fallocate(at(fs, "/wide"), 0, 200 * 1024, Fallocate::Allocate);
    Some "hole" |fs| fs.fallocate(at(fs, "/full"), 1500, 9000, Fallocate::PunchHole);
    Some "hole in shared blocks" |fs| fs.fallocate(at(fs, "/clone"), 4096, 4096, Fallocate::PunchHole);
    Some "zeros" |fs| fs.fallocate(at(fs, "/full"), 1500, 90_000, Fallocate::ZeroRange);
    Some "collapse" |fs| fs.fallocate(at(fs, "/wide"), 2048, 4096, Fallocate::CollapseRange);
    Some "insertion" |fs| fs.fallocate(at(fs, "/full"), 8192, 4096, Fallocate::InsertRange);
    Some "clone" |fs| fs.clone_range(at(fs, "/full"), 0, at(fs, "/target"), 0, 0);
    Some "clone of many extents" |fs| fs.clone_range(at(fs, "/wide"), 0, at(fs, "/target"), 0, 0);
    Some "copy" |fs| fs.copy_range(at(fs, "/full"), 1, at(fs, "/target"), 5, 12_000).map(drop);
};

/// Makes an image with something for each verb.
fn base(arguments: &[(char, &str)]) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let mut options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
    let small = [('b', "size=1024"), ('d', "agcount=4")];
    small.iter().chain(arguments).for_each(|(letter, value)| options.apply(*letter, value).unwrap());
    make(&*device, None, &options, Timestamp::default()).unwrap();
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).unwrap();
    let me = Caller::root();
    for dir in ["d", "d/sub", "acl-dir", "long-acl-dir", "large", "empty"] {
        let (parent, name) = dir.rsplit_once('/').unwrap_or(("", dir));
        fs.create(at(&fs, &format!("/{parent}")), name.as_bytes(), &NewFile::dir(0o755), &me).unwrap();
    }
    fs.create(at(&fs, "/d"), b"sub-file", &NewFile::file(0o644), &me).unwrap();
    let named = file(&fs, "named");
    for number in 0..1500 {
        fs.link(at(&fs, "/large"), format!("name {number}").as_bytes(), named, &Caller::root()).unwrap();
    }
    for name in ["full", "target", "acl", "leaf-acl", "long-acl", "leaf", "remote", "clone", "short"] {
        fs.write_at(file(&fs, name), 0, &[1; 30_000]).unwrap();
    }
    scattered(&fs, "wide", 900);
    (0..12).for_each(|n| set(&fs, "/leaf", &format!("user.{n}"), 60).unwrap());
    set(&fs, "/remote", "user.remote", 40_000).unwrap();
    set(&fs, "/short", "user.a", 20).unwrap();
    for (path, users) in [("/acl", 1), ("/leaf-acl", 40), ("/long-acl", 3000)] {
        set_acl(&fs, path, users).unwrap();
    }
    for (path, users) in [("/acl-dir", 2), ("/long-acl-dir", 2000)] {
        fs.set_xattr(at(&fs, path), b"system.posix_acl_default", &acl(users), SetMode::Any, &me).unwrap();
    }
    fs.create(at(&fs, "/acl-dir"), b"far", &NewFile::file(0o644), &me).unwrap();
    if fs.mount().geometry.has_reflink() {
        fs.clone_range(at(&fs, "/full"), 0, at(&fs, "/clone"), 0, 0).unwrap();
    }
    fs.unmount().unwrap();
    device
}

/// Everything that can be seen of a filesystem.
fn digest(fs: &Volume) -> Vec<String> {
    let mut lines = Vec::new();
    let mut dirs = vec![(String::new(), fs.root())];
    let mut seen = std::collections::HashSet::new();
    while let Some((path, dir)) = dirs.pop() {
        for entry in fs.list_dir(dir).unwrap() {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let inode = fs.lookup_number(dir, &entry.name).unwrap();
            lines.push(format!("{path}: {inode}"));
            if seen.insert(inode) {
                lines.push(describe(fs, inode));
                if fs.stat(inode).unwrap().file_type.is_dir() {
                    dirs.push((path, inode));
                }
            }
        }
    }
    lines.push(describe(fs, fs.root()));
    lines.sort();
    lines
}

fn describe(fs: &Volume, inode: InodeNumber) -> String {
    let stat = fs.stat(inode).unwrap();
    let mut contents = Vec::new();
    if stat.file_type.is_file() {
        contents.resize(stat.size.min(1 << 20) as usize, 0);
        assert_eq!(fs.read_at(inode, 0, &mut contents).unwrap(), contents.len());
    }
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut names = fs.list_xattrs(inode).unwrap();
    names.sort();
    let xattrs: Vec<_> = names
        .iter()
        .map(|name| (String::from_utf8_lossy(name).into_owned(), sum(&fs.get_xattr(inode, name).unwrap())))
        .collect();
    format!("{stat:?} {} {xattrs:?}", sum(&contents))
}

/// What the cases of a test have in common.
struct Setting {
    base: Arc<MemoryDevice>,
    options: MountOptions,
    /// What the base shows.
    before: Vec<String>,
}

impl Setting {
    fn new(arguments: &[(char, &str)], options: MountOptions) -> Self {
        let mut setting = Self { base: base(arguments), options, before: Vec::new() };
        setting.before = digest(&setting.open().1);
        setting
    }

    fn open(&self) -> (Arc<dyn BlockDevice>, Volume) {
        let device = Arc::new(OverlayDevice::new(Arc::clone(&self.base) as _, 1 << 30)) as Arc<dyn BlockDevice>;
        let fs = Volume::open(Arc::clone(&device), self.options.clone()).unwrap();
        (device, fs)
    }
}

/// Runs a verb while the place of a tag refuses when it is passed for the `nth` time. Returns false if it is not passed
/// so often.
fn refuse(setting: &Setting, verb: &Verb, tag: &'static str, nth: u32) -> bool {
    let what = format!("{} with {tag} {nth}", verb.name);
    let (device, fs) = setting.open();
    fs.mount().error_tags.arm(tag, nth);
    let result = (verb.run)(&fs);
    let was_passed = !(0..nth).any(|_| fs.mount().error_tags.strikes(tag));
    fs.mount().journal.check().unwrap_or_else(|error| panic!("{what}, which said {result:?}: {error}"));
    match result {
        // The image or the options do not support the verb.
        Err(Error::NotSupported(_) | Error::Invalid(_)) => return false,
        Err(error) => {
            assert!(was_passed, "{what}: {error}");
            assert!(error.kind() != std::io::ErrorKind::WouldBlock, "{what}: {error}");
            if verb.failed == Failed::Nothing {
                let after = digest(&fs);
                let differ = setting.before.iter().zip(&after).find(|(before, after)| before != after);
                assert!(setting.before == after, "{what}, which failed with \"{error}\", changed {differ:?}");
            }
            (verb.run)(&fs).unwrap_or_else(|error| panic!("{what}, then once more: {error}"));
        }
        Ok(()) => {}
    }
    if was_passed {
        fs.unmount().unwrap_or_else(|error| panic!("{what}, then the unmount: {error}"));
        let report = check(device, None, &CheckOptions::default(), &Quiet).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.faults);
    }
    was_passed
}

fn refuse_everywhere(arguments: &[(char, &str)], options: MountOptions) {
    let setting = Setting::new(arguments, options);
    let mut cases = 0;
    for verb in VERBS {
        for tag in TAGS {
            cases += (1..=12).take_while(|nth| refuse(&setting, verb, tag, *nth)).count();
        }
    }
    eprintln!("{cases} refusals");
    assert!(cases > 100);
}

#[test]
fn whatever_is_refused_has_changed_nothing() {
    refuse_everywhere(&[], MountOptions::default());
}

#[test]
fn whatever_is_refused_on_an_old_image_has_changed_nothing() {
    refuse_everywhere(OLD, MountOptions::default());
}

#[test]
fn whatever_is_refused_behind_intents_has_changed_nothing() {
    let options =
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..MountOptions::default() };
    refuse_everywhere(&[], options.clone());
    refuse_everywhere(OLD, options);
}

#[test]
fn whatever_is_refused_without_the_short_way_has_changed_nothing() {
    refuse_everywhere(
        &[],
        MountOptions { attr_path: AttrPath::General, known_absent: false, ..MountOptions::default() },
    );
}
