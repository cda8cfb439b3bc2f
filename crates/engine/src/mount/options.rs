//! How a filesystem is opened.

use crate::journal::HostSpace;

/// How to open a filesystem.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// Ignore a dirty log and read what is in place; nothing is written then.
    pub no_recovery: bool,
    /// Bytes of metadata to keep in memory: half of it for buffers, half for inodes.
    pub cache_bytes: usize,
    /// Namespace and attribute operations are durable when they return.
    pub wsync: bool,
    /// New inodes get numbers of 32 bits, for programs that know no larger ones: they are made in the first AGs, of
    /// which all inodes have such numbers.
    pub inode32: bool,
    /// Leave intents out of the log whose done items are in the same checkpoint.
    pub whiteouts: bool,
    /// How attributes are updated.
    pub attr_path: AttrPath,
    /// Do not search for attributes that an inode is known not to have.
    pub known_absent: bool,
    /// Whether updates of attributes that take several transactions are logged by intents, until the caller decides
    /// otherwise.
    pub attr_logging: AttrLogging,
    /// The space that the host must have for the journal.
    pub host_space: HostSpace,
    /// Count how long transactions hold AG headers and inodes, for a model of contention.
    pub lock_times: bool,
    /// Which free space is given back to the host without being asked.
    pub discard: Discard,
    /// Places that are to fail, by their tags, each when it is passed for the nth time. One that is named again fails
    /// the next time, too.
    pub error_tags: Vec<(&'static str, u32)>,
}

/// Which free space is given back to the host, by [`BlockDevice::discard`](xfskit_device::BlockDevice::discard),
/// without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// None.
    #[default]
    Nothing,
    /// What is freed: when a sync or the unmount has made that durable, and unless it is in use again.
    Freed,
}

/// How attributes and parent pointers are updated. Users leave this as it is: the slower ways are for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttrPath {
    /// An update that the shortform takes is made in the caller's transaction, and no intent is logged. Others take the
    /// general way.
    #[default]
    Fast,
    /// Every update takes the general way, of forms and conversions, in as few transactions as it can.
    General,
    /// Every update that may be logged has an intent, and is made by a transaction of its own, as the kernel did before
    /// it had the fast path: those of parent pointers, and with [`AttrLogging::Always`] the others.
    Intents,
}

/// Whether an update of an attribute that takes several transactions is logged by intents. Those of parent pointers
/// always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttrLogging {
    /// It is not. Readers and crashes see the attribute as it was or as it will be; a crash before the last transaction
    /// leaves it as it was.
    #[default]
    Never,
    /// It is, as with the kernel's `larp` switch: once its first transaction is durable, recovery finishes it. An
    /// update that one transaction makes needs no intent.
    Always,
}

impl AttrLogging {
    const ALL: [Self; 2] = [Self::Never, Self::Always];

    /// Its name in options, which [`Self::from_name`] takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
        }
    }

    /// The one with a name.
    ///
    /// ```
    /// use xfskit_engine::AttrLogging;
    ///
    /// assert_eq!(AttrLogging::from_name("always"), Some(AttrLogging::Always));
    /// assert_eq!(AttrLogging::from_name("sometimes"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|logging| logging.name() == name)
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            cache_bytes: 256 << 20,
            wsync: false,
            inode32: false,
            whiteouts: true,
            attr_path: AttrPath::Fast,
            known_absent: true,
            attr_logging: AttrLogging::Never,
            host_space: HostSpace::All,
            lock_times: false,
            discard: Discard::Nothing,
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
