//! How to mount.

use fuser::{InitFlags, KernelConfig};
use rustix::mount::MountFlags;
use std::ffi::OsString;

const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How to mount. [`Options::default`] is right for a mount that only its owner uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// What `/proc/mounts` shows as the source: the image.
    pub source: OsString,
    /// Nothing is written.
    pub read_only: bool,
    /// Everybody may use the mount, not only who made it.
    pub allow_other: bool,
    /// Root and the owner may use the mount.
    pub allow_root: bool,
    /// Unmount when the server dies. Needs `allow_other` or `allow_root`.
    pub auto_unmount: bool,
    /// Threads that answer; 0 for as many as there are processors, at most eight.
    pub threads: usize,
    /// Where what programs write waits before it is sent.
    pub cache: WriteCache,
    /// Seconds after which what was done is durable without a call of fsync; 0 for never.
    pub commit_seconds: u64,
    /// Further options that the kernel knows for every mount: `dev`, `suid`, `noexec`, `noatime`, ...
    pub kernel: Vec<KernelOption>,
}

/// What the kernel does with what a program writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCache {
    /// It is sent before the call returns, so that the call reports what became of it.
    Through,
    /// It waits in the kernel's cache: small writes are faster, and errors are those of a later write, fsync or close.
    #[default]
    Back,
}

/// An option of every mount.
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
    /// The option of a name, if it is one.
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

    /// The name that fusermount3 knows it by.
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

    /// The flags of mount(2) that it sets and clears.
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
    /// What fuser is to know of them: the mount itself is made by [`crate::attach`].
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

/// Takes of what the kernel offers what a server of ours wants; what that was.
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
        // What the kernel has just offered it takes.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(MAX_WRITE_BYTES);
    offered
}
