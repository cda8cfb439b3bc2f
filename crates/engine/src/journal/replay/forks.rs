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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::cluster::locate;
    use crate::test_image::TestImage;
    use crate::{Caller, MountOptions, NewFile, Volume};
    use xfskit_device::BlockDevice;

    /// Beside the map that the engine reads: forks in the inode and trees of one level and of two, with counters of
    /// both sizes.
    #[test]
    fn maps_of_files_are_those_of_the_engine() {
        for large_counters in ["nrext64=1", "nrext64=0,exchange=0"] {
            let image = TestImage::new(300, &[('b', "size=1024"), ('n', "parent=0"), ('i', large_counters)]);
            let open = || Volume::open(Arc::clone(&image.device) as _, MountOptions::default()).unwrap();
            let fs = open();
            let geometry = Arc::clone(&fs.mount().geometry);
            let make = |count: u64| {
                let name = format!("file of {count} pieces");
                let file = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
                for n in 0..count {
                    fs.write_at(file, n * 4096, &[7; 1024 * 2]).unwrap();
                }
                file
            };
            let files = [0, 1, 2, 8, 200, 3000].map(|count| (make(count), count));
            fs.unmount().unwrap();
            let fs = open();
            for (file, count) in files {
                let (address, offset) = locate(&geometry, file).unwrap();
                let mut slot = vec![0; geometry.inode_bytes()];
                image.device.read(address.bytes() + offset as u64, &mut slot).unwrap();
                let mut blocks = Blocks::new(Arc::clone(&image.device) as _, Arc::clone(&geometry), |_| None, 0..0);
                let mut found = blocks.data_extents(file, &slot).unwrap();
                found.sort_by_key(|extent| extent.file_block);
                let place = |extent: &Extent| {
                    let disk = geometry.fs_block_address(extent.block).unwrap().bytes();
                    (extent.file_block.0 << 10, extent.count << 10, disk)
                };
                let expected = fs.file_extents(file).unwrap();
                assert_eq!(
                    found.iter().map(place).collect::<Vec<_>>(),
                    expected.iter().map(|extent| (extent.offset, extent.length, extent.disk)).collect::<Vec<_>>()
                );
                assert_eq!(found.len() as u64, count);
            }
            fs.unmount().unwrap();
        }
    }

    #[test]
    fn a_tree_has_blocks_of_its_own_kind_level_and_number() {
        let image = TestImage::new(64, &[]);
        let geometry = Arc::clone(&image.mount().geometry);
        let visited = |magic: u32, level: u16, children: &[u64]| {
            let mut blocks = Blocks::new(Arc::clone(&image.device) as _, Arc::clone(&geometry), |_| None, 0..0);
            for child in [1000, 1001] {
                let mut bytes = vec![0; geometry.block_bytes()];
                bytes[..4].copy_from_slice(&magic.to_be_bytes());
                bytes[4..6].copy_from_slice(&level.to_be_bytes());
                blocks.make(geometry.fs_block_address(FsBlock(child)).unwrap(), bytes).unwrap();
            }
            // A root of one level, with room for three pointers.
            let mut root = vec![0; 4 + 3 * 16];
            root[1] = 1;
            root[3] = children.len() as u8;
            for (child, place) in children.iter().zip(root[4 + 3 * 8..].chunks_exact_mut(8)) {
                place.copy_from_slice(&child.to_be_bytes());
            }
            let mut count = 0;
            blocks.visit_tree(InodeNumber(131), &root, &mut |_, _| count += 1).map(|()| count)
        };
        assert_eq!(visited(BMBT_MAGIC, 0, &[1000, 1001]).unwrap(), 2);
        assert_eq!(visited(BMBT_MAGIC, 0, &[1001]).unwrap(), 1);
        assert!(visited(BMBT_MAGIC, 1, &[1000]).is_err());
        assert!(visited(BMBT_MAGIC + 1, 0, &[1000]).is_err());
        assert!(visited(BMBT_MAGIC, 0, &[u64::MAX >> 12]).is_err());
    }
}
