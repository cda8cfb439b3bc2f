//! The options of a mount.

use rustix::mount::MountFlags;
use std::ffi::OsString;
use xfskit_fuse_session::{Access, Config, Features, Placement};

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
    /// On which processors requests are answered.
    pub placement: Placement,
    /// When written data is sent to the server.
    pub cache: WriteCache,
    /// Whether the kernel asks before it opens a file.
    pub opens: Opens,
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

/// Whether the kernel asks before it opens a file. It does not know which files are immutable or append-only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opens {
    /// It opens all that permissions allow, without a request; what may not be written is refused later.
    #[default]
    Silent,
    /// It asks, and says when the file is closed: two requests more for each file that is opened.
    Checked,
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
            placement: Placement::default(),
            cache: WriteCache::default(),
            opens: Opens::default(),
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
    /// Whether changes of directories are to be durable when their calls return (`sync`, `dirsync`); the kernel leaves
    /// that to the server.
    pub fn is_synchronous(&self) -> bool {
        let change = |flags: MountFlags, option: &KernelOption| (flags - option.flags().1) | option.flags().0;
        let flags = self.kernel.iter().fold(MountFlags::empty(), change);
        flags.intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC)
    }

    /// The part of the options that the session needs: the mount itself is made by [`crate::attach`].
    pub fn session(&self) -> Config {
        let access = match (self.allow_other, self.allow_root) {
            (false, true) => Access::RootAnd(rustix::process::geteuid().as_raw()),
            // The kernel lets no other user in.
            _ => Access::All,
        };
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = if self.threads == 0 { processors.clamp(2, 8) } else { self.threads };
        Config { threads, max_write: MAX_WRITE_BYTES, access, placement: self.placement }
    }
}

/// The features that the server needs of those that the kernel offers. docs/design/fuse.md says what each is for.
pub fn features(offered: Features, cache: WriteCache, opens: Opens) -> Features {
    let mut wanted = Features::POSIX_ACL
        | Features::DONT_MASK
        | Features::DO_READDIRPLUS
        | Features::READDIRPLUS_AUTO
        | Features::PARALLEL_DIROPS
        | Features::CACHE_SYMLINKS
        | Features::ASYNC_READ
        | Features::ASYNC_DIO
        | Features::HANDLE_KILLPRIV_V2
        | Features::SETXATTR_EXT
        | Features::CREATE_SUPP_GROUP
        | Features::EXPORT_SUPPORT
        | Features::NO_OPENDIR_SUPPORT;
    if opens == Opens::Silent {
        wanted |= Features::NO_OPEN_SUPPORT;
    }
    if cache == WriteCache::Back {
        wanted |= Features::WRITEBACK_CACHE;
    }
    offered & wanted
}
