//! Forks of inodes as they lie in their clusters, and the btrees of their extent maps. Recovery has no inodes in memory
//! and runs no transactions, so it looks at the bytes.

use super::blocks::{Block, Blocks};
use crate::error::Result;
use crate::incore::ForkKind;
use std::sync::Arc;
use xfskit_ondisk::btree::{BMBT_MAGIC, LONG_HEADER_BYTES, LongBlockHeader};
use xfskit_ondisk::extent::EXTENT_RECORD_BYTES;
use xfskit_ondisk::inode::INODE_CORE_BYTES;
use xfskit_ondisk::{Corruption, Extent, FsBlock, InodeNumber};
use zerocopy::FromBytes;

pub(super) const FORMAT_EXTENTS: u8 = 2;
pub(super) const FORMAT_BTREE: u8 = 3;
/// No extent map of 2^48 records is higher.
const MAX_LEVELS: u16 = 9;

/// The format of a fork and its bytes.
pub(super) fn fork_of(inode: &[u8], fork: ForkKind) -> (u8, &[u8]) {
    let forks = &inode[INODE_CORE_BYTES..];
    let start = usize::from(inode[82]) * 8;
    match (fork, start) {
        (ForkKind::Data, 0) => (inode[5], forks),
        (ForkKind::Data, start) => (inode[5], &forks[..start.min(forks.len())]),
        (ForkKind::Attr, 0) => (0, &[]),
        (ForkKind::Attr, start) => (inode[83], &forks[start.min(forks.len())..]),
    }
}

/// The extents that an inode counts in its data fork.
fn data_extent_count(inode: &[u8]) -> usize {
    const NREXT64: u64 = 1 << 4;
    let number = |at: usize, bytes: usize| inode[at..at + bytes].iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let count = if number(120, 8) & NREXT64 != 0 { number(24, 8) } else { number(76, 4) };
    // A fork has room for far fewer: [`extents`] stops at its end.
    count.min(u64::from(u32::MAX)) as usize
}

/// The extent records at the start of `area`.
pub(super) fn extents(area: &[u8], count: usize) -> impl Iterator<Item = Extent> {
    let records = area.chunks_exact(EXTENT_RECORD_BYTES).take(count);
    records.map(|record| Extent::decode(record.try_into().expect("chunks of this size")))
}

/// The pointers of a node or root: behind room for as many keys as pointers.
fn children(area: &[u8], records: usize) -> Option<Vec<FsBlock>> {
    let room = area.len() / 16;
    let pointers = area.get(8 * room..8 * room + 8 * records)?;
    let pointer = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok().map(FsBlock);
    pointers.chunks_exact(8).map(pointer).collect()
}

impl Blocks {
    /// Calls `visit` with every block of a btree, level by level from the root. `fork` is the root: the bytes of a fork
    /// of `owner`.
    pub(super) fn visit_tree(
        &mut self,
        owner: InodeNumber,
        fork: &[u8],
        visit: &mut dyn FnMut(&mut Block, u16),
    ) -> Result<()> {
        let geometry = Arc::clone(&self.geometry);
        let wrong = || Corruption::new("bmbt block", "one of the inode's tree").of(owner.0);
        let (header, area) = fork.split_at_checked(4).ok_or_else(wrong)?;
        let level = u16::from_be_bytes([header[0], header[1]]);
        let records = u16::from_be_bytes([header[2], header[3]]);
        let mut blocks = children(area, records.into()).ok_or_else(wrong)?;
        for level in (0..level.min(MAX_LEVELS)).rev() {
            let mut below = Vec::new();
            for block in blocks {
                let address = geometry.fs_block_address(block).ok_or_else(wrong)?;
                let found = self.read(address, geometry.block_bytes())?;
                let (header, area) = LongBlockHeader::ref_from_prefix(&found.bytes).map_err(|_| wrong())?;
                if header.magic.get() != BMBT_MAGIC || header.level.get() != level {
                    return Err(wrong().at(address).into());
                }
                if level > 0 {
                    below.extend(children(area, header.records.get().into()).ok_or_else(wrong)?);
                }
                visit(found, level);
            }
            // Every block has one parent. This bounds the tree by the size of the device.
            below.sort_unstable();
            if below.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(wrong().into());
            }
            blocks = below;
        }
        Ok(())
    }

    /// All extents of a data fork, as far as they make sense.
    pub(super) fn data_extents(&mut self, owner: InodeNumber, inode: &[u8]) -> Result<Vec<Extent>> {
        let (format, fork) = fork_of(inode, ForkKind::Data);
        let mut list = Vec::new();
        match format {
            // Behind the records that count there may be stale ones.
            FORMAT_EXTENTS => list.extend(extents(fork, data_extent_count(inode))),
            FORMAT_BTREE => self.visit_tree(owner, fork, &mut |block, level| {
                if level == 0 {
                    let records = usize::from(u16::from_be_bytes([block.bytes[6], block.bytes[7]]));
                    list.extend(extents(&block.bytes[LONG_HEADER_BYTES..], records));
                }
            })?,
            _ => {}
        }
        let geometry = Arc::clone(&self.geometry);
        list.retain(|extent| extent.verify(&geometry).is_ok());
        Ok(list)
    }
}
