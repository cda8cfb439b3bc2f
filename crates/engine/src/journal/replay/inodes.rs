//! Replays logged inodes and new inode chunks.

use super::blocks::Slot;
use super::forks::{FORMAT_BTREE, fork_of};
use super::report::ItemOutcome;
use super::second_pass::Replay;
use super::transactions::LogItemRegions;
use crate::error::Result;
use crate::incore::ForkKind;
use std::sync::Arc;
use xfskit_ondisk::btree::LongBlockHeader;
use xfskit_ondisk::inode::{INODE_CRC_OFFSET, INODE_LSN_OFFSET, INODE_MAGIC, MODE_DIR, MODE_TYPE, encode_free_inode};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::logged::icreate::NewInodes;
use xfskit_ondisk::logged::inode::{InodeFields, LoggedInode};
use xfskit_ondisk::{AgInode, BASIC_BLOCK_BYTES, Corruption, Lsn, checksum_matches};
use zerocopy::FromBytes;

impl Replay<'_> {
    /// Replays an inode item.
    pub(super) fn inode(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Result<ItemOutcome> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let regions: Vec<&[u8]> = item.regions().take(5).collect();
        let place = LoggedInode::decode_format(&geometry, regions[0])?;
        if self.cancels.is_cancelled(place.address, place.basic_blocks) {
            return Ok(ItemOutcome::Cancelled);
        }
        let logged = LoggedInode::decode(&geometry, &regions)?;
        let bytes = usize::from(logged.basic_blocks) * BASIC_BLOCK_BYTES;
        let index = logged.offset >> geometry.inode_log;
        let block = self.blocks.read(logged.address, bytes)?;
        let slot = &mut block.bytes[logged.offset..logged.offset + geometry.inode_bytes()];
        if slot[..2] != INODE_MAGIC.to_be_bytes() {
            return Err(Corruption::new("inode", "magic number").at(logged.address).of(logged.inode.0).into());
        }
        // The LSN of a torn inode does not count.
        let is_newer = block.slots[index] == Slot::OnDevice
            && checksum_matches(slot, INODE_CRC_OFFSET)
            && device_lsn(slot).is_some_and(|device_lsn| device_lsn > lsn);
        if !is_newer {
            logged.apply(&geometry, lsn, slot).map_err(|error| error.at(logged.address))?;
            block.slots[index] = Slot::Changed;
            block.log_type = Some(buffer_type::INODES);
        }
        let mode = u16::from_be_bytes([slot[2], slot[3]]);
        if mode & MODE_TYPE == MODE_DIR {
            self.directories.add(logged.inode, logged.address, bytes, logged.offset);
        }
        if !is_newer {
            self.blocks.set_torn(logged.address, index, false);
        }
        let forks = [(InodeFields::DATA_OWNER, ForkKind::Data), (InodeFields::ATTR_OWNER, ForkKind::Attr)];
        for (_, fork) in forks.into_iter().filter(|(field, _)| logged.fields.contains(*field)) {
            self.change_owner(lsn, &logged, bytes, fork)?;
        }
        Ok(if is_newer { ItemOutcome::Skipped } else { ItemOutcome::Replayed })
    }

    /// Gives the blocks of a fork's btree their new owner, after an exchange of whole forks. They are changed even if
    /// the inode on the device is newer, for the blocks may be older. `bytes` is the length of the inode's cluster.
    fn change_owner(&mut self, lsn: Lsn, logged: &LoggedInode<'_>, bytes: usize, fork: ForkKind) -> Result<()> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let slot = &self.blocks.read(logged.address, bytes)?.bytes[logged.offset..][..geometry.inode_bytes()];
        let (format, fork) = fork_of(slot, fork);
        // A smaller fork, or the inode is free by now.
        if format != FORMAT_BTREE {
            return Ok(());
        }
        let fork = fork.to_vec();
        self.blocks.visit_tree(logged.inode, &fork, &mut |block, _| {
            if let Ok((header, _)) = LongBlockHeader::mut_from_prefix(&mut block.bytes) {
                header.owner = logged.inode.0.into();
            }
            block.log_type = Some(BTREE_TYPE);
            block.lsn = block.lsn.max(block.device_lsn.unwrap_or(lsn)).max(lsn);
        })
    }

    /// Makes the inodes of a new chunk.
    pub(super) fn new_inodes(&mut self, item: LogItemRegions<'_>) -> Result<ItemOutcome> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let new = NewInodes::decode(&geometry, item.format())?;
        let blocks_of = |bytes: usize| (bytes / BASIC_BLOCK_BYTES) as u16;
        let cancelled =
            new.clusters(&geometry).any(|(address, _, bytes)| self.cancels.is_cancelled(address, blocks_of(bytes)));
        if cancelled {
            return Ok(ItemOutcome::Cancelled);
        }
        for (address, first, bytes) in new.clusters(&geometry) {
            let mut contents = vec![0; bytes];
            for (index, slot) in contents.chunks_exact_mut(geometry.inode_bytes()).enumerate() {
                let number = geometry.inode_number(new.ag, AgInode(first.0 + index as u32));
                encode_free_inode(&geometry, number, new.generation, slot);
            }
            let block = self.blocks.make(address, contents)?;
            block.log_type = Some(buffer_type::INODES);
            block.slots.fill(Slot::Changed);
        }
        Ok(ItemOutcome::Replayed)
    }
}

const BTREE_TYPE: u16 = 4;

fn device_lsn(slot: &[u8]) -> Option<Lsn> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&slot[INODE_LSN_OFFSET..INODE_LSN_OFFSET + 8]);
    let lsn = u64::from_be_bytes(bytes);
    (lsn != u64::MAX).then_some(Lsn(lsn))
}
