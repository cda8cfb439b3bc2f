//! Directory blocks in several pieces.
//!
//! A directory block larger than a block may lie in several runs on the device, and the log then has an item for each
//! run that was changed. The block has one header, one checksum and one LSN, all in its first run. So such pieces are
//! verified and stamped only when everything else is written in place: then the extent maps of the directories that the
//! log names say which pieces make up a block. (A transaction that changes a directory block also logs the directory's
//! inode.)
//!
//! Crash behaviour: pieces are written before their block has its checksum. Recovery compares no LSN with them, so one
//! that starts over replays them again.
//!
//! The kernel takes each piece for a whole block and refuses such a log.

use super::blocks::Blocks;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::Arc;
use xfskit_ondisk::inode::{MODE_DIR, MODE_TYPE};
use xfskit_ondisk::{Corruption, DiskAddress, Extent, FsBlock, InodeNumber, Lsn};

/// Types of logged buffers that a directory's blocks have.
pub(super) const DIRECTORY_TYPES: std::ops::RangeInclusive<u16> = 10..=15;

/// Directories that the log names, each with the place of its inode: address and length of the cluster, offset in it.
#[derive(Default)]
pub(super) struct Directories {
    inodes: BTreeMap<InodeNumber, (DiskAddress, usize, usize)>,
}

impl Directories {
    /// The log has an item of a directory.
    pub(super) fn add(&mut self, inode: InodeNumber, address: DiskAddress, bytes: usize, offset: usize) {
        self.inodes.insert(inode, (address, bytes, offset));
    }
}

/// Where an extent of a directory starts on the device, for look-ups by address.
type ByAddress = BTreeMap<u64, (InodeNumber, Extent)>;

impl Blocks {
    /// Whether a changed block may be a piece of a directory block.
    pub(super) fn may_be_piece(&self, log_type: u16, bytes: usize) -> bool {
        bytes < self.geometry.dir_block_bytes() && DIRECTORY_TYPES.contains(&log_type)
    }

    /// Writes the pieces of directory blocks, and then the blocks that they belong to.
    pub(super) fn write_pieces(&mut self, directories: &Directories) -> Result<()> {
        let pieces: Vec<DiskAddress> = self.pieces().collect();
        let unstamped = self.all_unstamped();
        if pieces.is_empty() && unstamped.is_empty() {
            return Ok(());
        }
        let (maps, by_address) = self.maps(directories)?;
        let per_block = u64::from(self.geometry.dir_block_blocks());
        let mut blocks: BTreeMap<(InodeNumber, u64), Lsn> = BTreeMap::new();
        let mut add = |(inode, file_block): (InodeNumber, u64), lsn: Lsn| {
            let newest = blocks.entry((inode, file_block - file_block % per_block)).or_default();
            *newest = (*newest).max(lsn);
        };
        for address in pieces {
            // A block that no directory maps is a whole block of an attribute fork, and is written like others.
            let Some(place) = self.file_block_at(&by_address, address) else { continue };
            add(place, self.write_piece(address)?);
        }
        for (address, old) in unstamped {
            match self.file_block_at(&by_address, DiskAddress(address)) {
                Some(place) => add(place, old.lsn),
                None => self.finish_unstamped(DiskAddress(address), &old)?,
            }
        }
        for ((inode, first), lsn) in blocks {
            self.write_whole(inode, &maps[&inode], first, lsn)?;
        }
        Ok(())
    }

    /// The extents of the directories, and where they lie.
    fn maps(&mut self, directories: &Directories) -> Result<(BTreeMap<InodeNumber, Vec<Extent>>, ByAddress)> {
        let geometry = Arc::clone(&self.geometry);
        let (mut maps, mut by_address) = (BTreeMap::new(), ByAddress::new());
        for (&inode, &(address, bytes, offset)) in &directories.inodes {
            let slot = self.read(address, bytes)?.bytes[offset..offset + geometry.inode_bytes()].to_vec();
            if u16::from_be_bytes([slot[2], slot[3]]) & MODE_TYPE != MODE_DIR {
                continue;
            }
            let extents = self.data_extents(inode, &slot)?;
            for extent in &extents {
                if let Some(address) = geometry.fs_block_address(extent.block)
                    && let Some((other, _)) = by_address.insert(address.0, (inode, *extent))
                {
                    // This bounds the maps together by the size of the device.
                    let wrong = Corruption::new("extent record", "directories share no blocks").at(address);
                    return Err(wrong.of(inode.0).found(format_args!("one of inode {other}")).into());
                }
            }
            maps.insert(inode, extents);
        }
        Ok((maps, by_address))
    }

    /// Which block of which directory lies at an address.
    fn file_block_at(&self, by_address: &ByAddress, address: DiskAddress) -> Option<(InodeNumber, u64)> {
        let (start, (inode, extent)) = by_address.range(..=address.0).next_back()?;
        let blocks = (address.0 - start) >> (self.geometry.block_log - 9);
        (blocks < extent.count).then(|| (*inode, extent.file_block.0 + blocks))
    }

    /// Puts a directory block together from its runs, stamps it, and writes them.
    fn write_whole(&mut self, inode: InodeNumber, extents: &[Extent], first: u64, lsn: Lsn) -> Result<()> {
        let geometry = Arc::clone(&self.geometry);
        let block_bytes = geometry.block_bytes();
        let addresses: Option<Vec<DiskAddress>> = (first..first + u64::from(geometry.dir_block_blocks()))
            .map(|block| {
                let found = extents.iter().find(|extent| (extent.file_block.0..extent.end().0).contains(&block))?;
                geometry.fs_block_address(FsBlock(found.block.0 + block - found.file_block.0))
            })
            .collect();
        let wrong = || Corruption::new("directory block", "all of it is mapped").of(inode.0);
        let addresses = addresses.ok_or_else(|| wrong().found(format_args!("fork block {first}")))?;
        let mut bytes = vec![0; geometry.dir_block_bytes()];
        for (address, part) in addresses.iter().zip(bytes.chunks_exact_mut(block_bytes)) {
            self.read_home(*address, part)?;
        }
        self.stamp(addresses[0], lsn, &mut bytes).map_err(|error| error.at(addresses[0]).of(inode.0))?;
        for (address, part) in addresses.iter().zip(bytes.chunks_exact(block_bytes)) {
            self.write(*address, part)?;
        }
        self.written += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::TestImage;
    use xfskit_ondisk::FileBlock;

    /// Beside a list of all blocks.
    #[test]
    fn a_block_is_found_in_the_extent_that_contains_it() {
        let image = TestImage::new(300, &[('b', "size=2048"), ('n', "size=8192")]);
        let geometry = Arc::clone(&image.mount().geometry);
        let blocks = Blocks::new(Arc::clone(&image.device) as _, Arc::clone(&geometry), |_| None, 0..0);
        let (mut by_address, mut expected) = (ByAddress::new(), BTreeMap::new());
        for (inode, file_block, block, count) in [(131, 8, 1000, 3), (132, 0, 1003, 1), (131, 11, 1010, 16)] {
            let extent = Extent { file_block: FileBlock(file_block), block: FsBlock(block), count, unwritten: false };
            by_address.insert(geometry.fs_block_address(extent.block).unwrap().0, (InodeNumber(inode), extent));
            for n in 0..count {
                expected.insert(block + n, (InodeNumber(inode), file_block + n));
            }
        }
        for block in 990..1040 {
            let address = geometry.fs_block_address(FsBlock(block)).unwrap();
            assert_eq!(blocks.file_block_at(&by_address, address), expected.get(&block).copied(), "block {block}");
        }
    }
}
