//! Inodes in memory.

use super::extent_list::ExtentList;
use super::{DirMemory, DirtyBlocks};
use crate::item::{ItemState, LogItem};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};
use xfskit_ondisk::{Extent, ForkBytes, InodeCore, InodeNumber, Timestamp};

/// Which fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForkKind {
    /// Contents, directory entries, the target of a symbolic link.
    Data,
    /// Extended attributes.
    Attr,
}

/// The contents of a local fork; in the inode's own memory as long as they are short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalBytes(SmallVec<[u8; LOCAL_BYTES]>);

/// Room for a parent pointer of a long name and an attribute or two.
const LOCAL_BYTES: usize = 144;

impl LocalBytes {
    /// Whole contents.
    pub fn new(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl std::ops::Deref for LocalBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for LocalBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl ForkBytes for LocalBytes {
    fn append(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn take_out(&mut self, range: std::ops::Range<usize>) {
        let (start, length) = (range.start, self.0.len());
        self.0.copy_within(range.end..length, start);
        self.0.truncate(length - range.len());
    }
}

/// What a fork holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fork {
    /// A device number, in XFS's own encoding.
    Dev(u32),
    /// The contents themselves.
    Local(LocalBytes),
    /// All extents, in order.
    Extents(Vec<Extent>),
    /// The root of the extent map's btree, and the extents once they were read.
    Btree {
        /// The root's level; leaves have level 0, so at least 1.
        level: u16,
        /// First fork block under each child.
        keys: Vec<u64>,
        /// The children.
        children: Vec<u64>,
        /// All extents, in order; read from the tree when they are first needed.
        extents: OnceLock<ExtentList>,
    },
}

/// Kinds of attributes that an inode is known not to have. A bit stays set from the first look that found nothing
/// until an attribute of the kind is added or the inode leaves the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownAbsent(u8);

impl KnownAbsent {
    /// Plain user attributes.
    pub const USER: Self = Self(1 << 0);
    /// `trusted.` attributes, ACLs included.
    pub const ROOT: Self = Self(1 << 1);
    /// `security.` attributes, labels and capabilities.
    pub const SECURE: Self = Self(1 << 2);
    /// An access ACL.
    pub const ACCESS_ACL: Self = Self(1 << 3);
    /// A default ACL.
    pub const DEFAULT_ACL: Self = Self(1 << 4);
    /// Everything: a new inode.
    pub const ALL: Self = Self(0x1f);

    /// Whether all bits of `kinds` are known to be absent.
    pub fn contains(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// Remembers that `kinds` are absent.
    pub fn insert(&mut self, kinds: Self) {
        self.0 |= kinds.0;
    }

    /// Forgets about `kinds`.
    pub fn remove(&mut self, kinds: Self) {
        self.0 &= !kinds.0;
    }

    /// Both sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An inode under its lock.
#[derive(Debug)]
pub struct InodeState {
    /// The core.
    pub core: InodeCore,
    /// The data fork.
    pub data: Fork,
    /// The attr fork, if there is one.
    pub attr: Option<Fork>,
    /// Attributes that a search would not find.
    pub known_absent: KnownAbsent,
    /// The inode was freed, and this object does not stand for it any more.
    pub freed: bool,
    /// Contents that have no place on disk yet.
    pub dirty: Option<Box<DirtyBlocks>>,
    /// What is remembered of the blocks of a large directory.
    pub dir_memory: Option<Box<DirMemory>>,
}

impl InodeState {
    /// The size of the file for its users, in bytes: the core's may be behind.
    pub fn size_bytes(&self) -> u64 {
        self.dirty.as_ref().and_then(|dirty| dirty.size_bytes).unwrap_or(self.core.size)
    }

    /// Whether nothing of the contents waits in memory.
    pub fn is_settled(&self) -> bool {
        self.dirty.as_ref().is_none_or(|dirty| dirty.is_empty())
    }

    /// The fork, if the inode has it.
    pub fn fork(&self, kind: ForkKind) -> Option<&Fork> {
        match kind {
            ForkKind::Data => Some(&self.data),
            ForkKind::Attr => self.attr.as_ref(),
        }
    }

    /// The fork for a change.
    pub fn fork_mut(&mut self, kind: ForkKind) -> Option<&mut Fork> {
        match kind {
            ForkKind::Data => Some(&mut self.data),
            ForkKind::Attr => self.attr.as_mut(),
        }
    }
}

/// A cached inode.
pub struct Inode {
    /// Its number.
    pub number: InodeNumber,
    state: Arc<RwLock<InodeState>>,
    item: ItemState,
    /// Times the inode is open (or looked up through FUSE); an unlinked inode lives until this is zero.
    pub opens: AtomicU32,
    /// Disk address of the cluster that holds the inode, for write-back.
    pub cluster: u64,
    /// Where it lies in the cluster, in bytes.
    pub offset_in_cluster: u32,
    /// When the contents were last written in place, in nanoseconds since 1970; 0 when the inode's core knows it.
    written_at: AtomicU64,
}

impl Inode {
    /// An inode as it was read or made.
    pub fn new(state: InodeState, cluster: u64, offset_in_cluster: usize) -> Self {
        Self {
            number: state.core.inode,
            state: Arc::new(RwLock::new(state)),
            item: ItemState::default(),
            opens: AtomicU32::new(0),
            cluster,
            offset_in_cluster: offset_in_cluster as u32,
            written_at: AtomicU64::new(0),
        }
    }

    /// The contents were written in place, under a shared lock. `true` the first time since the core was told.
    pub fn note_write(&self, now: Timestamp) -> bool {
        let nanoseconds = (now.seconds.max(0) as u64).saturating_mul(1_000_000_000) + u64::from(now.nanoseconds);
        self.written_at.swap(nanoseconds.max(1), Ordering::AcqRel) == 0
    }

    /// When the contents were last written in place, if the core does not know it yet.
    pub fn noted_write(&self) -> Option<Timestamp> {
        Self::time_of(self.written_at.load(Ordering::Acquire))
    }

    fn time_of(nanoseconds: u64) -> Option<Timestamp> {
        (nanoseconds != 0).then_some(Timestamp {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as u32,
        })
    }

    /// As [`Self::noted_write`], for whoever tells the core. A write that is noted after this is a new one.
    pub fn take_noted_write(&self) -> Option<Timestamp> {
        Self::time_of(self.written_at.swap(0, Ordering::AcqRel))
    }

    /// The lock around the state.
    pub fn state_lock(&self) -> &Arc<RwLock<InodeState>> {
        &self.state
    }

    /// The journal's bookkeeping.
    pub fn item(&self) -> &ItemState {
        &self.item
    }
}

impl LogItem for Inode {
    fn state(&self) -> &ItemState {
        &self.item
    }

    fn home(&self) -> u64 {
        self.cluster
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}
