//! Open files.

use super::{AsPath, FileType, Filesystem, Held, InodeRef, LastLink, Metadata, OnPath, Permissions, Result};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use xfskit_engine::{Caller, NewFile, SetAttr, SetMode, split_path};
use xfskit_engine::{Error as Cause, Result as EngineResult};

/// Permissions of new files: those that the system leaves with the usual umask.
const NEW_FILE: Permissions = Permissions::new(0o644);

/// What is appended at once is accepted or refused as a whole if it is no more than this.
const APPENDED_AT_ONCE_BYTES: usize = 1 << 20;

/// What to open a file for, as [`std::fs::OpenOptions`].
///
/// ```
/// # use std::io::Write;
/// use xfskit::FileOptions;
/// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
///
/// let mut log = fs.open_with("/log", &FileOptions::new().append(true).create(true))?;
/// writeln!(log, "one line")?;
/// writeln!(log, "another")?;
/// assert_eq!(fs.read_to_string("/log")?, "one line\nanother\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileOptions {
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    permissions: Permissions,
}

/// What is to be done about a file that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Create {
    No,
    IfMissing,
    Always,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { write: false, append: false, truncate: false, create: false, create_new: false, permissions: NEW_FILE }
    }
}

impl FileOptions {
    /// To read only: every file that is open can be read.
    pub fn new() -> Self {
        Self::default()
    }

    /// To write as well.
    #[must_use]
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// To write at the end only, wherever that is by then.
    #[must_use]
    pub fn append(mut self, yes: bool) -> Self {
        self.append = yes;
        self
    }

    /// To begin with an empty file; needs [`write`](Self::write).
    #[must_use]
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// To make the file if it is missing; needs [`write`](Self::write) or [`append`](Self::append).
    #[must_use]
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// To make the file, and fail if the name exists, as a symbolic link too; needs [`write`](Self::write) or
    /// [`append`](Self::append). With it [`create`](Self::create) and [`truncate`](Self::truncate) say nothing more.
    #[must_use]
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// The permissions of a file that is made; 0644 unless said otherwise.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    fn writes(&self) -> bool {
        self.write || self.append
    }

    fn creates(&self) -> Create {
        match (self.create_new, self.create) {
            (true, _) => Create::Always,
            (false, true) => Create::IfMissing,
            (false, false) => Create::No,
        }
    }

    fn verify(&self) -> EngineResult<()> {
        if self.creates() != Create::No && !self.writes() {
            return Err(Cause::Invalid("what makes a file opens it to write or to append"));
        }
        if self.truncate && !self.create_new && (!self.write || self.append) {
            return Err(Cause::Invalid("what empties a file opens it to write, and not to append"));
        }
        Ok(())
    }
}

impl Filesystem {
    /// Opens a regular file to read.
    ///
    /// # Errors
    /// `Path`: `NotFound`, `IsADirectory`, `Invalid` for what has no contents, as a pipe or device.
    pub fn open_file(&self, path: impl AsPath) -> Result<File> {
        self.open_with(path, &FileOptions::new())
    }

    /// Opens a regular file to read and write, empty: one that exists loses its contents, one that is missing is made.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn create_file(&self, path: impl AsPath) -> Result<File> {
        self.open_with(path, &FileOptions::new().write(true).truncate(true).create(true))
    }

    /// Opens a regular file. Through a symbolic link, a file that is missing is made where the link points to.
    ///
    /// # Errors
    /// `Path`: `NotFound`, `Exists`, `IsADirectory`, `Invalid` for what has no contents and for options that
    /// contradict each other, `ReadOnly`, `NotPermitted`, `NoSpace`.
    pub fn open_with(&self, path: impl AsPath, options: &FileOptions) -> Result<File> {
        let path = path.as_path_bytes();
        self.open_at(path, options).on("open", path)
    }

    fn open_at(&self, path: &[u8], options: &FileOptions) -> EngineResult<File> {
        options.verify()?;
        if options.writes() && self.volume().options().read_only {
            return Err(Cause::ReadOnly);
        }
        let create = options.creates();
        let mut path = path.to_vec();
        let mut followed = 0;
        let mut inode = loop {
            if create != Create::No && path.ends_with(b"/") {
                return Err(Cause::IsADirectory);
            }
            if create != Create::Always {
                match self.reference(&path, LastLink::Follow) {
                    Err(Cause::NotFound) if create == Create::IfMissing => {}
                    other => break other?,
                }
            }
            match self.make_file(&path, options.permissions) {
                // A link that leads nowhere, or another thread was faster.
                Err(Cause::Exists) if create == Create::IfMissing => {
                    if let Some(target) = self.link_target(&path)? {
                        followed += 1;
                        path = target;
                    }
                    if followed > xfskit_engine::MAX_LINKS_FOLLOWED {
                        return Err(Cause::TooManySymlinks);
                    }
                }
                Ok(None) => {}
                other => {
                    if let Some(inode) = other? {
                        break inode;
                    }
                }
            }
        };
        let stat = inode.stat()?;
        match stat.file_type {
            FileType::File => {}
            FileType::Dir => return Err(Cause::IsADirectory),
            _ => return Err(Cause::Invalid("only a regular file can be opened")),
        }
        if options.truncate && stat.size > 0 {
            self.volume().truncate(inode.number(), 0)?;
        }
        if options.writes() {
            inode.set_writes();
        }
        Ok(File { inode: Held::new(self, inode), position: 0, appends: options.append })
    }

    /// Makes an empty file; `None` where another thread has removed it already.
    fn make_file(&self, path: &[u8], permissions: Permissions) -> EngineResult<Option<InodeRef<'_>>> {
        let entry = self.entry(path)?;
        let new = NewFile::new(FileType::File, permissions);
        let made = self.volume().create(entry.dir.number(), entry.name, &new, &Caller::root())?;
        self.volume().reference_made(&made)
    }

    /// The path that a symbolic link leads to; `None` for what is no symbolic link.
    fn link_target(&self, path: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let link = match self.reference(path, LastLink::Keep) {
            Err(Cause::NotFound) => return Ok(None),
            other => other?,
        };
        if !link.stat()?.file_type.is_symlink() {
            return Ok(None);
        }
        let target = self.volume().read_link(link.number())?;
        if target.starts_with(b"/") {
            return Ok(Some(target));
        }
        let (parent, _) = split_path(path)?;
        Ok(Some([parent, b"/", &target].concat()))
    }

    /// A file that has no name, near the directory of `path`.
    pub(super) fn unnamed(&self, dir: &InodeRef<'_>) -> EngineResult<File> {
        let new = NewFile::new(FileType::File, NEW_FILE);
        let mut inode = self.volume().tmpfile(dir.number(), &new, &Caller::root())?;
        inode.set_writes();
        Ok(File { inode: Held::new(self, inode), position: 0, appends: false })
    }
}

/// A regular file that is open, by [`Filesystem::open_file`] and its like.
///
/// Its methods return [`std::io::Result`], where those of [`Filesystem`] return [`crate::Result`].
///
/// It can be read as long as it is open, even after its last name was removed; its space is freed when the last
/// `File` of it is dropped. Writing through it is not durable before [`sync_all`](Self::sync_all),
/// [`sync_data`](Self::sync_data) or [`Filesystem::sync`].
///
/// Reading and writing at an offset take `&self`, and threads may share a file for them; [`Read`], [`Write`] and
/// [`Seek`] have a position, so they take `&mut self`.
///
/// It keeps its filesystem open: [`Filesystem::close`] is refused until it is dropped, and where the [`Filesystem`]
/// itself was dropped, the image is closed with the last `File`.
pub struct File {
    pub(super) inode: Held,
    position: u64,
    appends: bool,
}

impl File {
    /// Fills `buffer` from byte `offset` on; returns how many bytes there were, fewer than asked for only at the end
    /// of the file.
    ///
    /// # Errors
    /// `InvalidData` for damage, and those of the device.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.inode.volume().read_at(self.inode.number(), offset, buffer)?)
    }

    /// Writes all of `data` at byte `offset`, behind the end as well: what lies between reads as zeros. Of a file
    /// opened to append, the offset does not count, as Linux has it.
    ///
    /// # Errors
    /// `PermissionDenied` for a file that was opened to read only, or is immutable; `StorageFull`, `FileTooLarge`. A
    /// part may have been written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.check_writes()?;
        if self.appends {
            self.inode.volume().append(self.inode.number(), data)?;
            return Ok(());
        }
        Ok(self.inode.volume().write_at(self.inode.number(), offset, data)?)
    }

    /// Makes everything done to the file durable: contents, names, attributes.
    ///
    /// # Errors
    /// `StorageFull` for contents that waited in memory; those of the device.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(self.inode.volume().fsync(self.inode.number())?)
    }

    /// As [`Self::sync_all`], but times that changed alone may wait.
    ///
    /// # Errors
    /// As [`Self::sync_all`].
    pub fn sync_data(&self) -> io::Result<()> {
        Ok(self.inode.volume().fdatasync(self.inode.number())?)
    }

    /// Cuts the file to `size_bytes`, or lets it grow by zeros that take no space.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn set_len(&self, size_bytes: u64) -> io::Result<()> {
        self.check_writes()?;
        Ok(self.inode.volume().truncate(self.inode.number(), size_bytes)?)
    }

    /// The metadata of the file.
    ///
    /// # Errors
    /// `InvalidData` for damage, and those of the device.
    pub fn metadata(&self) -> io::Result<Metadata> {
        Ok(Metadata::new(self.inode.stat()?))
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// `PermissionDenied` for what is immutable or append-only, `ReadOnlyFilesystem`, `StorageFull`.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let change = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.inode.volume().set_attr(self.inode.number(), &change, &Caller::root())?;
        Ok(())
    }

    /// The value of an extended attribute, by its full name; `None` if the file has no such attribute.
    ///
    /// # Errors
    /// `Unsupported` for a name with an unknown prefix.
    pub fn get_xattr(&self, name: impl AsRef<[u8]>) -> io::Result<Option<Vec<u8>>> {
        Ok(super::attributes::get_xattr(self.inode.volume(), self.inode.number(), name.as_ref())?)
    }

    /// Sets an extended attribute, by its full name.
    ///
    /// # Errors
    /// As [`Filesystem::set_xattr`], by kind.
    pub fn set_xattr(&self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> io::Result<()> {
        let (name, value) = (name.as_ref(), value.as_ref());
        Ok(self.inode.volume().set_xattr(self.inode.number(), name, value, SetMode::Any, &Caller::root())?)
    }

    /// Removes an extended attribute, by its full name.
    ///
    /// # Errors
    /// As [`Filesystem::remove_xattr`], by kind.
    pub fn remove_xattr(&self, name: impl AsRef<[u8]>) -> io::Result<()> {
        Ok(self.inode.volume().remove_xattr(self.inode.number(), name.as_ref(), SetMode::Any, &Caller::root())?)
    }

    /// The full names of all extended attributes.
    ///
    /// # Errors
    /// `InvalidData` for damage, and those of the device.
    pub fn list_xattrs(&self) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.inode.volume().list_xattrs(self.inode.number())?)
    }

    /// Closes the file. Dropping does the same, but cannot report an error in freeing a file without a name.
    ///
    /// # Errors
    /// `InvalidData` for damage, and those of the device.
    pub fn close(self) -> io::Result<()> {
        Ok(self.inode.release()?)
    }

    /// As the kernel's `EBADF`.
    fn check_writes(&self) -> io::Result<()> {
        if self.inode.writes() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file was opened to read only"))
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File {
    /// Writes all of `data`, or fewer bytes where an error stops it, which the write of the rest meets. Of more than
    /// 1 MiB to append, that much.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.check_writes()?;
        let (volume, number) = (self.inode.volume(), self.inode.number());
        let (at, count) = if self.appends {
            let part = &data[..data.len().min(APPENDED_AT_ONCE_BYTES)];
            (volume.append(number, part)?, part.len())
        } else {
            (self.position, volume.write_some_at(number, self.position, data)?)
        };
        self.position = at + count as u64;
        Ok(count)
    }

    /// Does nothing: what was written is what every reader finds already. [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.inode.stat()?.size.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a position before the start of the file");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inode, position, appends } = self;
        let (inode, writes) = (inode.number().0, inode.writes());
        let mut shown = f.debug_struct("File");
        shown.field("inode", &inode).field("position", position).field("writes", &writes);
        shown.field("appends", appends).finish()
    }
}
