//! The three headers of an AG that follow its copy of the superblock, a sector each.
//!
//! ```text
//! sector 0 superblock   1 AGF: free space trees, rmap and refcount trees   2 AGI: inode trees, unlinked lists
//!        3 AGFL: a ring of blocks reserved for the free space and rmap trees
//! ```
//! Facts: the XFS Algorithms & Data Structures document, "Allocation Groups"; the kernel's `struct xfs_agf`,
//! `struct xfs_agi` and `struct xfs_agfl`.

use crate::{AgNumber, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `"XAGF"`.
pub const AGF_MAGIC: u32 = 0x5841_4746;
/// `"XAGI"`.
pub const AGI_MAGIC: u32 = 0x5841_4749;
/// `"XAFL"`.
pub const AGFL_MAGIC: u32 = 0x5841_464c;
/// Where the checksum of the AGF stands.
pub const AGF_CRC_OFFSET: usize = 216;
/// Where the checksum of the AGI stands.
pub const AGI_CRC_OFFSET: usize = 312;
/// Where the checksum of the AGFL stands.
pub const AGFL_CRC_OFFSET: usize = 32;
/// Where the LSN of the AGF stands.
pub const AGF_LSN_OFFSET: usize = 208;
/// Where the LSN of the AGI stands.
pub const AGI_LSN_OFFSET: usize = 320;
/// Where the LSN of the AGFL stands.
pub const AGFL_LSN_OFFSET: usize = 24;
/// Size of the AGFL's header in bytes.
pub const AGFL_HEADER_BYTES: usize = 36;
/// Buckets of the hash of unlinked inodes.
pub const UNLINKED_BUCKETS: usize = 64;
/// Greatest height of any btree of an AG that a header may name.
pub const MAX_BTREE_LEVELS: u32 = 9;

/// Free space of an AG (`struct xfs_agf`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct Agf {
    pub magic: U32,
    pub version: U32,
    pub ag: U32,
    pub length: U32,
    pub bno_root: U32,
    pub cnt_root: U32,
    pub rmap_root: U32,
    pub bno_level: U32,
    pub cnt_level: U32,
    pub rmap_level: U32,
    pub fl_first: U32,
    pub fl_last: U32,
    pub fl_count: U32,
    pub free_blocks: U32,
    pub longest: U32,
    pub btree_blocks: U32,
    pub uuid: [u8; 16],
    pub rmap_blocks: U32,
    pub refcount_blocks: U32,
    pub refcount_root: U32,
    pub refcount_level: U32,
    pub spare: [u8; 112],
    pub lsn: U64,
    pub crc: [u8; 4],
    pub spare2: U32,
}

/// Inodes of an AG (`struct xfs_agi`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct Agi {
    pub magic: U32,
    pub version: U32,
    pub ag: U32,
    pub length: U32,
    pub count: U32,
    pub root: U32,
    pub level: U32,
    pub free_count: U32,
    pub newest: U32,
    pub dir_inode: U32,
    pub unlinked: [U32; UNLINKED_BUCKETS],
    pub uuid: [u8; 16],
    pub crc: [u8; 4],
    pub pad: U32,
    pub lsn: U64,
    pub free_root: U32,
    pub free_level: U32,
    pub inode_blocks: U32,
    pub free_inode_blocks: U32,
}

/// Header of the free list (`struct xfs_agfl`); the ring of block numbers follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct AgflHeader {
    pub magic: U32,
    pub ag: U32,
    pub uuid: [u8; 16],
    pub lsn: U64,
    pub crc: [u8; 4],
}

impl Geometry {
    /// Entries in the ring of the AGFL: as many as fit its sector after the header.
    pub fn agfl_entries(&self) -> u32 {
        ((self.sector_bytes() - AGFL_HEADER_BYTES) / 4) as u32
    }
}

impl Agf {
    /// Verifies an AGF against the geometry and the AG that it was read from.
    ///
    /// # Errors
    /// A corruption of the "AGF".
    pub fn verify(&self, geometry: &Geometry, ag: AgNumber) -> Verdict {
        const NAME: &str = "AGF";
        ensure!(self.magic.get() == AGF_MAGIC, NAME, "magic number", "{:#010x}", self.magic);
        ensure!(self.version.get() == 1, NAME, "version 1", "{}", self.version);
        ensure!(self.uuid == geometry.meta_uuid, NAME, "uuid");
        ensure!(self.ag.get() == ag.0, NAME, "own AG number", "{}", self.ag);
        let length = geometry.blocks_in_ag(ag);
        ensure!(self.length.get() == length, NAME, "length of the AG", "{} instead of {length}", self.length);
        ensure!(self.free_blocks.get() <= length, NAME, "free blocks fit the AG", "{}", self.free_blocks);
        ensure!(self.longest.get() <= self.free_blocks.get(), NAME, "longest extent is free", "{}", self.longest);
        let entries = geometry.agfl_entries();
        ensure!(
            self.fl_first.get() < entries && self.fl_last.get() < entries && self.fl_count.get() <= entries,
            NAME,
            "free list within its ring",
            "{} to {}, {}",
            self.fl_first,
            self.fl_last,
            self.fl_count
        );
        let mut trees = vec![("bnobt", &self.bno_root, &self.bno_level), ("cntbt", &self.cnt_root, &self.cnt_level)];
        if geometry.has_rmap() {
            trees.push(("rmapbt", &self.rmap_root, &self.rmap_level));
        }
        if geometry.has_reflink() {
            trees.push(("refcountbt", &self.refcount_root, &self.refcount_level));
        }
        for (tree, root, level) in trees {
            ensure!((1..=MAX_BTREE_LEVELS).contains(&level.get()), NAME, "tree height", "{tree}: {level}");
            ensure!(root.get() < length, NAME, "tree root within the AG", "{tree}: {root}");
        }
        let counters = [self.btree_blocks, self.rmap_blocks, self.refcount_blocks];
        ensure!(counters.iter().all(|blocks| blocks.get() <= length), NAME, "btree block counters", "{counters:?}");
        Ok(())
    }

    /// Verifies that the free list's count agrees with its first and last entry. The ring of kernels before 4.17 had
    /// one entry more or less, so a list that such a kernel wrote may fail here: it must not be used, but the rest of
    /// the AG is sound.
    ///
    /// # Errors
    /// A corruption of the "AGF".
    pub fn verify_free_list(&self, geometry: &Geometry) -> Verdict {
        let entries = geometry.agfl_entries();
        let (first, last, count) = (self.fl_first.get(), self.fl_last.get(), self.fl_count.get());
        let active = (last + entries + 1 - first) % entries;
        let fits = count % entries == active || count == 0;
        ensure!(fits, "AGF", "free list count", "{count} from {first} to {last}");
        Ok(())
    }
}

impl Agi {
    /// Verifies an AGI against the geometry and the AG that it was read from.
    ///
    /// # Errors
    /// A corruption of the "AGI".
    pub fn verify(&self, geometry: &Geometry, ag: AgNumber) -> Verdict {
        const NAME: &str = "AGI";
        ensure!(self.magic.get() == AGI_MAGIC, NAME, "magic number", "{:#010x}", self.magic);
        ensure!(self.version.get() == 1, NAME, "version 1", "{}", self.version);
        ensure!(self.uuid == geometry.meta_uuid, NAME, "uuid");
        ensure!(self.ag.get() == ag.0, NAME, "own AG number", "{}", self.ag);
        let length = geometry.blocks_in_ag(ag);
        ensure!(self.length.get() == length, NAME, "length of the AG", "{} instead of {length}", self.length);
        let most = u64::from(length) * u64::from(geometry.inodes_per_block());
        ensure!(
            u64::from(self.count.get()) <= most,
            NAME,
            "no more inodes than fit the AG",
            "{} of {most}",
            self.count
        );
        ensure!(
            self.free_count.get() <= self.count.get(),
            NAME,
            "free inodes exist",
            "{} of {}",
            self.free_count,
            self.count
        );
        ensure!((1..=MAX_BTREE_LEVELS).contains(&self.level.get()), NAME, "tree height", "inobt: {}", self.level);
        ensure!(self.root.get() < length, NAME, "tree root within the AG", "inobt: {}", self.root);
        if geometry.has_finobt() {
            ensure!(
                (1..=MAX_BTREE_LEVELS).contains(&self.free_level.get()),
                NAME,
                "tree height",
                "finobt: {}",
                self.free_level
            );
            ensure!(self.free_root.get() < length, NAME, "tree root within the AG", "finobt: {}", self.free_root);
        }
        for (bucket, head) in self.unlinked.iter().enumerate() {
            let head = crate::AgInode(head.get());
            if head != crate::NULL_AG_INODE {
                ensure!(
                    geometry.contains(ag, geometry.inode_block(head)) && head.0 as usize % UNLINKED_BUCKETS == bucket,
                    NAME,
                    "unlinked list heads",
                    "inode {head} in bucket {bucket}"
                );
            }
        }
        Ok(())
    }
}

impl AgflHeader {
    /// Verifies the header of a free list; its entries are checked where they are used.
    ///
    /// # Errors
    /// A corruption of the "AGFL".
    pub fn verify(&self, geometry: &Geometry, ag: AgNumber) -> Verdict {
        const NAME: &str = "AGFL";
        ensure!(self.magic.get() == AGFL_MAGIC, NAME, "magic number", "{:#010x}", self.magic);
        ensure!(self.uuid == geometry.meta_uuid, NAME, "uuid");
        ensure!(self.ag.get() == ag.0, NAME, "own AG number", "{}", self.ag);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_have_the_documents_sizes_and_offsets() {
        assert_eq!(size_of::<Agf>(), 224);
        assert_eq!(size_of::<Agi>(), 344);
        assert_eq!(size_of::<AgflHeader>(), AGFL_HEADER_BYTES);
        assert_eq!(core::mem::offset_of!(Agf, crc), AGF_CRC_OFFSET);
        assert_eq!(core::mem::offset_of!(Agf, lsn), AGF_LSN_OFFSET);
        assert_eq!(core::mem::offset_of!(Agi, crc), AGI_CRC_OFFSET);
        assert_eq!(core::mem::offset_of!(Agi, lsn), AGI_LSN_OFFSET);
    }
}
