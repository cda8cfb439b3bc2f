//! Inodes in memory.

use super::{AttrFork, DataFork, DirMemory, DirtyBlocks, ForkKind, ForkMap};
use crate::item::{ItemState, LogItem};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use xfskit_ondisk::{InodeCore, InodeNumber, Timestamp};

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
    /// All kinds: a new inode.
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
    pub data: DataFork,
    /// The attr fork, if there is one.
    pub attr: Option<AttrFork>,
    /// Kinds of attributes that are known to be absent.
    pub known_absent: KnownAbsent,
    /// The inode was freed, and this object does not represent it any more.
    pub freed: bool,
    /// The core has times that were not logged.
    pub times_wait: bool,
    /// The file was made shorter, and neither an fsync of it has come since nor a sync that found it dirty.
    pub was_cut: bool,
    /// Contents that have no place on disk yet.
    pub dirty: Option<Box<DirtyBlocks>>,
    /// What is remembered of the blocks of a large directory.
    pub dir_memory: Option<Box<DirMemory>>,
    /// Bytes at the start of an append-only file that were received: those that it had when it was read, and those
    /// written since without a gap. Behind them there may be a gap that a cache above this library has not written yet.
    /// Never behind the end of the file. Whoever writes notes it under the lock under which it has written.
    pub received_bytes: AtomicU64,
}

impl InodeState {
    /// Notes that the bytes of an append-only file from `offset` to `end` were written.
    pub fn note_received(&self, offset: u64, end: u64) {
        if offset <= self.received_bytes.load(Ordering::Acquire) {
            self.received_bytes.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// Notes that the file ends at byte `size` now: what was received behind it is gone.
    pub fn note_cut(&self, size: u64) {
        self.received_bytes.fetch_min(size, Ordering::AcqRel);
    }

    /// The size of the file for its users, in bytes. The size in the core may be smaller.
    pub fn size_bytes(&self) -> u64 {
        self.dirty.as_ref().and_then(|dirty| dirty.size_bytes).unwrap_or(self.core.size)
    }

    /// Whether no contents and no size are dirty in memory.
    pub fn is_settled(&self) -> bool {
        self.dirty.as_ref().is_none_or(|dirty| dirty.is_empty())
    }

    /// Where a fork's blocks are, if the inode has the fork and it is one that has blocks.
    pub fn map(&self, kind: ForkKind) -> Option<&ForkMap> {
        match kind {
            ForkKind::Data => self.data.map(),
            ForkKind::Attr => self.attr.as_ref()?.map(),
        }
    }

    /// As [`Self::map`], for a change.
    pub fn map_mut(&mut self, kind: ForkKind) -> Option<&mut ForkMap> {
        match (kind, &mut self.data, &mut self.attr) {
            (ForkKind::Data, DataFork::Mapped(map), _) | (ForkKind::Attr, _, Some(AttrFork::Mapped(map))) => Some(map),
            _ => None,
        }
    }
}

/// The size of the smallest inode: inodes are at multiples of it.
const MIN_INODE_BYTES: usize = 256;

/// A cached inode.
pub struct Inode {
    /// Its number.
    pub number: InodeNumber,
    state: Arc<RwLock<InodeState>>,
    item: ItemState,
    /// Times the inode is open (or looked up through FUSE); an unlinked inode lives until this is zero.
    pub opens: AtomicU64,
    /// Where it lies: the disk address of its cluster, and in the lowest byte the offset in the cluster, in units of
    /// [`MIN_INODE_BYTES`].
    position: u64,
    /// When the contents were last written in place, in nanoseconds since 1970; 0 when that time is in the core.
    written_at: AtomicU64,
}

impl Inode {
    /// An inode as it was read or made.
    pub fn new(state: InodeState, cluster: u64, offset_in_cluster: usize) -> Self {
        let is_packed = offset_in_cluster.is_multiple_of(MIN_INODE_BYTES) && offset_in_cluster < MIN_INODE_BYTES << 8;
        assert!(
            is_packed && cluster < 1 << 56,
            "no cluster is larger than 64 KiB, and no inode smaller than 256 bytes"
        );
        Self {
            number: state.core.inode,
            state: Arc::new(RwLock::new(state)),
            item: ItemState::default(),
            opens: AtomicU64::new(0),
            position: cluster << 8 | (offset_in_cluster / MIN_INODE_BYTES) as u64,
            written_at: AtomicU64::new(0),
        }
    }

    /// Disk address of the cluster that contains the inode, for write-back.
    pub fn cluster(&self) -> u64 {
        self.position >> 8
    }

    /// Where it lies in the cluster, in bytes.
    pub fn offset_in_cluster(&self) -> usize {
        (self.position & 0xff) as usize * MIN_INODE_BYTES
    }

    /// Notes a write of contents in place, under a shared lock. Returns `true` for the first one since the core got the
    /// time.
    pub fn note_write(&self, now: Timestamp) -> bool {
        let nanoseconds = (now.seconds.max(0) as u64).saturating_mul(1_000_000_000) + u64::from(now.nanoseconds);
        self.written_at.swap(nanoseconds.max(1), Ordering::AcqRel) == 0
    }

    /// When the contents were last written in place, if that is not in the core yet.
    pub fn noted_write(&self) -> Option<Timestamp> {
        Self::time_of(self.written_at.load(Ordering::Acquire))
    }

    fn time_of(nanoseconds: u64) -> Option<Timestamp> {
        (nanoseconds != 0).then_some(Timestamp {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as u32,
        })
    }

    /// As [`Self::noted_write`], for a caller that stores the time in the core. Also forgets it.
    pub fn take_noted_write(&self) -> Option<Timestamp> {
        // Mostly there is none, and a load is cheaper than a swap.
        self.noted_write().and_then(|_| Self::time_of(self.written_at.swap(0, Ordering::AcqRel)))
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

    fn block_address(&self) -> u64 {
        self.cluster()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_inode_takes_nine_cache_lines() {
        // These sizes decide how many inodes a cache can keep, and how long an operation waits for one that is not in
        // the processor's caches. An `Arc` adds two words.
        let (inode, state) = (size_of::<Inode>(), size_of::<RwLock<InodeState>>());
        assert!(inode + 16 <= 128, "{inode}, of them {} bookkeeping", size_of::<ItemState>());
        assert!(state + 16 <= 448, "{state}, of them {} core", size_of::<InodeCore>());
    }
}
