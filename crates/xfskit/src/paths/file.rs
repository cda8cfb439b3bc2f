//! Open files.

use super::{AsPath, Error, FileType, Filesystem, Held, InodeRef, LastLink, Metadata, OnPath, Permissions, Result};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
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
        let path_given = path.to_vec();
        let mut path = path_given.clone();
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
        Ok(File { inode: Held::new(self, inode), path: path_given, position: 0, appends: options.append })
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

    /// A file that has no name yet, in a directory; errors name `path`.
    pub(super) fn unnamed(&self, dir: &InodeRef<'_>, path: &[u8]) -> EngineResult<File> {
        let new = NewFile::new(FileType::File, NEW_FILE);
        let mut inode = self.volume().tmpfile(dir.number(), &new, &Caller::root())?;
        inode.set_writes();
        Ok(File { inode: Held::new(self, inode), path: path.to_vec(), position: 0, appends: false })
    }
}

/// A regular file that is open, by [`Filesystem::open_file`] and its like.
///
/// Its methods return [`crate::Result`], whose errors name the path that it was opened by; [`Read`], [`Write`] and
/// [`Seek`] return [`std::io::Result`], with the number of the error.
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
    /// It was opened by this path.
    path: Vec<u8>,
    position: u64,
    appends: bool,
}

impl File {
    /// Reads from byte `offset` on into `buffer`; returns how many bytes it read, 0 at the end of the file. As
    /// [`FileExt::read_at`](std::os::unix::fs::FileExt::read_at) it may return fewer than there are.
    ///
    /// # Errors
    /// `Path`: `Corrupt`, `Io`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.on("read", self.inode.volume().read_at(self.inode.number(), offset, buffer))
    }

    /// Fills `buffer` from byte `offset` on.
    ///
    /// # Errors
    /// As [`Self::read_at`]; `NoMoreData`, of the kind `UnexpectedEof`, where the file ends before. What `buffer` holds
    /// then is not specified.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset.saturating_add(done as u64))? {
                0 => return self.on("read", Err(Cause::NoMoreData)),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Writes `data` at byte `offset`, behind the end as well: what lies between reads as zeros. Returns how many bytes
    /// it wrote, as [`FileExt::write_at`](std::os::unix::fs::FileExt::write_at): where an error stops it, fewer, and
    /// the write of the rest meets the error; [`Self::write_all_at`] writes all. Of a file opened to append, the offset
    /// does not count, as Linux has it, and at most 1 MiB is written.
    ///
    /// # Errors
    /// `OpenToRead`; `Path`: `NotPermitted` for an immutable file, `NoSpace`, `TooLarge`, `Corrupt`, `Io`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.write_some(data, offset).map(|(_, count)| count)
    }

    /// Writes all of `data` at byte `offset`; as [`Self::write_at`] otherwise.
    ///
    /// # Errors
    /// As [`Self::write_at`]. A part may have been written then.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.check_writes("write")?;
        let (volume, number) = (self.inode.volume(), self.inode.number());
        if self.appends {
            return self.on("write", volume.append(number, data).map(drop));
        }
        self.on("write", volume.write_at(number, offset, data))
    }

    /// Where it was written, and how many bytes.
    fn write_some(&self, data: &[u8], offset: u64) -> Result<(u64, usize)> {
        self.check_writes("write")?;
        let (volume, number) = (self.inode.volume(), self.inode.number());
        let written = if self.appends {
            let part = &data[..data.len().min(APPENDED_AT_ONCE_BYTES)];
            volume.append(number, part).map(|at| (at, part.len()))
        } else {
            volume.write_some_at(number, offset, data).map(|count| (offset, count))
        };
        self.on("write", written)
    }

    fn on<T>(&self, verb: &'static str, result: EngineResult<T>) -> Result<T> {
        result.on(verb, &self.path)
    }

    /// Makes everything done to the file durable: contents, names, attributes.
    ///
    /// # Errors
    /// `Path`: `NoSpace` for contents that waited in memory; `Corrupt`, `Io`, `Shutdown`.
    pub fn sync_all(&self) -> Result<()> {
        self.on("sync", self.inode.volume().fsync(self.inode.number()))
    }

    /// As [`Self::sync_all`], but times that changed alone may wait.
    ///
    /// # Errors
    /// As [`Self::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.on("sync", self.inode.volume().fdatasync(self.inode.number()))
    }

    /// Cuts the file to `size_bytes`, or lets it grow by zeros that take no space.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.check_writes("set the length of")?;
        self.on("set the length of", self.inode.volume().truncate(self.inode.number(), size_bytes))
    }

    /// The metadata of the file.
    ///
    /// # Errors
    /// `Path`: `Corrupt`, `Io`.
    pub fn metadata(&self) -> Result<Metadata> {
        self.on("look at", self.inode.stat()).map(Metadata::new)
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// `Path`: `NotPermitted` for what is immutable or append-only, `ReadOnly`, `NoSpace`.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let change = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        let set = self.inode.volume().set_attr(self.inode.number(), &change, &Caller::root());
        self.on("set permissions of", set.map(drop))
    }

    /// The value of an extended attribute, by its full name; `None` if the file has no such attribute.
    ///
    /// # Errors
    /// `Path`: `NotSupported` for a name with an unknown prefix.
    pub fn get_xattr(&self, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let value = super::attributes::get_xattr(self.inode.volume(), self.inode.number(), name.as_ref());
        self.on("read attribute of", value)
    }

    /// Sets an extended attribute, by its full name.
    ///
    /// # Errors
    /// As [`Filesystem::set_xattr`].
    pub fn set_xattr(&self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (name, value) = (name.as_ref(), value.as_ref());
        let set = self.inode.volume().set_xattr(self.inode.number(), name, value, SetMode::Any, &Caller::root());
        self.on("set attribute of", set)
    }

    /// Removes an extended attribute, by its full name.
    ///
    /// # Errors
    /// As [`Filesystem::remove_xattr`].
    pub fn remove_xattr(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let (volume, root) = (self.inode.volume(), Caller::root());
        self.on("remove attribute of", volume.remove_xattr(self.inode.number(), name.as_ref(), SetMode::Any, &root))
    }

    /// The full names of all extended attributes.
    ///
    /// # Errors
    /// `Path`: `Corrupt`, `Io`.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.on("list attributes of", self.inode.volume().list_xattrs(self.inode.number()))
    }

    /// Closes the file, and the image if this is its last handle. Dropping does the same, but cannot report an error.
    ///
    /// # Errors
    /// `Path`: `Corrupt`, `Io`; of an image that is closed with it, as [`Filesystem::close`].
    pub fn close(self) -> Result<()> {
        self.inode.release().on("close", &self.path)
    }

    /// As the kernel's `EBADF`.
    fn check_writes(&self, verb: &'static str) -> Result<()> {
        if self.inode.writes() {
            return Ok(());
        }
        Err(Error::OpenToRead { verb, path: self.path.clone() })
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
        let (at, count) = self.write_some(data, self.position)?;
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
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a position before the start of the file");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inode, path, position, appends } = self;
        let path = OsStr::from_bytes(path);
        let (inode, writes) = (inode.number().0, inode.writes());
        let mut shown = f.debug_struct("File");
        shown.field("path", &path).field("inode", &inode).field("position", position).field("writes", &writes);
        shown.field("appends", appends).finish()
    }
}
