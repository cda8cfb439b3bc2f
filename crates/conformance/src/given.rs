//! What the cases share.

use crate::Make;
use std::fmt::Debug;
use xfskit_vfs::{
    Caller, InodeNumber, NewFile, Permissions, RenameFlags, Result, SetAttr, SetTime, Stat, Timestamp, Volume,
};

/// A case, whose function's name is the sentence that it shows.
pub struct Case {
    pub name: &'static str,
    pub run: Run,
}

pub enum Run {
    /// On a filesystem.
    Volume(fn(&dyn Volume)),
    /// On filesystems that it makes, opens and closes itself.
    Media(fn(Make<'_>)),
}

/// The cases of a module.
macro_rules! cases {
    ($kind:ident: $($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::given::Case] =
            &[$($crate::given::Case { name: stringify!($name), run: $crate::given::Run::$kind($name) }),*];
    };
}
pub(crate) use cases;

/// A user without rights of its own.
pub fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new() }
}

/// Checks that a call was refused, with this number.
#[track_caller]
pub fn refused<T: Debug>(result: Result<T>, errno: i32) {
    match result {
        Ok(value) => panic!("not refused, but {value:?}; expected is error {errno}"),
        Err(error) => assert_eq!(error.errno(), errno, "refused by \"{error}\""),
    }
}

/// Makes a regular file.
#[track_caller]
pub fn file(volume: &dyn Volume, dir: InodeNumber, name: &[u8]) -> InodeNumber {
    volume.create(dir, name, &NewFile::file(0o644), &Caller::root()).expect("a file").inode
}

/// Makes a regular file with contents.
#[track_caller]
pub fn file_with(volume: &dyn Volume, name: &[u8], contents: &[u8]) -> InodeNumber {
    let made = file(volume, volume.root(), name);
    volume.write_at(made, 0, contents).expect("contents");
    made
}

/// Makes a directory.
#[track_caller]
pub fn dir(volume: &dyn Volume, dir: InodeNumber, name: &[u8]) -> InodeNumber {
    volume.create(dir, name, &NewFile::dir(0o755), &Caller::root()).expect("a directory").inode
}

/// Gives an inode other permissions.
#[track_caller]
pub fn chmod(volume: &dyn Volume, inode: InodeNumber, bits: u16) {
    let change = SetAttr { permissions: Some(Permissions::new(bits)), ..SetAttr::default() };
    volume.set_attr(inode, &change, &Caller::root()).expect("permissions");
}

/// Gives an inode another owner.
#[track_caller]
pub fn chown(volume: &dyn Volume, inode: InodeNumber, uid: u32, gid: u32) {
    let change = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    volume.set_attr(inode, &change, &Caller::root()).expect("an owner");
}

/// Renames as the superuser.
pub fn rename(
    volume: &dyn Volume,
    from: (InodeNumber, &[u8]),
    to: (InodeNumber, &[u8]),
    flags: RenameFlags,
) -> Result<()> {
    volume.rename(from.0, from.1, to.0, to.1, flags, &Caller::root())
}

/// The plain rename.
pub const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
pub const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };
pub const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, ..PLAIN };
pub const WHITEOUT: RenameFlags = RenameFlags { whiteout: true, ..PLAIN };

/// A time that no clock shows.
pub const OLD: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };

/// Sets both times to [`OLD`].
#[track_caller]
pub fn age(volume: &dyn Volume, inode: InodeNumber) {
    let old = Some(SetTime::To(OLD));
    let change = SetAttr { atime: old, mtime: old, ..SetAttr::default() };
    volume.set_attr(inode, &change, &Caller::root()).expect("times");
}

#[track_caller]
pub fn stat(volume: &dyn Volume, inode: InodeNumber) -> Stat {
    volume.stat(inode).expect("an inode in use")
}

/// The names of a directory, sorted.
#[track_caller]
pub fn list(volume: &dyn Volume, dir: InodeNumber) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = volume.list_dir(dir).expect("a listing").into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// All bytes of a file.
#[track_caller]
pub fn bytes(volume: &dyn Volume, inode: InodeNumber) -> Vec<u8> {
    let size = stat(volume, inode).size as usize;
    let mut buffer = vec![0xaa; size + 1];
    assert_eq!(volume.read_at(inode, 0, &mut buffer).expect("contents"), size, "a read ends with the file");
    buffer.truncate(size);
    buffer
}

/// Numbers that a seed decides.
pub struct Random(pub u64);

impl Random {
    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
