//! The structures of the protocol, as the kernel lays them out.
//!
//! ```text
//! request   in header 40 │ structure of the opcode │ names, data │ extensions (total_extlen × 8)
//! reply     out header 16 │ structure of the opcode, or data
//! notice    out header 16 (unique 0, error: its code) │ structure │ name and a zero byte
//! ```
//! All are multiples of eight bytes, in the byte order of the machine. Nothing here is checked: `Raw…` is what the
//! other side has sent.
//!
//! Source of facts: `include/uapi/linux/fuse.h` of Linux 6.18 (version 7.45).
#![allow(missing_docs)] // The names are the kernel's.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// The minor version that this crate knows.
pub const MINOR: u32 = 45;
/// The node of the root.
pub const ROOT: u64 = 1;
/// Smallest buffer that the kernel reads a request into.
pub const MIN_READ_BUFFER: usize = 8192;
/// The extension of a request that lists groups of the caller.
pub const EXT_GROUPS: u32 = 32;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident ($bytes:literal) {
        $($(#[$field_doc:meta])* $field:ident: $kind:ty),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $($(#[$field_doc])* pub $field: $kind),* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

structures! {
    /// Begins each request.
    RawInHeader (40) {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        /// Length of the extensions in units of eight bytes.
        total_extlen: u16,
        padding: u16,
    }
    /// Begins each reply and each notice.
    RawOutHeader (16) { len: u32, error: i32, unique: u64 }
    /// Attributes of an inode.
    RawAttr (88) {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// An entry of a directory and its inode.
    RawEntryOut (128) {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: RawAttr,
    }
    /// Reply with attributes.
    RawAttrOut (104) { attr_valid: u64, attr_valid_nsec: u32, padding: u32, attr: RawAttr }
    /// A time of `statx`.
    RawSxTime (16) { seconds: i64, nanoseconds: u32, reserved: i32 }
    /// Attributes for `statx`.
    RawStatx (256) {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: RawSxTime, btime: RawSxTime, ctime: RawSxTime, mtime: RawSxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    RawStatxIn (24) { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    RawStatxOut (288) { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: RawStatx }
    RawStatFs (80) {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    RawForgetIn (8) { nlookup: u64 }
    RawForgetOne (16) { nodeid: u64, nlookup: u64 }
    RawBatchForgetIn (8) { count: u32, padding: u32 }
    RawGetAttrIn (16) { getattr_flags: u32, padding: u32, fh: u64 }
    RawMknodIn (16) { mode: u32, rdev: u32, umask: u32, padding: u32 }
    RawMkdirIn (8) { mode: u32, umask: u32 }
    RawRenameIn (8) { newdir: u64 }
    RawRename2In (16) { newdir: u64, flags: u32, padding: u32 }
    RawLinkIn (8) { oldnodeid: u64 }
    RawSetAttrIn (88) {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    RawOpenIn (8) { flags: u32, open_flags: u32 }
    RawCreateIn (16) { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    RawOpenOut (16) { fh: u64, open_flags: u32, backing_id: i32 }
    RawReleaseIn (24) { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    RawFlushIn (24) { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    RawReadIn (40) {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    RawWriteIn (40) {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    RawWriteOut (8) { size: u32, padding: u32 }
    RawFsyncIn (16) { fh: u64, fsync_flags: u32, padding: u32 }
    /// Without `SETXATTR_EXT`.
    RawSetXattrCompatIn (8) { size: u32, flags: u32 }
    RawSetXattrIn (16) { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    RawGetXattrIn (8) { size: u32, padding: u32 }
    RawGetXattrOut (8) { size: u32, padding: u32 }
    RawAccessIn (8) { mask: u32, padding: u32 }
    /// The first request, as far as all kernels send it.
    RawInitIn (16) { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// What follows in it, where its flags have `INIT_EXT`.
    RawInitExtIn (48) { flags2: u32, unused: [u32; 11] }
    RawInitOut (64) {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    RawInterruptIn (8) { unique: u64 }
    RawIoctlIn (32) { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    RawIoctlOut (16) { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    RawFallocateIn (32) { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// An entry of a listing, before its name.
    RawDirent (24) { ino: u64, off: u64, namelen: u32, kind: u32 }
    RawLseekIn (24) { fh: u64, offset: u64, whence: u32, padding: u32 }
    RawLseekOut (8) { offset: u64 }
    RawCopyFileRangeIn (56) {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    RawCopyFileRangeOut (8) { bytes_copied: u64 }
    RawSyncFsIn (8) { padding: u64 }
    RawExtHeader (8) { size: u32, kind: u32 }
    RawInvalInodeOut (24) { ino: u64, off: i64, len: i64 }
    RawInvalEntryOut (16) { parent: u64, namelen: u32, flags: u32 }
    RawPruneOut (16) { count: u32, padding: u32, spare: u64 }
}

/// Notices that the server sends.
pub mod notice {
    /// The kernel drops what it knows of an inode.
    pub const INVAL_INODE: i32 = 2;
    /// The kernel drops a name.
    pub const INVAL_ENTRY: i32 = 3;
    /// The kernel forgets inodes that no program uses.
    pub const PRUNE: i32 = 9;
}

/// Bits of `RawSetAttrIn::valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCK_OWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bit of `RawGetAttrIn::getattr_flags`: the request has a handle.
pub const GETATTR_FH: u32 = 1;
/// Bit of `RawFsyncIn::fsync_flags`: contents and size alone.
pub const FSYNC_DATA: u32 = 1;
/// Bit of `RawSetXattrIn::setxattr_flags`: setting the ACL takes the set-group-ID bit away.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `lock_owner` of a read is valid: a program waits for it, and not the kernel's cache.
pub const READ_LOCK_OWNER: u32 = 1 << 1;

bitflags::bitflags! {
    /// Features that the kernel offers and the server accepts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u64 {
        const ASYNC_READ = 1 << 0;
        const POSIX_LOCKS = 1 << 1;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const SPLICE_WRITE = 1 << 7;
        const SPLICE_MOVE = 1 << 8;
        const SPLICE_READ = 1 << 9;
        const FLOCK_LOCKS = 1 << 10;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const HANDLE_KILLPRIV = 1 << 19;
        const POSIX_ACL = 1 << 20;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const MAP_ALIGNMENT = 1 << 26;
        const SUBMOUNTS = 1 << 27;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const SECURITY_CTX = 1 << 32;
        const HAS_INODE_DAX = 1 << 33;
        const CREATE_SUPP_GROUP = 1 << 34;
        const HAS_EXPIRE_ONLY = 1 << 35;
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const PASSTHROUGH = 1 << 37;
        const NO_EXPORT_SUPPORT = 1 << 38;
        const HAS_RESEND = 1 << 39;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
        const REQUEST_TIMEOUT = 1 << 42;
    }

    /// How the kernel treats an open file or directory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        const DIRECT_IO = 1 << 0;
        const KEEP_CACHE = 1 << 1;
        const NONSEEKABLE = 1 << 2;
        const CACHE_DIR = 1 << 3;
        const STREAM = 1 << 4;
        const NOFLUSH = 1 << 5;
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// What a write is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// From the kernel's cache, some time after the program wrote it.
        const CACHE = 1 << 0;
        /// `lock_owner` is valid.
        const LOCK_OWNER = 1 << 1;
        /// It takes the set-user-ID and set-group-ID bits away.
        const KILL_SUIDGID = 1 << 2;
    }
}
