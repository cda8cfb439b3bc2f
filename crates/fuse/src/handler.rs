//! The requests, one method each.

use crate::attributes::{set_mode, setter, without_trusted};
use crate::cached::Drop;
use crate::caller::{owner, with_groups};
use crate::contents;
use crate::convert::{absent, attr, caller, entry, entry_of_root, new_file, set_attr, statx};
use crate::flags;
use crate::ioctls;
use crate::options::{Opens, Options, WriteCache, features};
use crate::privileges;
use crate::readdir;
use crate::server::{Servable, Server};
use crate::sync_group::SyncGroup;
use crate::virtual_xattrs::{self, is_virtual};
use std::sync::Arc;
use std::time::Duration;
use xfskit_fuse_session::abi::{RawStatFs, RawStatx};
use xfskit_fuse_session::request::{
    Copy, Ioctl, NewNode, Operation, Read, Request, Requester, SetAttr, SetXattr, Write,
};
use xfskit_fuse_session::{
    Answer, Attr, Entry, Errno, Features, Filesystem, Listing, ListingPlus, OpenFlags, Opened, QUESTION, ReplyLater,
    Then, Version, WithOthers, Work, WriteFlags, question_in,
};
use xfskit_vfs::mode::MODE_DIR;
use xfskit_vfs::{Caller, Error, Handle, Mtime, NewFile, RenameFlags, Result, Stat, SyncKind, SyncPoint};

/// The mode bits of a file whose set-group-ID bit stays only for members of its group: set-group-ID, and executable by
/// the group.
const GROUP_PRIVILEGE: u32 = 0o2010;
/// The protocol version of Linux 6.1. That is the first kernel that itself decides for all filesystems whether new
/// files keep the set-group-ID bit, and whose cache updates the times of a file on fallocate.
const LINUX_6_1: Version = Version { major: 7, minor: 37 };
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
/// The longest list of attributes that the kernel takes.
const MAX_LIST_BYTES: usize = 64 << 10;
/// Bytes that a thread that answers requests frees; more are freed by one that may wait.
const MAX_FREED_BYTES: u64 = 64 << 20;

/// Answers the kernel's requests.
pub(crate) struct Handler<V> {
    server: Arc<Server<V>>,
    cache: WriteCache,
    opens: Opens,
    /// The kernel clears the set-group-ID bit of new files whose creator is not in the group.
    kernel_decides_groups: bool,
    /// Who sets the times of a file on fallocate.
    allocation_mtime: Mtime,
    /// What the kernel offers.
    offered: Features,
    /// Fsyncs that wait together.
    syncs: Arc<SyncGroup>,
}

impl<V: Servable> Handler<V> {
    pub(crate) fn new(server: Arc<Server<V>>, options: &Options) -> Self {
        let (cache, opens) = (options.cache, options.opens);
        let allocation_mtime = Mtime::Update;
        let offered = Features::empty();
        Self { server, cache, opens, kernel_decides_groups: false, allocation_mtime, offered, syncs: Arc::default() }
    }

    fn with<T>(&self, action: impl FnOnce(&V) -> Result<T>) -> Answer<T> {
        self.server.with(action)
    }

    /// An entry of an inode to which the kernel now has one reference more.
    fn entry(&self, grab: impl FnOnce(&V) -> Result<Stat>) -> Answer<Entry> {
        self.with(grab).map(|stat| entry(self.told(&stat)))
    }

    /// Attributes of which the kernel is told.
    fn told<'s>(&self, stat: &'s Stat) -> &'s Stat {
        self.server.cached.note_answer(stat.inode.0, stat.blocks);
        stat
    }

    /// Makes the kernel forget an ACL that was changed under its on-disk name.
    fn forget_acl(&self, fs: &V, node: u64, name: &[u8]) {
        if fs.is_acl_alias(name) {
            self.server.forget_attributes(node);
        }
    }

    /// The caller that creates a file. If the kernel decides about the set-group-ID bit, it has already done so.
    fn creator(&self, dir: &impl Handle, requester: &Requester, mode: u32) -> Result<Caller> {
        if mode & GROUP_PRIVILEGE != GROUP_PRIVILEGE {
            return Ok(owner(requester));
        }
        match requester.group_of_dir {
            Some(group) => Ok(caller(requester, vec![group])),
            None if self.kernel_decides_groups => Ok(caller(requester, vec![dir.stat()?.gid])),
            None => Ok(with_groups(requester)),
        }
    }

    /// Whether the kernel opens files without asking.
    fn are_opens_silent(&self) -> bool {
        self.opens == Opens::Silent && self.offered.contains(Features::NO_OPEN_SUPPORT)
    }

    fn make(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<Entry> {
        let file = new_file(new)?;
        self.make_in(dir, new.name, &file, |dir| self.creator(dir, requester, new.mode))
    }

    fn make_in(
        &self,
        dir: u64,
        name: &[u8],
        new: &NewFile<'_>,
        creator: impl FnOnce(&V::Inode<'_>) -> Result<Caller>,
    ) -> Answer<Entry> {
        let dir = self.server.inode(dir);
        self.entry(|fs| {
            let dir = fs.inode(dir)?;
            dir.create(name, new, &creator(&dir)?)
        })
    }

    /// Writes back what is dirty of an inode; `None`, and nothing is done, unless that `is_wanted`. The kernel asks for
    /// the blocks of a file again when it is closed, but not after writing it back; so it is told to, if they have
    /// changed. One that asks also looks for capabilities before the next write, which makes two requests more.
    fn begin_fsync(
        &self,
        node: u64,
        data_only: bool,
        is_wanted: impl FnOnce(&V::Inode<'_>) -> bool,
    ) -> Answer<Option<SyncPoint>> {
        let number = self.server.inode(node);
        let what = if data_only { SyncKind::Data } else { SyncKind::Full };
        self.with(|fs| {
            let begun = match fs.inode(number) {
                Ok(inode) if !is_wanted(&inode) => return Ok(None),
                Ok(inode) => inode.begin_fsync(what).map(|begun| (begun.point, Some(begun.blocks))),
                // Where there is no inode nothing of it is dirty; contents may have to become durable all the same.
                Err(_) => fs.begin_fsync(number, what).map(|point| (point, None)),
            };
            match &begun {
                Ok((_, Some(blocks))) if !self.server.cached.note_blocks(node, *blocks) => {}
                Ok(_) | Err(_) => self.server.forget_attributes(node),
            }
            begun.map(|(point, _)| Some(point))
        })
    }

    /// Whether each write to a file is made durable, by whatever program.
    fn is_synchronous(&self, node: u64) -> bool {
        let number = self.server.inode(node);
        self.with(|fs| fs.is_synchronous(number)).unwrap_or(false)
    }

    /// Who sets the times of a file that is written: the kernel sends them after what was in its cache.
    fn mtime_of(&self, flags: WriteFlags) -> Mtime {
        let is_late = self.cache == WriteCache::Back && flags.contains(WriteFlags::CACHE);
        if is_late { Mtime::Keep } else { Mtime::Update }
    }
}

fn opened(flags: OpenFlags) -> Opened {
    Opened { handle: 0, flags }
}

impl<V: Servable> Filesystem for Handler<V> {
    fn init(&mut self, offered: Features, version: Version) -> Features {
        self.offered = offered;
        self.kernel_decides_groups = version >= LINUX_6_1;
        let wanted = features(offered, self.cache, self.opens);
        let keeps_times = self.kernel_decides_groups && wanted.contains(Features::WRITEBACK_CACHE);
        self.allocation_mtime = if keeps_times { Mtime::Keep } else { Mtime::Update };
        wanted
    }

    fn may_wait(&self, request: &Request<'_>) -> bool {
        match request.operation {
            // For the device.
            Operation::Fsync { .. } | Operation::FsyncDir { .. } | Operation::SyncFs => true,
            // Data that programs have written must not be refused because the file is protected now.
            Operation::Ioctl(Ioctl { command, data, .. }) => {
                command == QUESTION || ioctls::may_wait(command) || flags::protects(command, data)
            }
            Operation::Write(write) => {
                let is_asked_for = contents::is_durable(write.open_flags);
                is_asked_for && self.mtime_of(write.flags) == Mtime::Update || self.is_synchronous(request.node)
            }
            // The kernel sends a seek without writing its cached data first, and relies on the answer. So the server
            // makes it write, by requests that other threads answer.
            Operation::Lseek { .. } => true,
            _ => false,
        }
    }

    fn names_lost(&self) -> Option<u64> {
        self.with(|fs| Ok(fs.held_without_name())).ok().flatten()
    }

    fn take_space(&self) {
        // What is not freed now is freed later, and the conversion reports damage.
        let _ = self.with(|fs| fs.reclaim());
    }

    fn lookup(&self, _: &Requester, dir: u64, name: &[u8]) -> Answer<Entry> {
        let (dir, root) = (self.server.inode(dir), self.server.root());
        let found = self.with(|fs| {
            let inode = match name {
                // An NFS client has a handle of the inode, which may have been freed.
                b"." | b".." if !fs.is_in_use(dir)? => return Err(Error::Stale(dir.0)),
                b"." => fs.inode(dir)?,
                name => fs.lookup_inode(dir, name)?,
            };
            // The kernel never forgets the root, so no references to it are counted.
            if inode.number() == root { inode.stat() } else { inode.grab() }
        });
        match found {
            Ok(stat) if stat.inode == root => Ok(entry_of_root(&stat)),
            Ok(stat) => Ok(entry(self.told(&stat))),
            Err(Errno::NOENT) => Ok(absent()),
            Err(error) => Err(error),
        }
    }

    fn forget(&self, node: u64, count: u64) -> Option<Work> {
        let number = self.server.inode(node);
        if number == self.server.root() {
            return None;
        }
        let takes_long = self.with(|fs| Ok(fs.inactivation_cost(number) > MAX_FREED_BYTES));
        let server = Arc::clone(&self.server);
        let forget = move || {
            // A forget has no reply that could carry an error; the conversion reports it.
            let _ = server.with(|fs| fs.forget(number, count));
            server.forgotten(node);
        };
        if takes_long == Ok(true) {
            return Some(Box::new(forget));
        }
        forget();
        None
    }

    fn getattr(&self, node: u64, has_handle: bool) -> Answer<Attr> {
        // The kernel asks with an open file before it takes more data into its cache. That data would be refused as
        // well, so the program gets the error now.
        if has_handle && let Some(refusal) = self.server.take_refusal(node) {
            return Err(refusal);
        }
        let number = self.server.inode(node);
        self.with(|fs| fs.stat(number)).map(|stat| attr(self.told(&stat)))
    }

    fn statx(&self, node: u64) -> Answer<(Duration, RawStatx)> {
        let number = self.server.inode(node);
        self.with(|fs| fs.stat(number)).map(|stat| (attr(self.told(&stat)).valid, statx(&stat)))
    }

    fn setattr(&self, requester: &Requester, node: u64, change: &SetAttr) -> Answer<Attr> {
        let number = self.server.inode(node);
        // The kernel has checked what the caller may do, down to the bits of the mode that it may set.
        let changed = self.with(|fs| {
            let changed = fs.set_attr(number, &set_attr(change), &Caller::root());
            // The bits are cleared after the change: if it is refused, as on an append-only file, they stay.
            if changed.as_ref().is_err_and(privileges::is_refusal) {
                return changed;
            }
            if changed.is_err() {
                // The kernel relies on what it has of a file until it is told.
                self.server.forget_attributes(node);
            }
            let cuts = change.size.is_some() && change.mode.is_none();
            let dropped = match cuts {
                _ if !cuts => Ok(false),
                _ if change.kills_privileges => {
                    fs.inode(number).and_then(|file| privileges::drop_all(&file, requester))
                }
                _ if self.offered.contains(Features::HANDLE_KILLPRIV_V2) => Ok(false),
                _ => fs.inode(number).and_then(|file| privileges::drop_for(&file, requester)),
            };
            let stat = changed?;
            if dropped? { fs.stat(number) } else { Ok(stat) }
        });
        changed.map(|stat| attr(self.told(&stat)))
    }

    fn readlink(&self, node: u64) -> Answer<Vec<u8>> {
        let number = self.server.inode(node);
        self.with(|fs| fs.read_link(number))
    }

    fn symlink(&self, requester: &Requester, dir: u64, name: &[u8], target: &[u8]) -> Answer<Entry> {
        // As symlink(2) says it.
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        self.make_in(dir, name, &NewFile::symlink(target), |_| Ok(owner(requester)))
    }

    fn mknod(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<Entry> {
        self.make(requester, dir, new)
    }

    fn mkdir(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<Entry> {
        self.make(requester, dir, &NewNode { mode: u32::from(MODE_DIR) | new.mode & 0o7777, ..*new })
    }

    /// Where opens need no request, neither does the close of a file that mknod has made; this would cost one.
    fn create(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<(Entry, Opened)> {
        if self.are_opens_silent() {
            return Err(Errno::NOSYS);
        }
        Ok((self.make(requester, dir, new)?, opened(OpenFlags::empty())))
    }

    fn tmpfile(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<(Entry, Opened)> {
        let dir = self.server.inode(dir);
        let file = new_file(new)?;
        let made = self.with(|fs| {
            let dir = fs.inode(dir)?;
            dir.tmpfile(&file, &self.creator(&dir, requester, new.mode)?)
        });
        made.map(|stat| (entry(self.told(&stat)), opened(OpenFlags::empty())))
    }

    // The kernel has checked sticky directories, with the caller's capabilities, which the server does not know.
    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        let dir = self.server.inode(dir);
        self.with(|fs| fs.unlink(dir, name, &Caller::root()))
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        let dir = self.server.inode(dir);
        self.with(|fs| fs.rmdir(dir, name, &Caller::root()))
    }

    fn rename(&self, requester: &Requester, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0 {
            return Err(Errno::INVAL);
        }
        let flags = RenameFlags {
            no_replace: flags & RENAME_NOREPLACE != 0,
            exchange: flags & RENAME_EXCHANGE != 0,
            whiteout: flags & RENAME_WHITEOUT != 0,
        };
        // A whiteout belongs to the caller.
        let caller = if flags.whiteout { owner(requester) } else { Caller::root() };
        let (dir, new_dir) = (self.server.inode(from.0), self.server.inode(to.0));
        self.with(|fs| fs.rename(dir, from.1, new_dir, to.1, flags, &caller))
    }

    // The kernel has checked the caller.
    fn link(&self, node: u64, dir: u64, name: &[u8]) -> Answer<Entry> {
        let (number, dir) = (self.server.inode(node), self.server.inode(dir));
        self.entry(|fs| fs.inode(number)?.link(dir, name, &Caller::root()))
    }

    fn open(&self, node: u64, open_flags: u32) -> Answer<Opened> {
        if self.are_opens_silent() {
            return Err(Errno::NOSYS);
        }
        let number = self.server.inode(node);
        self.with(|fs| flags::verify_open(fs, number, open_flags))?;
        Ok(opened(OpenFlags::KEEP_CACHE))
    }

    fn opendir(&self, _: u64, _: u32) -> Answer<Opened> {
        match self.offered.contains(Features::NO_OPENDIR_SUPPORT) {
            true => Err(Errno::NOSYS),
            false => Ok(opened(OpenFlags::KEEP_CACHE | OpenFlags::CACHE_DIR)),
        }
    }

    fn read(&self, node: u64, read: &Read, out: &mut [u8]) -> Answer<usize> {
        // A page fault reads for the cache, by a file that was opened for direct I/O too.
        if !(read.is_by_program && contents::is_direct(read.open_flags)) {
            self.server.cached.note_contents(node);
        }
        let number = self.server.inode(node);
        self.with(|fs| fs.read_at(number, read.offset, out))
    }

    fn write(&self, requester: &Requester, node: u64, write: &Write<'_>) -> Answer<u32> {
        let number = self.server.inode(node);
        let privileged = write.flags.contains(WriteFlags::KILL_SUIDGID);
        let mtime = self.mtime_of(write.flags);
        if !contents::goes_around_cache(write) {
            // Before it is done: a direct write that comes after it must find it noted.
            self.server.cached.note_contents(node);
        }
        let result = self.with(|fs| {
            let file = fs.inode(number)?;
            if privileged {
                // The writer of data that the kernel writes back from its cache later is not known.
                let writer = (mtime == Mtime::Update).then(|| with_groups(requester));
                // Where it fails, the bits may be off, and the kernel must ask.
                let dropped = file.drop_privileges(writer.as_ref());
                if !matches!(dropped, Ok(false)) {
                    self.server.forget_attributes(node);
                }
                dropped?;
            }
            contents::write(fs, &file, write, mtime)
        });
        result.map(|written| written as u32)
    }

    /// What else a write takes: the kernel's cache must not show what the image does not contain.
    fn after_write(&self, node: u64, write: &Write<'_>, result: Answer<u32>) -> Then {
        let server = || Arc::clone(&self.server);
        let is_late = write.flags.contains(WriteFlags::CACHE);
        if contents::goes_around_cache(write) {
            // The kernel drops the range when such a write begins, but not after an asynchronous one: data that was
            // read meanwhile would stay in the cache.
            let (server, offset, length) = (server(), write.offset, write.data.len());
            return match self.server.cached.note_direct_write(node) {
                Drop::Nothing => Then::Nothing,
                Drop::Range => Then::BeforeReply(Box::new(move || server.forget_range(node, offset, length))),
                Drop::All => Then::BeforeReply(Box::new(move || {
                    server.forget_contents(node);
                    server.cached.note_dropped(node);
                })),
            };
        }
        match result {
            // The program that wrote the data has continued: its next write must get the error. Dropping the contents
            // waits for the pages that this request has sent.
            Err(error) if is_late && self.server.refuse(node, error) => {
                let server = server();
                Then::AfterReply(Box::new(move || server.forget_contents(node)))
            }
            _ => Then::Nothing,
        }
    }

    fn readdir(&self, node: u64, offset: u64, listing: &mut Listing<'_>) -> Answer<()> {
        let dir = self.server.inode(node);
        self.with(|fs| readdir::plain(fs, dir, offset, listing))
    }

    fn readdirplus(&self, node: u64, offset: u64, listing: &mut ListingPlus<'_>) -> Answer<()> {
        let dir = self.server.inode(node);
        self.with(|fs| readdir::plus(fs, dir, offset, listing, |stat| entry(self.told(stat))))
    }

    fn statfs(&self) -> Answer<RawStatFs> {
        // What was removed counts as free at once.
        let (space, limits) = self.with(|fs| fs.free_inactive().and_then(|()| Ok((fs.statfs()?, fs.limits()))))?;
        Ok(RawStatFs {
            blocks: space.blocks,
            bfree: space.free_blocks,
            bavail: space.free_blocks,
            files: space.inodes,
            ffree: space.free_inodes,
            bsize: space.block_bytes,
            namelen: limits.name_bytes as u32,
            frsize: space.block_bytes,
            ..RawStatFs::default()
        })
    }

    fn fsync(&self, node: u64, data_only: bool) -> Answer<()> {
        let point = self.begin_fsync(node, data_only, |_| true)?;
        self.with(|fs| point.map_or(Ok(()), |point| fs.await_durable(point)))
    }

    fn fsync_with_others(&self, node: u64, data_only: bool, reply: ReplyLater) -> WithOthers {
        match self.begin_fsync(node, data_only, |inode| inode.fsync_is_cheap()) {
            Ok(None) => WithOthers::Alone(reply),
            Ok(Some(point)) => WithOthers::Later(self.syncs.join(&self.server, point, reply)),
            Err(error) => {
                reply.send(Err(error));
                WithOthers::Later(None)
            }
        }
    }

    fn syncfs(&self) -> Answer<()> {
        self.with(|fs| fs.sync())
    }

    fn setxattr(&self, requester: &Requester, node: u64, set: &SetXattr<'_>) -> Answer<()> {
        let mode = set_mode(set.flags).ok_or(Errno::INVAL)?;
        let number = self.server.inode(node);
        if is_virtual(number, self.server.root(), set.name) {
            return self.with(|fs| virtual_xattrs::set(&self.server, fs, number, (set.name, set.value), requester.uid));
        }
        self.with(|fs| {
            fs.set_xattr(number, set.name, set.value, mode, &setter(fs, number, set, requester)?)?;
            self.forget_acl(fs, node, set.name);
            Ok(())
        })
    }

    fn getxattr(&self, requester: &Requester, node: u64, name: &[u8]) -> Answer<Vec<u8>> {
        let number = self.server.inode(node);
        self.with(|fs| match is_virtual(number, self.server.root(), name) {
            true => virtual_xattrs::get(&self.server, fs, number, name, requester.uid),
            false => fs.get_xattr(number, name),
        })
    }

    fn listxattr(&self, requester: &Requester, node: u64) -> Answer<Vec<u8>> {
        let number = self.server.inode(node);
        // The kernel hides trusted attributes by refusing to read them; hiding their names is the server's task.
        let privileged = requester.uid == 0;
        let names = self.with(|fs| fs.list_xattrs_within(number, MAX_LIST_BYTES));
        // As the kernel says it of a list that no program can get.
        let names = names.map_err(|error| if error == Errno::FBIG { Errno::TOOBIG } else { error })?;
        Ok(if privileged { names } else { without_trusted(&names) })
    }

    fn removexattr(&self, requester: &Requester, node: u64, name: &[u8]) -> Answer<()> {
        let number = self.server.inode(node);
        if is_virtual(number, self.server.root(), name) {
            return Err(Errno::PERM);
        }
        self.with(|fs| {
            fs.remove_xattr(number, name, &owner(requester))?;
            self.forget_acl(fs, node, name);
            Ok(())
        })
    }

    fn ioctl(&self, requester: &Requester, node: u64, ioctl: &Ioctl<'_>) -> Answer<Vec<u8>> {
        if ioctl.command == QUESTION && self.server.inode(node) == self.server.root() {
            if virtual_xattrs::asks_for_an_end(question_in(ioctl.data), requester.uid) {
                return self.server.quiesce().map(|()| vec![0; 8]);
            }
            return self.with(|fs| virtual_xattrs::answer(fs, question_in(ioctl.data), requester.uid));
        }
        if ioctls::is_known(ioctl.command) {
            let number = self.server.inode(node);
            return self.with(|fs| ioctls::ioctl(fs, number, (ioctl.command, ioctl.data), requester));
        }
        if !flags::is_known(ioctl.command) {
            let number = self.server.inode(node);
            let answer = self.with(|fs| fs.ioctl(number, ioctl.command, ioctl.data).transpose())?;
            return answer.ok_or(Errno::NOTTY);
        }
        if flags::protects(ioctl.command, ioctl.data) {
            self.server.call_in_writes(node);
        }
        let number = self.server.inode(node);
        let answer = self.with(|fs| flags::ioctl(fs, number, ioctl.command, ioctl.data, requester))?;
        if flags::changes(ioctl.command) {
            // It changes ctime, and another project clears bits of the mode.
            self.server.forget_attributes(node);
            self.server.forget_when_unused(node);
        }
        Ok(answer)
    }

    fn fallocate(&self, requester: &Requester, node: u64, (offset, length): (u64, u64), mode: i32) -> Answer<()> {
        let number = self.server.inode(node);
        self.with(|fs| {
            let mode = contents::fallocate_mode(mode)?;
            let file = fs.inode(number)?;
            let changed = file.fallocate(offset, length, mode, self.allocation_mtime);
            let changed = privileges::drop_after(&file, requester, changed);
            if changed.as_ref().map_or(true, |((), dropped)| *dropped) {
                self.server.forget_attributes(node);
            }
            changed.map(drop)
        })
    }

    fn lseek(&self, node: u64, offset: i64, whence: u32) -> Answer<u64> {
        self.server.call_in_writes(node);
        let number = self.server.inode(node);
        self.with(|fs| contents::seek(fs, number, offset, whence))
    }

    fn copy_file_range(&self, requester: &Requester, from: u64, copy: &Copy) -> Answer<u64> {
        let (from, to) = (self.server.inode(from), self.server.inode(copy.to));
        self.with(|fs| {
            let most = contents::most_of_copy(fs, copy);
            let mtime = match self.cache {
                WriteCache::Through => Mtime::Update,
                // The kernel sets the times here. It does not send times that it already has, as after two writes in
                // one tick of its clock, so nobody else may set others.
                WriteCache::Back => Mtime::Keep,
            };
            let to = fs.inode(to)?;
            let copied = to.copy_from(from, copy.from_offset, copy.to_offset, most, mtime);
            // The server hears of no close, and none of these bytes come from the kernel's cache at one.
            to.flush_truncated();
            let copied = privileges::drop_after(&to, requester, copied);
            if copied.as_ref().map_or(true, |(_, dropped)| *dropped) {
                self.server.forget_attributes(copy.to);
            }
            copied.map(|(count, _)| count)
        })
    }
}
