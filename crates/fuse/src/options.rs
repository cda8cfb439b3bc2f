//! The options of a mount.

use fuser::{InitFlags, KernelConfig};
use rustix::mount::MountFlags;
use std::ffi::OsString;

const MAX_WRITE_BYTES: u32 = 1 << 20;

/// The options of a mount. [`Options::default`] is right for a mount that only its owner uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source in `/proc/mounts`: the image.
    pub source: OsString,
    /// The mount is read-only.
    pub read_only: bool,
    /// All users may use the mount, not only the one who made it.
    pub allow_other: bool,
    /// Root and the owner may use the mount.
    pub allow_root: bool,
    /// Unmount when the server dies. Needs `allow_other` or `allow_root`.
    pub auto_unmount: bool,
    /// Threads that answer requests; 0 for as many as there are processors, at most eight.
    pub threads: usize,
    /// When written data is sent to the server.
    pub cache: WriteCache,
    /// Seconds between two commits, which make everything durable without an fsync; 0 for none.
    pub commit_seconds: u64,
    /// Further options that the kernel has for every mount: `dev`, `suid`, `noexec`, `noatime`, ...
    pub kernel: Vec<KernelOption>,
}

/// When the kernel sends written data to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCache {
    /// Before the call returns, so that the call reports the result.
    Through,
    /// Later, from the kernel's cache: small writes are faster, and a later write, fsync or close reports an error.
    #[default]
    Back,
}

/// A mount option of every filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of mount(8).
pub enum KernelOption {
    Dev,
    NoDev,
    Suid,
    NoSuid,
    Exec,
    NoExec,
    Atime,
    NoAtime,
    DirSync,
    Sync,
    Async,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            source: "xfskit".into(),
            read_only: false,
            allow_other: false,
            allow_root: false,
            auto_unmount: false,
            threads: 0,
            cache: WriteCache::default(),
            commit_seconds: 30,
            kernel: Vec::new(),
        }
    }
}

impl KernelOption {
    /// The option with a name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "dev" => Self::Dev,
            "nodev" => Self::NoDev,
            "suid" => Self::Suid,
            "nosuid" => Self::NoSuid,
            "exec" => Self::Exec,
            "noexec" => Self::NoExec,
            "atime" => Self::Atime,
            "noatime" => Self::NoAtime,
            "dirsync" => Self::DirSync,
            "sync" => Self::Sync,
            "async" => Self::Async,
            _ => return None,
        })
    }

    /// Its name for fusermount3.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::NoDev => "nodev",
            Self::Suid => "suid",
            Self::NoSuid => "nosuid",
            Self::Exec => "exec",
            Self::NoExec => "noexec",
            Self::Atime => "atime",
            Self::NoAtime => "noatime",
            Self::DirSync => "dirsync",
            Self::Sync => "sync",
            Self::Async => "async",
        }
    }

    /// The flags of mount(2) that the option sets, and those that it clears.
    pub fn flags(self) -> (MountFlags, MountFlags) {
        let none = MountFlags::empty();
        match self {
            Self::Dev => (none, MountFlags::NODEV),
            Self::NoDev => (MountFlags::NODEV, none),
            Self::Suid => (none, MountFlags::NOSUID),
            Self::NoSuid => (MountFlags::NOSUID, none),
            Self::Exec => (none, MountFlags::NOEXEC),
            Self::NoExec => (MountFlags::NOEXEC, none),
            Self::Atime => (none, MountFlags::NOATIME),
            Self::NoAtime => (MountFlags::NOATIME, none),
            Self::DirSync => (MountFlags::DIRSYNC, none),
            Self::Sync => (MountFlags::SYNCHRONOUS, none),
            Self::Async => (none, MountFlags::SYNCHRONOUS),
        }
    }
}

impl Options {
    /// The part of the options that fuser needs: the mount itself is made by [`crate::attach`].
    pub fn fuser(&self) -> fuser::Config {
        let mut config = fuser::Config::default();
        config.acl = match (self.allow_other, self.allow_root) {
            (true, _) => fuser::SessionACL::All,
            (false, true) => fuser::SessionACL::RootAndOwner,
            (false, false) => fuser::SessionACL::Owner,
        };
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        config.n_threads = Some(if self.threads == 0 { processors.clamp(2, 8) } else { self.threads });
        config.clone_fd = true;
        config
    }
}

/// Accepts those features that the kernel offers and the server needs; returns what was offered.
pub fn negotiate(config: &mut KernelConfig, cache: WriteCache) -> InitFlags {
    let mut wanted = InitFlags::FUSE_POSIX_ACL
        | InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_ASYNC_READ
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_MAX_PAGES
        | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_EXPORT_SUPPORT
        | InitFlags::FUSE_NO_OPEN_SUPPORT
        | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
    if cache == WriteCache::Back {
        wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    let offered = config.capabilities() & wanted;
    for flag in offered.iter() {
        // The kernel accepts what it has just offered.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(MAX_WRITE_BYTES);
    offered
}
