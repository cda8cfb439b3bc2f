//! A FUSE server that does nothing: no server on the same kernel, with the same library and options, can be faster.
//!
//! It answers the kernel's requests for creates, attributes and unlinks without looking anything up: a name that the
//! kernel has not cached does not exist, a file is empty, each `user.` attribute has 64 bytes.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use xfskit_fuse::fuser::{
    BackgroundSession, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyXattr, Request, Session, TimeOrNow,
};
use xfskit_fuse::{Options, WriteCache, negotiate};

const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
const VALUE: [u8; 64] = [7; 64];
/// Numbers of directories have this bit, so that the server needs no table of types.
const DIRECTORY: u64 = 1 << 40;
const ROOT: u64 = 1;

struct Null {
    next: AtomicU64,
}

fn attr(number: u64, kind: FileType) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    let dir = kind == FileType::Directory;
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: if dir { 0o755 } else { 0o644 },
        nlink: if dir { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn attr_of(node: INodeNo) -> FileAttr {
    let dir = node.0 == ROOT || node.0 & DIRECTORY != 0;
    attr(node.0, if dir { FileType::Directory } else { FileType::RegularFile })
}

impl Null {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        negotiate(config, WriteCache::default());
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&FOREVER, &attr(0, FileType::RegularFile), Generation(0));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &attr_of(node));
    }

    // With the write-back cache, the kernel sends the times that it has changed itself.
    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOREVER, &attr_of(node));
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.entry(&FOREVER, &attr(self.number() | DIRECTORY, FileType::Directory), Generation(1));
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let attr = attr(self.number(), FileType::RegularFile);
        reply.created(&FOREVER, &attr, Generation(1), FileHandle(0), FopenFlags::empty());
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match size {
            _ if !name.as_encoded_bytes().starts_with(b"user.") => reply.error(Errno::NO_XATTR),
            0 => reply.size(VALUE.len() as u32),
            _ => reply.data(&VALUE),
        }
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// A mounted server; it ends when it is dropped.
pub(crate) struct NullMount(Option<BackgroundSession>);

impl NullMount {
    pub(crate) fn new(dir: &Path, options: &Options) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let null = Null { next: AtomicU64::new(2) };
        let mut config = options.fuser();
        config.mount_options = vec![MountOption::FSName("nothing".into()), MountOption::DefaultPermissions];
        let session = Session::new(null, dir, &config).context("mounting a server that does nothing")?;
        Ok(Self(Some(session.spawn().context("a server that does nothing")?)))
    }

    pub(crate) fn unmount(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |session| session.umount_and_join().context("unmounting"))
    }
}

impl Drop for NullMount {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            // Another error is reported already.
            let _ = session.umount_and_join();
        }
    }
}
