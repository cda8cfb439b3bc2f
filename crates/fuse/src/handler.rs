//! The requests, one method each.

use crate::attributes::{set_mode, setter, without_trusted};
use crate::cached::Drop;
use crate::caller::{owner, with_groups};
use crate::contents::{self, TimeKeeper};
use crate::convert::{absent, attr, caller, entry, entry_of_root, new_file, set_attr, statx};
use crate::flags;
use crate::ioctls;
use crate::options::{Opens, Options, WriteCache, features};
use crate::privileges;
use crate::readdir;
use crate::server::Server;
use crate::sync_group::SyncGroup;
use crate::virtual_xattrs::{self, is_virtual};
use std::sync::Arc;
use std::time::Duration;
use xfskit_engine::{Caller, Error, RenameFlags, Result, SetMode, Stat, SyncKind, SyncPoint, Volume};
use xfskit_fuse_session::abi::{RawStatFs, RawStatx};
use xfskit_fuse_session::request::{
    Copy, Ioctl, NewNode, Operation, Read, Request, Requester, SetAttr, SetXattr, Write,
};
use xfskit_fuse_session::{
    Answer, Attr, Entry, Errno, Features, Filesystem, Listing, ListingPlus, OpenFlags, Opened, QUESTION, ReplyLater,
    Then, Version, WithOthers, Work, WriteFlags, question_in,
};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::MODE_DIR;

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
/// The longest name.
const NAME_BYTES: u32 = 255;

/// Answers the kernel's requests.
pub(crate) struct Handler {
    server: Arc<Server>,
    cache: WriteCache,
    opens: Opens,
    /// The kernel clears the set-group-ID bit of new files whose creator is not in the group.
    kernel_decides_groups: bool,
    /// Which side sets the times of a file on fallocate.
    allocation_keeper: TimeKeeper,
    /// What the kernel offers.
    offered: Features,
    /// Fsyncs that wait together.
    syncs: Arc<SyncGroup>,
}

impl Handler {
    pub(crate) fn new(server: Arc<Server>, options: &Options) -> Self {
        let (cache, opens) = (options.cache, options.opens);
        let allocation_keeper = TimeKeeper::Engine;
        let offered = Features::empty();
        Self { server, cache, opens, kernel_decides_groups: false, allocation_keeper, offered, syncs: Arc::default() }
    }

    fn with<T>(&self, action: impl FnOnce(&Volume) -> Result<T>) -> Answer<T> {
        self.server.with(action)
    }

    /// An entry of an inode to which the kernel now has one reference more.
    fn entry(&self, find: impl FnOnce(&Volume) -> Result<Stat>) -> Answer<Entry> {
        self.with(|fs| counted(fs, find(fs)?)).map(|stat| entry(self.told(&stat)))
    }

    /// Attributes of which the kernel is told.
    fn told<'s>(&self, stat: &'s Stat) -> &'s Stat {
        self.server.cached.note_answer(stat.inode.0, stat.blocks);
        stat
    }

    /// Makes the kernel forget an ACL that was changed under its on-disk name.
    fn forget_acl(&self, node: u64, name: &[u8]) {
        if name.starts_with(b"trusted.SGI_ACL_") {
            self.server.forget_attributes(node);
        }
    }

    /// The caller that creates a file. If the kernel decides about the set-group-ID bit, it has already done so.
    fn creator(&self, fs: &Volume, requester: &Requester, dir: InodeNumber, mode: u32) -> Result<Caller> {
        if mode & GROUP_PRIVILEGE != GROUP_PRIVILEGE {
            return Ok(owner(requester));
        }
        match requester.group_of_dir {
            Some(group) => Ok(caller(requester, vec![group])),
            None if self.kernel_decides_groups => Ok(caller(requester, vec![fs.stat(dir)?.gid])),
            None => Ok(with_groups(requester)),
        }
    }

    /// Whether the kernel opens files without asking.
    fn are_opens_silent(&self) -> bool {
        self.opens == Opens::Silent && self.offered.contains(Features::NO_OPEN_SUPPORT)
    }

    fn make(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<Entry> {
        let dir = self.server.inode(dir);
        let file = new_file(new)?;
        self.entry(|fs| fs.create(dir, new.name, &file, &self.creator(fs, requester, dir, new.mode)?))
    }

    /// Brings out what waits of an inode. The kernel asks for the blocks of a file again when it is closed, but not
    /// after writing it back; so it is told to, if they have changed. One that asks also looks for capabilities before
    /// the next write, which makes two requests more.
    fn begin_fsync(&self, node: u64, data_only: bool) -> Answer<SyncPoint> {
        let number = self.server.inode(node);
        let what = if data_only { SyncKind::Data } else { SyncKind::Full };
        let begun = self.with(|fs| fs.begin_fsync(number, what));
        match self.with(|fs| fs.stat(number)) {
            Ok(stat) if !self.server.cached.note_blocks(node, stat.blocks) => {}
            Ok(_) | Err(_) => self.server.forget_attributes(node),
        }
        begun
    }

    /// Whether each write to a file is made durable, by whatever program.
    fn is_synchronous(&self, node: u64) -> bool {
        let number = self.server.inode(node);
        self.with(|fs| fs.is_synchronous(number)).unwrap_or(false)
    }

    /// Which side sets the times of a file that is written.
    fn keeper(&self, flags: WriteFlags) -> TimeKeeper {
        let is_late = self.cache == WriteCache::Back && flags.contains(WriteFlags::CACHE);
        if is_late { TimeKeeper::Kernel } else { TimeKeeper::Engine }
    }
}

/// Whether a program writes by `O_DIRECT`, and not the kernel what it has in its cache.
fn goes_around_cache(write: &Write<'_>) -> bool {
    let is_by_program = write.flags.contains(WriteFlags::LOCK_OWNER) && !write.flags.contains(WriteFlags::CACHE);
    is_by_program && contents::is_direct(write.open_flags)
}

/// Adds one reference of the kernel to an inode.
fn counted(fs: &Volume, stat: Stat) -> Result<Stat> {
    fs.add_reference(stat.inode)?;
    Ok(stat)
}

/// References an inode for the kernel before its attributes are read: those of one that nothing holds may be another
/// file's a moment later.
fn referenced(fs: &Volume, number: InodeNumber) -> Result<Stat> {
    fs.add_reference(number)?;
    let stat = fs.stat(number);
    if stat.is_err() {
        fs.drop_references(number, 1)?;
    }
    stat
}

fn opened(flags: OpenFlags) -> Opened {
    Opened { handle: 0, flags }
}

impl Filesystem for Handler {
    fn init(&mut self, offered: Features, version: Version) -> Features {
        self.offered = offered;
        self.kernel_decides_groups = version >= LINUX_6_1;
        let wanted = features(offered, self.cache, self.opens);
        let keeps_times = self.kernel_decides_groups && wanted.contains(Features::WRITEBACK_CACHE);
        self.allocation_keeper = if keeps_times { TimeKeeper::Kernel } else { TimeKeeper::Engine };
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
                is_asked_for && self.keeper(write.flags) == TimeKeeper::Engine || self.is_synchronous(request.node)
            }
            // The kernel sends a seek without writing its cached data first, and relies on the answer. So the server
            // makes it write, by requests that other threads answer.
            Operation::Lseek { .. } => true,
            _ => false,
        }
    }

    fn names_lost(&self) -> Option<u64> {
        self.with(|fs| Ok(fs.has_nameless().then(|| fs.count_nameless()))).ok().flatten()
    }

    fn take_space(&self) {
        // What is not freed now is freed later, and the conversion reports damage.
        let _ = self.with(Volume::free_nameless);
    }

    fn lookup(&self, _: &Requester, dir: u64, name: &[u8]) -> Answer<Entry> {
        let (dir, root) = (self.server.inode(dir), self.server.root());
        let found = self.with(|fs| {
            let number = match name {
                // An NFS client has a handle of the inode, which may have been freed.
                b"." | b".." if !fs.is_in_use(dir)? => return Err(Error::Stale(dir.0)),
                b"." => dir,
                name => fs.lookup_number(dir, name)?,
            };
            // The kernel never forgets the root, so the engine counts no references to it.
            if number == root { fs.stat(number) } else { referenced(fs, number) }
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
        let takes_long = self.with(|fs| Ok(fs.bytes_to_free(number) > MAX_FREED_BYTES));
        let server = Arc::clone(&self.server);
        let forget = move || {
            // A forget has no reply that could carry an error; the conversion reports it.
            let _ = server.with(|fs| fs.drop_references_lazily(number, count));
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
                _ if change.kills_privileges => privileges::drop_all(fs, number, requester),
                _ if self.offered.contains(Features::HANDLE_KILLPRIV_V2) => Ok(false),
                _ => privileges::drop_for(fs, number, requester),
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
        let dir = self.server.inode(dir);
        self.entry(|fs| fs.symlink(dir, name, target, &owner(requester)))
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
            let made = fs.tmpfile(dir, &file, &self.creator(fs, requester, dir, new.mode)?)?;
            let stat = made.stat()?;
            // The reference is the kernel's now.
            made.into_raw();
            Ok(stat)
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
        self.entry(|fs| fs.link(dir, name, number, &Caller::root()))
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
        let keeper = self.keeper(write.flags);
        if !goes_around_cache(write) {
            // Before it is done: a direct write that comes after it must find it noted.
            self.server.cached.note_contents(node);
        }
        let result = self.with(|fs| {
            if privileged {
                // The writer of data that the kernel writes back from its cache later is not known.
                let writer = (keeper == TimeKeeper::Engine).then(|| with_groups(requester));
                // Where it fails, the bits may be off, and the kernel must ask.
                let dropped = fs.drop_privileges(number, writer.as_ref());
                if !matches!(dropped, Ok(false)) {
                    self.server.forget_attributes(node);
                }
                dropped?;
            }
            contents::write(fs, number, write, keeper)
        });
        result.map(|written| written as u32)
    }

    /// What else a write takes: the kernel's cache must not show what the image does not contain.
    fn after_write(&self, node: u64, write: &Write<'_>, result: Answer<u32>) -> Then {
        let server = || Arc::clone(&self.server);
        let is_late = write.flags.contains(WriteFlags::CACHE);
        if goes_around_cache(write) {
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
        let space = self.with(|fs| fs.free_waiting().map(|()| fs.statfs()))?;
        Ok(RawStatFs {
            blocks: space.blocks,
            bfree: space.free_blocks,
            bavail: space.free_blocks,
            files: space.inodes,
            ffree: space.free_inodes,
            bsize: space.block_bytes,
            namelen: NAME_BYTES,
            frsize: space.block_bytes,
            ..RawStatFs::default()
        })
    }

    fn fsync(&self, node: u64, data_only: bool) -> Answer<()> {
        let point = self.begin_fsync(node, data_only)?;
        self.with(|fs| fs.await_durable(point))
    }

    fn fsync_with_others(&self, node: u64, data_only: bool, reply: ReplyLater) -> WithOthers {
        let number = self.server.inode(node);
        if self.with(|fs| Ok(fs.is_fsync_soon_begun(number))) == Ok(false) {
            return WithOthers::Alone(reply);
        }
        match self.begin_fsync(node, data_only) {
            Ok(point) => WithOthers::Later(self.syncs.join(&self.server, point, reply)),
            Err(error) => {
                reply.send(Err(error));
                WithOthers::Later(None)
            }
        }
    }

    fn syncfs(&self) -> Answer<()> {
        self.with(Volume::sync)
    }

    fn setxattr(&self, requester: &Requester, node: u64, set: &SetXattr<'_>) -> Answer<()> {
        let mode = set_mode(set.flags).ok_or(Errno::INVAL)?;
        let number = self.server.inode(node);
        if is_virtual(number, self.server.root(), set.name) {
            return self.with(|fs| virtual_xattrs::set(&self.server, fs, number, (set.name, set.value), requester.uid));
        }
        self.with(|fs| {
            fs.set_xattr(number, set.name, set.value, mode, &setter(fs, number, set, requester)?)?;
            self.forget_acl(node, set.name);
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
            fs.remove_xattr(number, name, SetMode::Any, &owner(requester))?;
            self.forget_acl(node, name);
            Ok(())
        })
    }

    fn ioctl(&self, requester: &Requester, node: u64, ioctl: &Ioctl<'_>) -> Answer<Vec<u8>> {
        if ioctl.command == QUESTION && self.server.inode(node) == self.server.root() {
            if virtual_xattrs::asks_for_an_end(question_in(ioctl.data), requester.uid) {
                return self.server.end_log().map(|()| vec![0; 8]);
            }
            return self.with(|fs| virtual_xattrs::answer(fs, question_in(ioctl.data), requester.uid));
        }
        if ioctls::is_known(ioctl.command) {
            let number = self.server.inode(node);
            return self.with(|fs| ioctls::ioctl(fs, number, (ioctl.command, ioctl.data), requester));
        }
        if !flags::is_known(ioctl.command) {
            return Err(Errno::NOTTY);
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
            let changed = match self.allocation_keeper {
                TimeKeeper::Engine => fs.fallocate(number, offset, length, mode),
                TimeKeeper::Kernel => fs.fallocate_keeping_times(number, offset, length, mode),
            };
            let changed = privileges::drop_after(fs, number, requester, changed);
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
            let copied = match self.cache {
                WriteCache::Through => fs.copy_range(from, copy.from_offset, to, copy.to_offset, most),
                // The kernel sets the times here. It does not send times that it already has, as after two writes in
                // one tick of its clock, so the engine must not set others.
                WriteCache::Back => fs.copy_range_keeping_times(from, copy.from_offset, to, copy.to_offset, most),
            };
            // The server hears of no close, and none of these bytes come from the kernel's cache at one.
            fs.bring_out_if_cut(to);
            let copied = privileges::drop_after(fs, to, requester, copied);
            if copied.as_ref().map_or(true, |(_, dropped)| *dropped) {
                self.server.forget_attributes(copy.to);
            }
            copied.map(|(count, _)| count)
        })
    }
}
