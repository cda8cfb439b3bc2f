//! Listing directories.

use super::names::to_path;
use super::{AsPath, FileType, Filesystem, Held, LastLink, Metadata, OnPath, Result, WeakFilesystem};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::vec;
use xfskit_engine::{DirEntry as Entry, InodeRef, Result as EngineResult};
use xfskit_ondisk::InodeNumber;

impl Filesystem {
    /// The entries of a directory but for `.` and `..`, in the order in which they lie there, read in batches as they
    /// are asked for. Entries that are made or removed meanwhile may be seen or not; all others are seen exactly once.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// # fs.write("/hello", "world")?;
    /// for entry in fs.read_dir("/")? {
    ///     let entry = entry?;
    ///     println!("{} {:?}", entry.name().escape_ascii(), entry.file_type());
    /// }
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Path`: `NotFound`, `NotADirectory`.
    pub fn read_dir(&self, path: impl AsPath) -> Result<ReadDir> {
        let path = path.as_path_bytes();
        let listing =
            self.reference(path, LastLink::Follow).and_then(|dir| ReadDir::start(Held::new(self, dir), path.to_vec()));
        listing.on("list", path)
    }
}

/// The entries of a directory, by [`Filesystem::read_dir`]. After an error there are no more.
///
/// It keeps its filesystem open, see [`Filesystem::close`].
pub struct ReadDir {
    dir: Held,
    path: Vec<u8>,
    batch: vec::IntoIter<Entry>,
    /// Where the next batch begins; `None` at the end.
    cookie: Option<u64>,
}

impl ReadDir {
    /// Reads the first batch, so that what is no directory is found out at once.
    pub(super) fn start(dir: Held, path: Vec<u8>) -> EngineResult<Self> {
        let mut listing = Self { dir, path, batch: Vec::new().into_iter(), cookie: Some(0) };
        listing.fill()?;
        Ok(listing)
    }

    pub(super) fn dir(&self) -> &Held {
        &self.dir
    }

    fn fill(&mut self) -> EngineResult<()> {
        let Some(cookie) = self.cookie.take() else { return Ok(()) };
        let (batch, next) = self.dir.volume().read_dir_batch(self.dir.number(), cookie)?;
        self.batch = batch.into_iter();
        self.cookie = next;
        Ok(())
    }

    fn next_entry(&mut self) -> EngineResult<Option<DirEntry>> {
        if self.batch.len() == 0 {
            self.fill()?;
        }
        let Some(entry) = self.batch.next() else { return Ok(None) };
        let file_type = match entry.file_type {
            Some(file_type) => file_type,
            None => self.dir.volume().stat(entry.inode)?.file_type,
        };
        let mut path = self.path.clone();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&entry.name);
        let (fs, name_bytes) = (self.dir.fs().downgrade(), entry.name.len());
        Ok(Some(DirEntry { fs, path, name_bytes, inode: entry.inode, file_type }))
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().on("list", &self.path).transpose()
    }
}

/// An entry of a directory. It does not keep its filesystem open: calls that look at the file fail once the image is
/// closed.
#[derive(Clone)]
pub struct DirEntry {
    fs: WeakFilesystem,
    path: Vec<u8>,
    name_bytes: usize,
    inode: InodeNumber,
    file_type: FileType,
}

impl DirEntry {
    /// The name: any bytes but `/` and zero, at most 255.
    pub fn name(&self) -> &[u8] {
        &self.path[self.path.len() - self.name_bytes..]
    }

    /// The name as the system's type.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.name())
    }

    /// The path of the directory, as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        to_path(self.path.clone())
    }

    /// What kind of file it is; a symbolic link is one.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// The number of the inode.
    pub fn inode(&self) -> u64 {
        self.inode.0
    }

    /// What the file is; of a symbolic link, the link itself.
    ///
    /// # Errors
    /// `Path`: `NotFound` if it was removed meanwhile.
    pub fn metadata(&self) -> Result<Metadata> {
        self.look(|inode| inode.stat()).map(Metadata::new).on("look at", &self.path)
    }

    /// The value of an extended attribute, by its full name; `None` if the file has no such attribute. Of a symbolic
    /// link, its own, where [`Filesystem::get_xattr`] takes that of the file that it leads to.
    ///
    /// # Errors
    /// `Path`: `NotFound` if the file was removed meanwhile; `NotSupported` for a name with an unknown prefix.
    pub fn get_xattr(&self, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let value = self.look(|inode| super::attributes::get_xattr(inode.volume(), inode.number(), name.as_ref()));
        value.on("read attribute of", &self.path)
    }

    /// The full names of all extended attributes, in no order; of a symbolic link, its own.
    ///
    /// # Errors
    /// `Path`: `NotFound` if the file was removed meanwhile.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let names = self.look(|inode| inode.volume().list_xattrs(inode.number()));
        names.on("list attributes of", &self.path)
    }

    /// Looks at the file that has the path now.
    fn look<T>(&self, at: impl FnOnce(&InodeRef<'_>) -> EngineResult<T>) -> EngineResult<T> {
        let fs = self.fs.upgrade()?;
        let inode = fs.reference(&self.path, LastLink::Keep)?;
        at(&inode)
    }

    pub(super) fn path_bytes(&self) -> &[u8] {
        &self.path
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, inode, file_type, .. } = self;
        let path = OsStr::from_bytes(path);
        let mut shown = f.debug_struct("DirEntry");
        shown.field("path", &path).field("inode", &inode.0).field("file_type", file_type).finish()
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &OsStr::from_bytes(&self.path)).finish_non_exhaustive()
    }
}
