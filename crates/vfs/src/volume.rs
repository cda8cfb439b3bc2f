//! What a filesystem does for those who use it, by inode numbers.

use crate::path::names_directory;
use crate::{
    Caller, DirEntry, DirEntryRef, Error, Fallocate, Flags, FsStat, InodeNumber, LastLink, LostNames, NewFile,
    ReadAhead, RenameFlags, Result, Seek, SetAttr, SetMode, Stat, SyncKind, SyncPoint, WholeFile, XattrChange,
};
use std::ops::{ControlFlow, Range};

/// Most symbolic links that a look-up follows.
const MAX_LINKS_FOLLOWED: usize = 40;
/// Pieces in which a value or a listing of attributes is asked for.
const WRITE_BYTES: usize = 1 << 20;

/// What a filesystem can hold, and what it can do. A caller that goes beyond is refused by name; a caller that looks
/// first does without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest name of an entry, in bytes.
    pub name_bytes: usize,
    /// Longest target of a symbolic link, in bytes.
    pub symlink_bytes: usize,
    /// Longest name of an extended attribute, in bytes, behind its prefix.
    pub xattr_name_bytes: usize,
    /// Longest value of an extended attribute, in bytes.
    pub xattr_value_bytes: usize,
    /// Largest file, in bytes.
    pub file_bytes: u64,
    /// Most links of a file.
    pub links: u32,
    /// Longest label, in bytes.
    pub label_bytes: usize,
    /// Bytes of which ranges of [`Volume::clone_range`], and of collapsing and inserting, are multiples.
    pub block_bytes: u32,
    /// Whether files can share blocks ([`Volume::clone_range`]).
    pub reflink: bool,
    /// Whether ranges can be taken out of files and put in.
    pub collapse: bool,
    /// Whether a rename can leave a whiteout.
    pub whiteout: bool,
    /// Whether files have ACLs: else attributes of those names are refused by `NotSupported`.
    pub acls: bool,
}

/// A filesystem that is open. Shared between threads; its calls run side by side, and each is one step for all others,
/// but for contents: large writes and copies may be seen half done.
///
/// Every call is given, as far as it needs them and in this order: what it acts on (an inode, or a name as directory
/// and name; of a move or a copy first the source, then the target); where (offset and length in bytes); what it stores
/// or fills; how (a mode or flags); the [`Caller`].
///
/// Of the caller's rights a volume checks only those that need a look at the inode while it is locked: sticky
/// directories, immutable and append-only files, who owns what is flagged. Permission bits of the file and of the
/// directories on the way are the caller's business, as the kernel checks them for a FUSE mount with
/// `default_permissions`.
///
/// A file without a name stays while it has references ([`Self::add_reference`]). A number that came out of a directory
/// may stand for another file as soon as that file has lost its last name, unless it is referenced.
///
/// What every implementation passes is the crate `xfskit-conformance` of this project.
pub trait Volume: Send + Sync {
    /// The root directory.
    fn root(&self) -> InodeNumber;

    /// What the filesystem can hold and do.
    fn limits(&self) -> Limits;

    /// The filesystem in figures.
    ///
    /// # Errors
    /// `Io`.
    fn statfs(&self) -> Result<FsStat>;

    /// The label; empty if there is none.
    fn label(&self) -> Vec<u8>;

    /// Sets the label, durably; an empty one takes it away.
    ///
    /// # Errors
    /// `Invalid` for one that is too long or has other bytes than a label may have; `ReadOnly`, `Io`.
    fn set_label(&self, label: &[u8]) -> Result<()>;

    /// Makes everything durable that was done before the call.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Shutdown`.
    fn sync(&self) -> Result<()>;

    /// As [`Self::sync`], and until the next change who reads the device has nothing to recover, if that can be had.
    ///
    /// # Errors
    /// As [`Self::sync`].
    fn quiesce(&mut self) -> Result<()> {
        self.sync()
    }

    /// Gives free space within a range of the device, in bytes, back to the host, in pieces of at least `min_bytes`;
    /// returns the bytes.
    ///
    /// # Errors
    /// `NotSupported`; `Invalid` for a range without a whole block; `ReadOnly`, `Corrupt`, `Io`.
    fn trim_within(&self, bytes: Range<u64>, min_bytes: u64) -> Result<u64> {
        let _ = (bytes, min_bytes);
        Err(Error::NotSupported("free space cannot be given back"))
    }

    /// Why the filesystem refuses everything, if an earlier error shut it down.
    fn shutdown_reason(&self) -> Option<String>;

    /// How many requests the device takes well at the same time; 1 for one that answers at once.
    fn queue_depth(&self) -> usize {
        1
    }

    /// Closes the filesystem.
    ///
    /// # Errors
    /// `Io`, `Shutdown`: what was synced is on the device, and the journal is not clean.
    fn unmount(self: Box<Self>) -> Result<()>;

    /// What is known of the inode that a name leads to; a symbolic link is not followed. `..` of the root is the root.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`, `Stale`, `Corrupt`, `Io`.
    fn lookup(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat>;

    /// As [`Self::lookup`], with one reference more to the inode ([`Self::drop_references`] gives it back).
    ///
    /// # Errors
    /// As [`Self::lookup`].
    fn lookup_reference(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat>;

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    fn stat(&self, inode: InodeNumber) -> Result<Stat>;

    /// Whether a number names an inode in use.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    fn is_in_use(&self, inode: InodeNumber) -> Result<bool>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for another type of file; `Stale`, `Corrupt`, `Io`.
    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>>;

    /// Shows the entries of a directory, `.` and `..` among them, from a cookie on (0: the first), until `show` breaks.
    /// An entry that is there all the time is shown once; one that comes or goes meanwhile may be shown or not. `show`
    /// must not call the volume: the directory may be locked meanwhile.
    ///
    /// # Errors
    /// `NotADirectory`, `Stale`, `Corrupt`, `Io`.
    fn read_dir(
        &self,
        dir: InodeNumber,
        cookie: u64,
        show: &mut dyn FnMut(DirEntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// The first byte of the kind at or behind `offset`. The end of the file is a hole.
    ///
    /// # Errors
    /// `NoMoreData` at the end of the file or behind it, and for data where only a hole follows; `IsADirectory`,
    /// `Invalid` for what has no contents; `Stale`, `Corrupt`, `Io`.
    fn seek(&self, inode: InodeNumber, offset: u64, what: Seek) -> Result<u64>;

    /// As [`Self::list_dir`], past blocks of the directory that cannot be used: what is left, and what is lost.
    ///
    /// # Errors
    /// `NotADirectory`; `Corrupt` and `Io` where nothing can be listed.
    fn list_what_is_left(&self, dir: InodeNumber) -> Result<(Vec<DirEntry>, Option<LostNames>)> {
        Ok((self.list_dir(dir)?, None))
    }

    /// Whether looking at an inode needs no request to the device.
    fn is_cached(&self, inode: InodeNumber) -> bool {
        let _ = inode;
        true
    }

    /// Says what is asked for next, for a device that takes several requests at once. What cannot be read is an error
    /// only for the call that asks for it.
    fn read_ahead(&self, inodes: &[InodeNumber], what: ReadAhead) {
        let _ = (inodes, what);
    }

    /// Adds a reference, which keeps an inode from being freed.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    fn add_reference(&self, inode: InodeNumber) -> Result<()>;

    /// Drops references; the last one of an inode without a name frees it.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `Shutdown` from freeing.
    fn drop_references(&self, inode: InodeNumber, count: u64) -> Result<()>;

    /// As [`Self::drop_references`], but an inode may be freed later, together with others: by
    /// [`Self::free_inactive`], or when its space is needed.
    ///
    /// # Errors
    /// As [`Self::drop_references`].
    fn forget(&self, inode: InodeNumber, count: u64) -> Result<()> {
        self.drop_references(inode, count)
    }

    /// Frees what [`Self::forget`] left.
    ///
    /// # Errors
    /// As [`Self::drop_references`].
    fn free_inactive(&self) -> Result<()> {
        Ok(())
    }

    /// As [`Self::free_inactive`], and tries again what could not be freed before: space is needed.
    ///
    /// # Errors
    /// As [`Self::drop_references`].
    fn reclaim(&self) -> Result<()> {
        self.free_inactive()
    }

    /// Makes a file, directory, device node, pipe, socket or symbolic link.
    ///
    /// # Errors
    /// `Exists`, `NotADirectory`, `Invalid` for a link without a target, a device number that there is no room for or
    /// of what is no device node, and permissions of more than twelve bits; `NoSpace`, `TooManyLinks`, `NameTooLong`,
    /// `TargetTooLong`, `NotFound` in a removed directory, `NotPermitted` in an immutable one, `ReadOnly`.
    fn create(&self, dir: InodeNumber, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat>;

    /// Makes a file without a name, with one reference.
    ///
    /// # Errors
    /// As [`Self::create`].
    fn tmpfile(&self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<Stat>;

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `Exists`, `NotADirectory`, `NotPermitted` for a directory and for what is immutable, `TooManyLinks`,
    /// `NameTooLong`, `NoSpace`, `CrossesProjects`, `Stale`, `ReadOnly`.
    fn link(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<Stat>;

    /// Takes a name away from what is no directory.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `NotADirectory`, `NotPermitted`, `NameTooLong`, `ReadOnly`.
    fn unlink(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, `Invalid` for `.`, `NotPermitted`, `NameTooLong`, `ReadOnly`.
    fn rmdir(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()>;

    /// Renames. What has the new name is replaced, unless the flags say otherwise.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `IsADirectory`, `NotADirectory`, `Invalid` for a directory that would come
    /// below itself, `NotPermitted`, `NoSpace`, `CrossesProjects`, `NameTooLong`, `ReadOnly`.
    fn rename(
        &self,
        dir: InodeNumber,
        name: &[u8],
        new_dir: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()>;

    /// Whether [`Self::make_files`] can make a file.
    fn is_small(&self, file: &WholeFile<'_>) -> bool;

    /// Makes small regular files at once, the first of them at least; returns those that it made, in their order.
    /// Nothing is made when there is an error.
    ///
    /// # Errors
    /// As [`Self::create`]; `Invalid` for a file that is not [small](Self::is_small).
    fn make_files(&self, dir: InodeNumber, files: &[WholeFile<'_>]) -> Result<Vec<Stat>>;

    /// Gives an inode one more name, which replaces a file of that name in one step.
    ///
    /// # Errors
    /// As [`Self::link`]; `IsADirectory` where the name is a directory's.
    fn link_over(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<()>;

    /// Whether [`Self::link_over`] of this caller may replace the name, without a change.
    ///
    /// # Errors
    /// As [`Self::link_over`].
    fn check_replaceable(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()>;

    /// Changes attributes of an inode.
    ///
    /// # Errors
    /// `Invalid` for a time with a whole second of nanoseconds or more and for the owner 2³² − 1; `NotPermitted`,
    /// `NoSpace`, `TooLarge`, `Stale`, `ReadOnly`, `Io`.
    fn set_attr(&self, inode: InodeNumber, change: &SetAttr, caller: &Caller) -> Result<Stat>;

    /// Reads the value of an attribute into a buffer, which is emptied first.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for a name space that there is not, `Invalid`, `AttributeNameTooLong`, `Stale`,
    /// `Corrupt`, `Io`.
    fn get_xattr_into(&self, inode: InodeNumber, name: &[u8], value: &mut Vec<u8>) -> Result<()>;

    /// Reads the names of all attributes into a buffer, which is emptied first; each ends with a zero byte.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    fn list_xattrs_into(&self, inode: InodeNumber, names: &mut Vec<u8>) -> Result<()>;

    /// As [`Self::list_xattrs_into`], for a caller that takes no more than `most_bytes`.
    ///
    /// # Errors
    /// `TooLarge` for a longer list; as [`Self::list_xattrs_into`].
    fn list_xattrs_within(&self, inode: InodeNumber, most_bytes: usize) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        self.list_xattrs_into(inode, &mut names)?;
        if names.len() > most_bytes { Err(Error::TooLarge) } else { Ok(names) }
    }

    /// Changes attributes, all of them or none.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `ValueTooLong`, `AttributeNameTooLong`, `NotSupported`, `Invalid`, `NoSpace`,
    /// `NotPermitted`, `Stale`, `ReadOnly`, `Io`.
    fn change_xattrs(&self, inode: InodeNumber, changes: &[XattrChange], mode: SetMode, caller: &Caller) -> Result<()>;

    /// Sets one attribute.
    ///
    /// # Errors
    /// As [`Self::change_xattrs`].
    fn set_xattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], mode: SetMode, caller: &Caller) -> Result<()>;

    /// Removes one attribute.
    ///
    /// # Errors
    /// As [`Self::change_xattrs`]; `NoAttribute`.
    fn remove_xattr(&self, inode: InodeNumber, name: &[u8], caller: &Caller) -> Result<()>;

    /// The flags, the project and the hints of an inode.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    fn flags(&self, inode: InodeNumber) -> Result<Flags>;

    /// Sets the flags, the project and the hints of an inode.
    ///
    /// # Errors
    /// `NotPermitted`, `Invalid`, `ReadOnly`, `Stale`, `Corrupt`, `Io`.
    fn set_flags(&self, inode: InodeNumber, wanted: &Flags, caller: &Caller) -> Result<()>;

    /// Takes the set-user-id and set-group-id bits and the capabilities from a file that `writer` (`None`: one without
    /// rights) writes. Whether it had any.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`, `NoSpace`.
    fn drop_privileges(&self, inode: InodeNumber, writer: Option<&Caller>) -> Result<bool>;

    /// Reads; short only at the end of the file.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` for what has no contents; `Stale`, `Corrupt`, `Io`.
    fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes the first bytes of `data`, one at least, and says how many.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `IsADirectory`, `Invalid`, `NotPermitted`, `Stale`, `ReadOnly`, `Io`: nothing is written.
    fn write_some_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize>;

    /// Writes behind the end; returns where.
    ///
    /// # Errors
    /// As [`Self::write_some_at`].
    fn append(&self, inode: InodeNumber, data: &[u8]) -> Result<u64>;

    /// Cuts a file, or lengthens it by a hole.
    ///
    /// # Errors
    /// As [`Self::write_some_at`].
    fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()>;

    /// Gives a range of a file space, or takes it away.
    ///
    /// # Errors
    /// `NotSupported` for what [`Limits`] excludes, `Invalid` for a range that is empty or, for collapsing and
    /// inserting, not of whole blocks; as [`Self::write_some_at`].
    fn fallocate(&self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()>;

    /// Copies a range from one file to another, which may be the same; short where the source ends. Returns the bytes
    /// copied.
    ///
    /// # Errors
    /// As [`Self::read_at`] and [`Self::write_some_at`].
    fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64>;

    /// As [`Self::copy_range`], by sharing the blocks: the whole range, or nothing.
    ///
    /// # Errors
    /// `NotSupported` where [`Limits::reflink`] is false; `Invalid` for ranges that are not of whole blocks.
    fn clone_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<()>;

    /// The file is closed: space that was set aside for its growth may be given back.
    fn finish_writing(&self, inode: InodeNumber) {
        let _ = inode;
    }

    /// The first half of an fsync: writes back what is dirty of an inode, and returns what is to be waited for. A
    /// number that names no inode in use is not an error: there is nothing to sync.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Shutdown`.
    fn begin_fsync(&self, inode: InodeNumber, what: SyncKind) -> Result<SyncPoint>;

    /// The second half: waits until everything is durable that was begun for a point.
    ///
    /// # Errors
    /// `Io`, `Shutdown`; `Invalid` for a point of another volume, or of two.
    fn await_durable(&self, point: SyncPoint) -> Result<()>;

    /// Makes everything done to an inode durable: contents, names, attributes.
    ///
    /// # Errors
    /// As [`Self::begin_fsync`].
    fn fsync(&self, inode: InodeNumber) -> Result<()> {
        self.await_durable(self.begin_fsync(inode, SyncKind::Full)?)
    }

    /// As [`Self::fsync`], but times that have changed alone may wait.
    ///
    /// # Errors
    /// As [`Self::begin_fsync`].
    fn fdatasync(&self, inode: InodeNumber) -> Result<()> {
        self.await_durable(self.begin_fsync(inode, SyncKind::Data)?)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Self::create`].
    fn symlink(&self, dir: InodeNumber, name: &[u8], target: &[u8], caller: &Caller) -> Result<Stat> {
        self.create(dir, name, &NewFile::symlink(target), caller)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// As [`Self::write_some_at`]; a part may have been written.
    fn write_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let end = data.len().min(done + WRITE_BYTES);
            done += self.write_some_at(inode, offset + done as u64, &data[done..end])?;
        }
        Ok(())
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// As [`Self::get_xattr_into`].
    fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        self.get_xattr_into(inode, name, &mut value)?;
        Ok(value)
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// As [`Self::list_xattrs_into`].
    fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.list_xattrs_into(inode, &mut names)?;
        Ok(names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// All entries of a directory but `.` and `..`.
    ///
    /// # Errors
    /// As [`Self::read_dir`].
    fn list_dir(&self, dir: InodeNumber) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        self.read_dir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry.into());
            }
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// What is known of the inode at `path`, from the root. Symbolic links on the way are followed, one at the end as
    /// `last` says. A path that ends in a slash, or in `/.`, is that of a directory.
    ///
    /// # Errors
    /// As [`Self::lookup`]; `NotADirectory` for another file's path with a slash; `TooManySymlinks`.
    fn resolve(&self, path: &[u8], last: LastLink) -> Result<Stat> {
        let mut is_dirs = names_directory(path);
        let mut at = self.stat(self.root())?;
        let mut names = components(path);
        let mut dirs = vec![at.inode];
        let mut followed = 0;
        while let Some(name) = names.pop() {
            let dir = *dirs.last().expect("the root stays");
            let next = self.lookup(dir, &name)?;
            let is_kept = names.is_empty() && last == LastLink::Keep && !is_dirs;
            if next.file_type.is_symlink() && !is_kept {
                followed += 1;
                if followed > MAX_LINKS_FOLLOWED {
                    return Err(Error::TooManySymlinks);
                }
                let target = self.read_link(next.inode)?;
                is_dirs |= names.is_empty() && names_directory(&target);
                if target.starts_with(b"/") {
                    dirs.truncate(1);
                }
                names.extend(components(&target));
                at = self.stat(*dirs.last().expect("the root stays"))?;
                continue;
            }
            if !names.is_empty() && !next.file_type.is_dir() {
                return Err(Error::NotADirectory);
            }
            dirs.push(next.inode);
            at = next;
        }
        if is_dirs && !at.file_type.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok(at)
    }
}

/// The names of a path, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).rev().map(<[u8]>::to_vec).collect()
}
