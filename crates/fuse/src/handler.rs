//! The requests, one method each.

use crate::attributes::{answer_sized, set_mode, without_trusted};
use crate::caller::{owner, with_groups};
use crate::contents::{self, TimeKeeper};
use crate::convert::{FOREVER, attr, generation, no_attr, set_time, timestamp};
use crate::flags;
use crate::options::{WriteCache, negotiate};
use crate::privileges;
use crate::readdir;
use crate::seeks::Seeks;
use crate::server::Server;
use crate::virtual_xattrs::{self, is_virtual};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Caller, Error, NewFile, Permissions, RenameFlags, Result, SetAttr, Stat, Volume};

/// The mode bits of a file whose set-group-ID bit stays only for members of its group: set-group-ID, and executable by
/// the group.
const GROUP_PRIVILEGE: u32 = 0o2010;
/// The protocol version of Linux 6.1. That is the first kernel that itself decides for all filesystems whether new
/// files keep the set-group-ID bit, and whose cache updates the times of a file on fallocate.
const LINUX_6_1: fuser::Version = fuser::Version(7, 37);

/// Answers the kernel's requests.
pub(crate) struct Handler {
    server: Arc<Server>,
    seeks: Seeks,
    cache: WriteCache,
    /// The kernel clears the set-group-ID bit of new files whose creator is not in the group.
    kernel_decides_groups: bool,
    /// Which side sets the times of a file on fallocate.
    allocation_keeper: TimeKeeper,
    /// For files, and for directories: the kernel stops sending open requests once one is answered with ENOSYS.
    silent_opens: (bool, bool),
}

impl Handler {
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn new(server: Arc<Server>, cache: WriteCache) -> std::io::Result<Self> {
        let seeks = Seeks::start(Arc::clone(&server))?;
        Ok(Self {
            server,
            seeks,
            cache,
            kernel_decides_groups: false,
            allocation_keeper: TimeKeeper::Engine,
            silent_opens: (false, false),
        })
    }

    /// Replies with an entry, which the kernel caches until it sends a forget.
    fn entry(&self, reply: ReplyEntry, find: impl FnOnce(&Volume) -> Result<Stat>) {
        match self.server.with(|fs| counted(fs, find(fs)?)) {
            Ok(stat) => reply.entry(&FOREVER, &attr(&stat), generation(&stat)),
            Err(error) => reply.error(error),
        }
    }

    /// Makes the kernel forget an ACL that was changed under its on-disk name.
    fn forget_acl(&self, node: INodeNo, name: &OsStr) {
        if name.as_bytes().starts_with(b"trusted.SGI_ACL_") {
            self.server.forget_attributes(node);
        }
    }

    /// The caller that creates a file. If the kernel decides about the set-group-ID bit, it has already done so.
    fn creator(&self, fs: &Volume, request: &Request, dir: InodeNumber, mode: u32) -> Result<Caller> {
        if mode & GROUP_PRIVILEGE != GROUP_PRIVILEGE {
            return Ok(owner(request));
        }
        if self.kernel_decides_groups {
            Ok(Caller { groups: vec![fs.stat(dir)?.gid], ..owner(request) })
        } else {
            Ok(with_groups(request))
        }
    }

    /// Which side sets the times of a file that is written.
    fn keeper(&self, flags: WriteFlags) -> TimeKeeper {
        let is_late = self.cache == WriteCache::Back && flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if is_late { TimeKeeper::Kernel } else { TimeKeeper::Engine }
    }

    fn empty(&self, reply: ReplyEmpty, action: impl FnOnce(&Volume) -> Result<()>) {
        match self.server.with(action) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn create_file(&self, request: &Request, parent: INodeNo, name: &OsStr, new: &NewFile<'_>) -> Result<Stat, Errno> {
        let dir = self.server.inode(parent);
        self.server.with(|fs| {
            let caller = self.creator(fs, request, dir, new.mode().into())?;
            counted(fs, fs.create(dir, name.as_bytes(), new, &caller)?)
        })
    }
}

/// Adds one reference of the kernel to an inode.
fn counted(fs: &Volume, stat: Stat) -> Result<Stat> {
    fs.add_reference(stat.inode)?;
    Ok(stat)
}

impl fuser::Filesystem for Handler {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let offered = negotiate(config, self.cache);
        self.kernel_decides_groups = config.kernel_abi() >= LINUX_6_1;
        let keeps_times = self.kernel_decides_groups && offered.contains(InitFlags::FUSE_WRITEBACK_CACHE);
        self.allocation_keeper = if keeps_times { TimeKeeper::Kernel } else { TimeKeeper::Engine };
        self.silent_opens =
            (offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT), offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT));
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let dir = self.server.inode(parent);
        let found = self.server.with(|fs| {
            let number = match name.as_bytes() {
                // An NFS client has a handle of the inode, which may have been freed.
                b"." if !fs.is_in_use(dir)? => return Err(Error::Stale(dir.0)),
                b"." => dir,
                b".." if !fs.is_in_use(dir)? => return Err(Error::Stale(dir.0)),
                name => fs.lookup_number(dir, name)?,
            };
            // The kernel never forgets the root, so the engine counts no references to it.
            if number == self.server.root() { fs.stat(number) } else { counted(fs, fs.stat(number)?) }
        });
        match found {
            Ok(stat) if stat.inode == self.server.root() => {
                // The entry has the root's FUSE number, and so have the attributes in it. The kernel must ask for the
                // attributes again, since they must show the inode number.
                reply.entry(&Duration::ZERO, &FileAttr { ino: INodeNo::ROOT, ..attr(&stat) }, Generation(0));
            }
            Ok(stat) => reply.entry(&FOREVER, &attr(&stat), generation(&stat)),
            // An entry without an inode: the kernel caches that the name does not exist.
            Err(error) if error.code() == Errno::ENOENT.code() => {
                reply.entry(&FOREVER, &no_attr(FileType::RegularFile), Generation(0));
            }
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        let number = self.server.inode(node);
        if number == self.server.root() {
            return;
        }
        self.server.forgotten(node);
        // A forget has no reply that could carry an error; the conversion reports it.
        let _ = self.server.with(|fs| fs.drop_references(number, count));
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        // The kernel asks with an open file before it takes more data into its cache. That data would be refused as
        // well, so the program gets the error now.
        if handle.is_some()
            && let Some(refusal) = self.server.take_refusal(node)
        {
            return reply.error(refusal);
        }
        let number = self.server.inode(node);
        match self.server.with(|fs| fs.stat(number)) {
            Ok(stat) => reply.attr(&FOREVER, &attr(&stat)),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let number = self.server.inode(node);
        let change = SetAttr {
            permissions: mode.map(|mode| Permissions::new(mode as u16)),
            uid,
            gid,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(timestamp),
            size,
        };
        // The kernel has checked what the caller may do, down to the bits of the mode that it may set.
        let changed = self.server.with(|fs| {
            let stat = fs.set_attr(number, &change, &Caller::root())?;
            // The bits are cleared after the change: if it is refused, as on an append-only file, they stay.
            let cuts = change.size.is_some() && change.permissions.is_none();
            if cuts && privileges::drop_for(fs, number, request)? { fs.stat(number) } else { Ok(stat) }
        });
        match changed {
            Ok(stat) => reply.attr(&FOREVER, &attr(&stat)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let number = self.server.inode(node);
        match self.server.with(|fs| fs.read_link(number)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(new) = NewFile::of_mode(mode as u16) else { return reply.error(Errno::EINVAL) };
        let new = NewFile { umask: umask as u16, device, ..new };
        match self.create_file(request, parent, name, &new) {
            Ok(stat) => reply.entry(&FOREVER, &attr(&stat), generation(&stat)),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = NewFile { umask: umask as u16, ..NewFile::dir(mode as u16) };
        match self.create_file(request, parent, name, &new) {
            Ok(stat) => reply.entry(&FOREVER, &attr(&stat), generation(&stat)),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let Some(new) = NewFile::of_mode(mode as u16) else { return reply.error(Errno::EINVAL) };
        let new = NewFile { umask: umask as u16, ..new };
        match self.create_file(request, parent, name, &new) {
            Ok(stat) => {
                reply.created(&FOREVER, &attr(&stat), generation(&stat), FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let dir = self.server.inode(parent);
        let caller = owner(request);
        self.entry(reply, |fs| fs.symlink(dir, name.as_bytes(), target.as_os_str().as_bytes(), &caller));
    }

    // The kernel has checked sticky directories, with the caller's capabilities, which the server does not know.
    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.server.inode(parent);
        self.empty(reply, |fs| fs.unlink(dir, name.as_bytes(), &Caller::root()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.server.inode(parent);
        self.empty(reply, |fs| fs.rmdir(dir, name.as_bytes(), &Caller::root()));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - fuser::RenameFlags::all()).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
            whiteout: flags.contains(fuser::RenameFlags::RENAME_WHITEOUT),
        };
        let (dir, new_dir) = (self.server.inode(parent), self.server.inode(new_parent));
        // A whiteout belongs to the caller.
        let caller = if flags.whiteout { owner(request) } else { Caller::root() };
        self.empty(reply, |fs| fs.rename(dir, name.as_bytes(), new_dir, new_name.as_bytes(), flags, &caller));
    }

    fn link(&self, _: &Request, node: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let (number, dir) = (self.server.inode(node), self.server.inode(new_parent));
        self.entry(reply, |fs| fs.link(dir, new_name.as_bytes(), number));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.silent_opens.0 {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let number = self.server.inode(node);
        if !contents::is_direct(flags) {
            self.server.note_cached(node);
        }
        match self.server.with(|fs| contents::read(fs, number, offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let number = self.server.inode(node);
        let privileged = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let keeper = self.keeper(write_flags);
        let written = self.server.with(|fs| {
            if privileged {
                // The writer of data that the kernel writes back from its cache later is not known.
                let writer = (keeper == TimeKeeper::Engine).then(|| with_groups(request));
                fs.drop_privileges(number, writer.as_ref())?;
            }
            contents::write(fs, number, offset, data, keeper, flags)
        });
        if privileged {
            self.server.forget_attributes(node);
        }
        let is_cached_write = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) || !contents::is_direct(flags);
        if is_cached_write {
            self.server.note_cached(node);
        } else if self.server.is_cached(node) {
            return self.seeks.answer_after_forgetting(node, offset, data.len(), written, reply);
        }
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => {
                // The program that wrote the data has continued: its next write must get the error.
                if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) && self.server.refuse(node, error) {
                    self.seeks.forget(node);
                }
                reply.error(error);
            }
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let number = self.server.inode(node);
        self.empty(reply, |fs| {
            let mode = contents::fallocate_mode(mode)?;
            match self.allocation_keeper {
                TimeKeeper::Engine => fs.fallocate(number, offset, length, mode)?,
                TimeKeeper::Kernel => fs.fallocate_keeping_times(number, offset, length, mode)?,
            }
            // The bits are cleared after the change: if it is refused, as a hole in an append-only file, they stay.
            if privileges::drop_for(fs, number, request)? {
                self.server.forget_attributes(node);
            }
            Ok(())
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        if !flags::is_known(command) {
            return reply.error(Errno::ENOTTY);
        }
        let number = self.server.inode(node);
        match self.server.with(|fs| flags::ioctl(fs, number, command, data, request)) {
            Ok(answer) => {
                // The ioctl changes ctime, and another project clears bits of the mode.
                self.server.forget_attributes(node);
                reply.ioctl(0, &answer);
            }
            Err(error) => reply.error(error),
        }
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.seeks.ask(node, offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to_node: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (self.server.inode(from), self.server.inode(to_node));
        let most = length.min(contents::MAX_COPY_BYTES);
        let copied = self.server.with(|fs| {
            let count = match self.cache {
                WriteCache::Through => fs.copy_range(from, from_offset, to, to_offset, most)?,
                // The kernel sets the times here. It does not send times that it already has, as after two writes in
                // one tick of its clock, so the engine must not set others.
                WriteCache::Back => fs.copy_range_keeping_times(from, from_offset, to, to_offset, most)?,
            };
            // After the copy, as with fallocate.
            if privileges::drop_for(fs, to, request)? {
                self.server.forget_attributes(to_node);
            }
            Ok(count)
        });
        match copied {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a file writes nothing. After this reply the kernel sends no more flush requests.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let number = self.server.inode(node);
        let done = self.server.with(|fs| if datasync { fs.fdatasync(number) } else { fs.fsync(number) });
        // The kernel asks for the blocks of a file again when it is closed, but not after writing it back.
        self.server.forget_attributes(node);
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.silent_opens.1 {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let dir = self.server.inode(node);
        match self.server.with(|fs| readdir::plain(fs, dir, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let dir = self.server.inode(node);
        match self.server.with(|fs| readdir::plus(fs, dir, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let number = self.server.inode(node);
        self.empty(reply, |fs| fs.fsync(number));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.server.with(|fs| Ok(fs.statfs())) {
            Ok(s) => reply.statfs(
                s.blocks,
                s.free_blocks,
                s.free_blocks,
                s.inodes,
                s.free_inodes,
                s.block_bytes,
                255,
                s.block_bytes,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = set_mode(flags) else { return reply.error(Errno::EINVAL) };
        let number = self.server.inode(node);
        if is_virtual(number, self.server.root(), name) {
            return self.empty(reply, |fs| virtual_xattrs::set(&self.server, fs, number, name, value, request.uid()));
        }
        let caller = if name.as_bytes().starts_with(b"system.") { with_groups(request) } else { owner(request) };
        self.empty(reply, |fs| {
            fs.set_xattr(number, name.as_bytes(), value, mode, &caller)?;
            self.forget_acl(node, name);
            Ok(())
        });
    }

    fn getxattr(&self, request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let number = self.server.inode(node);
        let value = self.server.with(|fs| {
            if is_virtual(number, self.server.root(), name) {
                virtual_xattrs::get(&self.server, fs, number, name, request.uid())
            } else {
                fs.get_xattr(number, name.as_bytes())
            }
        });
        answer_sized(reply, size, value);
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let number = self.server.inode(node);
        // The kernel hides trusted attributes by refusing to read them; hiding their names is the server's task.
        let privileged = request.uid() == 0;
        let names = self.server.with(|fs| {
            let mut names = Vec::new();
            fs.list_xattr_into(number, &mut names)?;
            Ok(if privileged { names } else { without_trusted(&names) })
        });
        answer_sized(reply, size, names);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let number = self.server.inode(node);
        if is_virtual(number, self.server.root(), name) {
            return reply.error(Errno::EPERM);
        }
        let caller = owner(request);
        self.empty(reply, |fs| {
            fs.remove_xattr(number, name.as_bytes(), &caller)?;
            self.forget_acl(node, name);
            Ok(())
        });
    }
}
