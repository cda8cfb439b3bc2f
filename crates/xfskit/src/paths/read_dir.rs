//! Listing directories.

use super::names::to_path;
use super::{AsPath, FileType, Filesystem, InodeRef, LastLink, Metadata, OnPath, Result};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use xfskit_engine::Result as EngineResult;
use xfskit_engine::Volume;
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
    pub fn read_dir(&self, path: impl AsPath) -> Result<ReadDir<'_>> {
        let path = path.as_path_bytes();
        let listing = self.reference(path, LastLink::Follow).and_then(|dir| ReadDir::start(dir, path.to_vec()));
        listing.on("list", path)
    }
}

/// The entries of a directory, by [`Filesystem::read_dir`]. After an error there are no more.
pub struct ReadDir<'fs> {
    entries: xfskit_engine::ReadDir<'fs>,
    path: Vec<u8>,
}

impl<'fs> ReadDir<'fs> {
    /// Reads the first batch, so that what is no directory is found out at once.
    pub(super) fn start(dir: InodeRef<'fs>, path: Vec<u8>) -> EngineResult<Self> {
        Ok(Self { entries: xfskit_engine::ReadDir::new(dir)?, path })
    }

    pub(super) fn dir(&self) -> &InodeRef<'fs> {
        self.entries.dir()
    }

    fn next_entry(&mut self) -> EngineResult<Option<DirEntry<'fs>>> {
        let Some(entry) = self.entries.next().transpose()? else { return Ok(None) };
        let volume = self.dir().volume();
        let file_type = match entry.file_type {
            Some(file_type) => file_type,
            None => volume.stat(entry.inode)?.file_type,
        };
        let mut path = self.path.clone();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&entry.name);
        let name_bytes = entry.name.len();
        Ok(Some(DirEntry { volume, path, name_bytes, inode: entry.inode, file_type }))
    }
}

impl<'fs> Iterator for ReadDir<'fs> {
    type Item = Result<DirEntry<'fs>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().on("list", &self.path).transpose()
    }
}

/// An entry of a directory.
#[derive(Clone)]
pub struct DirEntry<'fs> {
    volume: &'fs Volume,
    path: Vec<u8>,
    name_bytes: usize,
    inode: InodeNumber,
    file_type: FileType,
}

impl DirEntry<'_> {
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
        self.volume
            .resolve_ref(&self.path, LastLink::Keep)
            .and_then(|inode| inode.stat())
            .map(Metadata::new)
            .on("look at", &self.path)
    }

    /// The value of an extended attribute, by its full name; `None` if the file has no such attribute. Of a symbolic
    /// link, its own, where [`Filesystem::get_xattr`] takes that of the file that it leads to.
    ///
    /// # Errors
    /// `Path`: `NotFound` if the file was removed meanwhile; `NotSupported` for a name with an unknown prefix.
    pub fn get_xattr(&self, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let value = self
            .volume
            .resolve_ref(&self.path, LastLink::Keep)
            .and_then(|inode| super::attributes::get_xattr(&inode, name.as_ref()));
        value.on("read attribute of", &self.path)
    }

    /// The full names of all extended attributes, in no order; of a symbolic link, its own.
    ///
    /// # Errors
    /// `Path`: `NotFound` if the file was removed meanwhile.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let names = self.volume.resolve_ref(&self.path, LastLink::Keep);
        names.and_then(|inode| self.volume.list_xattrs(inode.number())).on("list attributes of", &self.path)
    }

    pub(super) fn path_bytes(&self) -> &[u8] {
        &self.path
    }
}

impl fmt::Debug for DirEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, inode, file_type, .. } = self;
        let path = OsStr::from_bytes(path);
        let mut shown = f.debug_struct("DirEntry");
        shown.field("path", &path).field("inode", &inode.0).field("file_type", file_type).finish()
    }
}

impl fmt::Debug for ReadDir<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &OsStr::from_bytes(&self.path)).finish_non_exhaustive()
    }
}
