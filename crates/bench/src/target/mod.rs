//! What is measured: something with files.

mod engine;
mod path;

pub(crate) use engine::Engine;
pub(crate) use path::PathTarget;

use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a target has counted so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: Option<u64>,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) others: BTreeMap<String, u64>,
}

/// What a reader has to know of a target.
#[derive(Clone, Debug, Default, Serialize)]
pub struct About {
    /// How it is reached.
    pub how: String,
    /// The geometry of the image, in mkfs.xfs's words, or what is known instead.
    pub geometry: String,
    /// The options of the mount.
    pub options: String,
    /// What was durable, and when.
    pub durability: String,
}

/// Something with directories and files. All of it may be called by many threads.
pub(crate) trait Target: Sync {
    /// A directory as later calls name it.
    type Dir: Send + Sync;
    /// A file as later calls name it.
    type File: Clone + Send + Sync;

    fn about(&self) -> About;
    /// The directory in which everything is done.
    fn base(&self) -> &Self::Dir;
    fn make_dir(&self, parent: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;
    /// Makes an empty file. What it returns makes [`Self::file`] cheap.
    fn create(&self, dir: &Self::Dir, name: &[u8]) -> Result<u64>;
    /// The file that was made as `made`.
    fn file(&self, dir: &Self::Dir, name: &[u8], made: u64) -> Self::File;
    /// A file that has another name now.
    fn renamed(&self, dir: &Self::Dir, name: &[u8], file: Self::File) -> Self::File;
    /// Looks a name up and asks for the file's attributes.
    fn stat(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;
    /// What else the kernel's VFS asks of a filesystem when a file is opened or written: its ACL and its capabilities. Where a
    /// kernel is in between it does so by itself.
    fn ask_permission(&self, file: &Self::File) -> Result<()>;
    /// Asks for an attribute that is not there.
    fn ask_absent(&self, file: &Self::File, name: &str) -> Result<()>;
    fn unlink(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;
    fn rename(&self, from: (&Self::Dir, &[u8]), to: (&Self::Dir, &[u8])) -> Result<()>;
    /// All names but `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Result<Vec<Vec<u8>>>;
    fn set_xattr(&self, file: &Self::File, name: &str, value: &[u8]) -> Result<()>;
    /// The length of the value.
    fn get_xattr(&self, file: &Self::File, name: &str, buffer: &mut [u8]) -> Result<usize>;
    fn remove_xattr(&self, file: &Self::File, name: &str) -> Result<()>;
    /// Bytes of all names.
    fn list_xattr(&self, file: &Self::File, buffer: &mut [u8]) -> Result<usize>;
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;
    fn read(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> Result<()>;
    fn fsync(&self, file: &Self::File) -> Result<()>;
    fn statfs(&self) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
    fn counts(&self) -> Result<Counts>;
}
