//! What a filesystem is asked.

use crate::abi::{Features, RawStatFs, RawStatx};
use crate::answer::{Answer, Attr, Entry, Opened, ReplyLater, Then, Version, WithOthers, Work};
use crate::listing::{Listing, ListingPlus};
use crate::request::{Copy, Ioctl, NewNode, Read, Request, Requester, SetAttr, SetXattr, Write};
use rustix::io::Errno;
use std::time::Duration;

/// A filesystem. Node 1 is its root. Several threads call it at the same time. What it does not answer is `ENOSYS`,
/// after which the kernel sends most kinds of requests no more.
#[allow(unused_variables)]
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, before any other request: returns the features that the filesystem wants of those that are
    /// offered.
    fn init(&mut self, offered: Features, version: Version) -> Features;

    /// Whether a request may wait for the device, or for other requests. If other requests wait already, or one thread
    /// answers all, it goes to a thread that may wait, an fsync first to [`Self::fsync_with_others`]. One that waits
    /// alone keeps the thread that has read it, but where requests come by io_uring.
    fn may_wait(&self, request: &Request<'_>) -> bool {
        false
    }

    /// How many files have lost their names, where some of them still take space: it is free when the kernel lets go of
    /// them. A request that finds no space waits then for the forgets that are on their way, and is answered once more.
    fn names_lost(&self) -> Option<u64> {
        None
    }

    /// The forgets that were on their way are dealt with: makes what they have left free.
    fn take_space(&self) {}

    /// Finds a name. The reply adds one reference to the inode, which ends with [`Self::forget`]; so do those of other
    /// methods that return an entry.
    fn lookup(&self, requester: &Requester, dir: u64, name: &[u8]) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// The kernel has dropped `count` references to an inode. What follows from it and takes long is returned, for a
    /// thread that may wait.
    fn forget(&self, node: u64, count: u64) -> Option<Work> {
        None
    }

    /// Attributes. `has_handle`: the program asks by an open file.
    fn getattr(&self, node: u64, has_handle: bool) -> Answer<Attr> {
        Err(Errno::NOSYS)
    }

    /// Attributes with the time of birth.
    fn statx(&self, node: u64) -> Answer<(Duration, RawStatx)> {
        Err(Errno::NOSYS)
    }

    /// Changes attributes.
    fn setattr(&self, requester: &Requester, node: u64, change: &SetAttr) -> Answer<Attr> {
        Err(Errno::NOSYS)
    }

    /// The target of a symbolic link.
    fn readlink(&self, node: u64) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, requester: &Requester, dir: u64, name: &[u8], target: &[u8]) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// Makes a file, device node, pipe or socket.
    fn mknod(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// Makes a directory.
    fn mkdir(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// Makes a file and opens it. After `ENOSYS` the kernel sends `mknod` and `open`.
    fn create(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }

    /// Makes a file without a name and opens it.
    fn tmpfile(&self, requester: &Requester, dir: u64, new: &NewNode<'_>) -> Answer<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }

    /// Removes a name that is no directory's.
    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Removes a directory.
    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Renames; `flags` are those of renameat2(2).
    fn rename(&self, requester: &Requester, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Adds a name to an inode.
    fn link(&self, node: u64, dir: u64, name: &[u8]) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// Opens a file. After `ENOSYS`, with `NO_OPEN_SUPPORT`, the kernel sends neither `open` nor `release`.
    fn open(&self, node: u64, flags: u32) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }

    /// Opens a directory; as [`Self::open`], with `NO_OPENDIR_SUPPORT`.
    fn opendir(&self, node: u64, flags: u32) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }

    /// Reads into `out`, which has the size that is asked for; returns the number of bytes.
    fn read(&self, node: u64, read: &Read, out: &mut [u8]) -> Answer<usize> {
        Err(Errno::NOSYS)
    }

    /// Writes; returns the number of bytes.
    fn write(&self, requester: &Requester, node: u64, write: &Write<'_>) -> Answer<u32> {
        Err(Errno::NOSYS)
    }

    /// A write is to be answered with `result`: what else is to be done.
    fn after_write(&self, node: u64, write: &Write<'_>, result: Answer<u32>) -> Then {
        Then::Nothing
    }

    /// Lists a directory from `offset` on, as far as the listing has room.
    fn readdir(&self, node: u64, offset: u64, listing: &mut Listing<'_>) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// As [`Self::readdir`], with attributes. Each entry that has a node adds one reference to it.
    fn readdirplus(&self, node: u64, offset: u64, listing: &mut ListingPlus<'_>) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// The filesystem in figures.
    fn statfs(&self) -> Answer<RawStatFs> {
        Err(Errno::NOSYS)
    }

    /// Makes a file or directory durable. Called for an fsync that waits alone, for one that
    /// [`Self::fsync_with_others`] returns as [`WithOthers::Alone`], and for all where [`Self::may_wait`] is false.
    fn fsync(&self, node: u64, data_only: bool) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// An fsync for which [`Self::may_wait`] is true, while other requests wait. The thread that has read it calls
    /// this, so it must not wait for the device: it begins the fsync and keeps `reply`; one thread then waits for many,
    /// and sends their replies. A reply that is dropped is EIO.
    fn fsync_with_others(&self, node: u64, data_only: bool, reply: ReplyLater) -> WithOthers {
        WithOthers::Alone(reply)
    }

    /// Makes everything durable.
    fn syncfs(&self) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// A descriptor of a file was closed.
    fn flush(&self, node: u64) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Sets an extended attribute.
    fn setxattr(&self, requester: &Requester, node: u64, set: &SetXattr<'_>) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// The value of an extended attribute.
    fn getxattr(&self, requester: &Requester, node: u64, name: &[u8]) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    /// The names of extended attributes, a zero byte behind each.
    fn listxattr(&self, requester: &Requester, node: u64) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, requester: &Requester, node: u64, name: &[u8]) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Carries out an ioctl; returns the data of its reply.
    fn ioctl(&self, requester: &Requester, node: u64, ioctl: &Ioctl<'_>) -> Answer<Vec<u8>> {
        Err(Errno::NOTTY)
    }

    /// Allocates, or punches holes; `mode` is that of fallocate(2).
    fn fallocate(&self, requester: &Requester, node: u64, range: (u64, u64), mode: i32) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Finds data or a hole; `whence` is that of lseek(2).
    fn lseek(&self, node: u64, offset: i64, whence: u32) -> Answer<u64> {
        Err(Errno::NOSYS)
    }

    /// Copies within the filesystem; returns the number of bytes.
    fn copy_file_range(&self, requester: &Requester, from: u64, copy: &Copy) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
}
