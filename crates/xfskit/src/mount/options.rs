//! How a filesystem is opened.

use crate::journal::HostSpace;

/// How to open a filesystem.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// With `read_only`: ignore a dirty log and read what is in place.
    pub no_recovery: bool,
    /// Bytes of metadata to keep in memory: half of it for buffers, half for inodes.
    pub cache_bytes: usize,
    /// Namespace and attribute operations are durable when they return.
    pub wsync: bool,
    /// Leave intents out of the log whose done items are in the same checkpoint.
    pub whiteouts: bool,
    /// Update attributes in shortform in one transaction, without an intent.
    pub attr_fast_path: bool,
    /// Do not search for attributes that an inode is known not to have.
    pub known_absent: bool,
    /// When plain attribute updates that need several transactions are logged by intents.
    pub attr_logging: AttrLogging,
    /// The space that the host must have for the journal.
    pub host_space: HostSpace,
    /// Count how long transactions hold AG headers and inodes, for a model of contention.
    pub lock_times: bool,
    /// Places that are to fail, by their tags, each when it is passed for the nth time.
    pub error_tags: Vec<(&'static str, u32)>,
}

/// When plain attribute updates are logged by intents. Parent pointers always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrLogging {
    /// As the engine chooses. It logs none, for each is atomic by itself.
    Auto,
    /// Always, as with the kernel's `larp` switch.
    Always,
    /// Never, whatever the engine would choose.
    Never,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            cache_bytes: 256 << 20,
            wsync: false,
            whiteouts: true,
            attr_fast_path: true,
            known_absent: true,
            attr_logging: AttrLogging::Auto,
            host_space: HostSpace::All,
            lock_times: false,
            error_tags: Vec::new(),
        }
    }
}

impl MountOptions {
    /// Options for looking only.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}
