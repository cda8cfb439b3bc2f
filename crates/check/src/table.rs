//! What the check records of every inode: 24 bytes each, in the order of the inode trees.
//!
//! Names and parent pointers are not stored. Each name adds a hash of (directory, its generation, inode, name) to its
//! inode's sum, and each parent pointer subtracts one, so that the sum is zero if the two agree.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use xfskit_ondisk::btree::InodeChunk;
use xfskit_ondisk::dir::FileType;
use xfskit_ondisk::{AgInode, AgNumber, Geometry, INODES_PER_CHUNK, InodeNumber};

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not in use.
    Free,
    /// In use, and so damaged that its type is not known.
    Damaged,
    /// In use.
    Used(FileType),
}

const DAMAGED: u8 = 0xff;

/// What the check records of an inode.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Hashes of names minus hashes of parent pointers.
    balance: AtomicU64,
    /// Names that lead to the inode, `.` and `..` included.
    names: AtomicU32,
    /// Names that the inode itself counts.
    links: AtomicU32,
    kind: AtomicU8,
}

impl Slot {
    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Relaxed) {
            0 => Kind::Free,
            DAMAGED => Kind::Damaged,
            byte => FileType::decode(byte).map_or(Kind::Damaged, Kind::Used),
        }
    }

    pub(crate) fn set(&self, kind: Kind, links: u32) {
        let byte = match kind {
            Kind::Free => 0,
            Kind::Damaged | Kind::Used(FileType::Unknown) => DAMAGED,
            Kind::Used(file_type) => file_type as u8,
        };
        self.kind.store(byte, Ordering::Relaxed);
        self.links.store(links, Ordering::Relaxed);
    }

    pub(crate) fn links(&self) -> u32 {
        self.links.load(Ordering::Relaxed)
    }

    pub(crate) fn names(&self) -> u32 {
        self.names.load(Ordering::Relaxed)
    }

    pub(crate) fn add_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_to_balance(&self, hash: u64) {
        self.balance.fetch_add(hash, Ordering::Relaxed);
    }

    pub(crate) fn take_from_balance(&self, hash: u64) {
        self.balance.fetch_sub(hash, Ordering::Relaxed);
    }

    pub(crate) fn is_balanced(&self) -> bool {
        self.balance.load(Ordering::Relaxed) == 0
    }
}

/// The inodes of an AG.
#[derive(Debug, Default)]
pub(crate) struct AgInodes {
    /// The chunks, by their first inode; they do not overlap.
    chunks: Vec<InodeChunk>,
    /// 64 slots for each chunk.
    slots: Vec<Slot>,
}

impl AgInodes {
    pub(crate) fn new(chunks: Vec<InodeChunk>) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(chunks.len() * INODES_PER_CHUNK as usize, Slot::default);
        Self { chunks, slots }
    }

    pub(crate) fn chunks(&self) -> &[InodeChunk] {
        &self.chunks
    }

    /// The index of the chunk that contains an inode.
    pub(crate) fn chunk_of(&self, inode: AgInode) -> Option<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.first <= inode).checked_sub(1)?;
        self.chunks[index].index_of(inode).map(|_| index)
    }

    /// The slot of inode `bit` of a chunk.
    pub(crate) fn slot(&self, chunk: usize, bit: u32) -> &Slot {
        &self.slots[chunk * INODES_PER_CHUNK as usize + bit as usize]
    }
}

/// All inodes.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    pub(crate) ags: Vec<AgInodes>,
}

impl InodeTable {
    /// The slot of an inode that exists, in use or not.
    pub(crate) fn find(&self, geometry: &Geometry, inode: InodeNumber) -> Option<&Slot> {
        let (ag, within) = geometry.split_inode(inode)?;
        let inodes = self.ags.get(ag.0 as usize)?;
        let chunk = inodes.chunk_of(within)?;
        let bit = inodes.chunks[chunk].index_of(within)?;
        let exists = inodes.chunks[chunk].hole_mask == 0 || inodes.chunks[chunk].holes() >> bit & 1 == 0;
        exists.then(|| inodes.slot(chunk, bit))
    }

    /// Every inode in use.
    pub(crate) fn used<'a>(&'a self, geometry: &'a Geometry) -> impl Iterator<Item = (InodeNumber, &'a Slot)> {
        self.ags.iter().enumerate().flat_map(move |(ag, inodes)| {
            inodes.chunks.iter().enumerate().flat_map(move |(index, chunk)| {
                (0..INODES_PER_CHUNK).filter_map(move |bit| {
                    let slot = inodes.slot(index, bit);
                    let number = geometry.inode_number(AgNumber(ag as u32), AgInode(chunk.first.0 + bit));
                    (slot.kind() != Kind::Free).then_some((number, slot))
                })
            })
        })
    }
}

/// The hash of a name of `child` in `directory`.
pub(crate) fn name_hash(directory: InodeNumber, generation: u32, child: InodeNumber, name: &[u8]) -> u64 {
    let mut hash = mix(directory.0 ^ 0x9e37_79b9_7f4a_7c15, child.0.wrapping_add(u64::from(generation) << 32));
    let mut words = name.chunks_exact(8);
    for word in &mut words {
        let word = word.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        hash = mix(hash ^ word, 0xd6e8_feb8_6659_fd93);
    }
    let rest = words.remainder().iter().fold(name.len() as u64, |value, &byte| value << 8 | u64::from(byte));
    mix(hash ^ rest, 0xa076_1d64_78bd_642f)
}

/// The two halves of a product, folded.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(a.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_name_counts_in_its_hash() {
        let base = name_hash(InodeNumber(128), 7, InodeNumber(131), b"a name of some length");
        let others = [
            name_hash(InodeNumber(129), 7, InodeNumber(131), b"a name of some length"),
            name_hash(InodeNumber(128), 8, InodeNumber(131), b"a name of some length"),
            name_hash(InodeNumber(128), 7, InodeNumber(132), b"a name of some length"),
            name_hash(InodeNumber(128), 7, InodeNumber(131), b"a name of some Length"),
            name_hash(InodeNumber(128), 7, InodeNumber(131), b"a name of some lengtH"),
        ];
        assert!(others.iter().all(|&other| other != base));
    }
}
