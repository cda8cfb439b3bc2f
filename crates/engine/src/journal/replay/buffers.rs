//! Replays logged buffers.

use super::blocks::{Block, Blocks, Slot};
use super::report::ItemOutcome;
use super::second_pass::Replay;
use super::transactions::LogItemRegions;
use crate::error::Result;
use std::sync::Arc;
use xfskit_ondisk::inode::{INODE_CRC_OFFSET, INODE_NEXT_UNLINKED_OFFSET};
use xfskit_ondisk::logged::buffer::{LoggedBuffer, buffer_type};
use xfskit_ondisk::logged::dquot::dquot_type;
use xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET;
use xfskit_ondisk::{
    Corruption, DiskAddress, Geometry, Lsn, Superblock, SuperblockError, Verdict, checksum_matches, set_checksum,
};

impl Replay<'_> {
    /// Replays a buffer item.
    pub(super) fn buffer(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Result<ItemOutcome> {
        let logged = LoggedBuffer::decode(item.format())?;
        let (address, basic_blocks) = (logged.address, logged.basic_blocks);
        if logged.is_cancel() {
            self.cancels.pass(address, basic_blocks);
            return Ok(ItemOutcome::Passed);
        }
        if self.cancels.is_cancelled(address, basic_blocks) {
            return Ok(ItemOutcome::Cancelled);
        }
        let parts = logged.parts(item.contents()).map_err(|error| error.at(address))?;
        if let Some(kind) = quota_kind(logged.kind())
            && !self.replays_quota(kind)
        {
            return Ok(ItemOutcome::Skipped);
        }
        let inode_log = self.blocks.geometry.inode_log;
        let block = self.blocks.read(address, logged.bytes())?;
        if block.device_lsn.is_some_and(|device_lsn| device_lsn > lsn) {
            return Ok(ItemOutcome::Skipped);
        }
        if logged.is_inodes() {
            let torn = replay_unlinked_links(inode_log, block, &parts).map_err(|error| error.at(address))?;
            block.log_type = Some(buffer_type::INODES);
            torn.into_iter().for_each(|index| self.blocks.set_torn(address, index, true));
            return Ok(ItemOutcome::Replayed);
        }
        for (offset, part) in parts {
            block.bytes[offset..offset + part.len()].copy_from_slice(part);
        }
        block.log_type = Some(logged.kind());
        block.lsn = block.lsn.max(lsn);
        if logged.kind() == buffer_type::SUPERBLOCK {
            // A mount that starts to keep quotas logs the superblock first.
            self.has_quota |= self.blocks.take_superblock()?.has_quota();
        }
        Ok(ItemOutcome::Replayed)
    }
}

fn quota_kind(buffer_type: u16) -> Option<u8> {
    Some(match buffer_type {
        buffer_type::USER_QUOTA => dquot_type::USER,
        buffer_type::PROJECT_QUOTA => dquot_type::PROJECT,
        buffer_type::GROUP_QUOTA => dquot_type::GROUP,
        _ => return None,
    })
}

/// Replays only the links of unlinked lists into a cluster of inodes: all else of an inode is in items of its own. The
/// links are replayed whatever is on the device, for the cluster as a whole has no LSN. They are replayed into torn
/// inodes, too, which a later item must replace. Returns the indices of those.
fn replay_unlinked_links(inode_log: u8, block: &mut Block, parts: &[(usize, &[u8])]) -> Verdict<Vec<usize>> {
    let mut torn = Vec::new();
    for (offset, part) in parts {
        let end = offset + part.len();
        for index in offset >> inode_log..end.div_ceil(1 << inode_log) {
            let start = index << inode_log;
            let at = start + INODE_NEXT_UNLINKED_OFFSET;
            // A part that begins in front of a link contains it, for parts are 128 bytes or more of them.
            if at < *offset || index >= block.slots.len() {
                continue;
            }
            let link = &part[at - offset..at - offset + 4];
            xfskit_ondisk::ensure!(link != [0; 4], "logged buffer", "links of unlinked inodes are not zero");
            let inode = &mut block.bytes[start..start + (1 << inode_log)];
            let is_whole = block.slots[index] == Slot::Changed || checksum_matches(inode, INODE_CRC_OFFSET);
            block.slots[index] = if is_whole { Slot::Changed } else { Slot::Torn };
            if !is_whole {
                torn.push(index);
            }
            inode[INODE_NEXT_UNLINKED_OFFSET..INODE_NEXT_UNLINKED_OFFSET + 4].copy_from_slice(link);
        }
    }
    Ok(torn)
}

impl Blocks {
    /// Takes over a replayed superblock: growing a filesystem changes its geometry, and later items may be in the new
    /// part.
    fn take_superblock(&mut self) -> Result<Superblock> {
        let sector = self.geometry.sector_bytes();
        let mut bytes = self.read(DiskAddress(0), sector)?.bytes.clone();
        set_checksum(&mut bytes, SUPERBLOCK_CRC_OFFSET);
        let superblock = Superblock::decode(&bytes)?;
        let geometry = Geometry::new(&superblock);
        let old = &self.geometry;
        let same_place = geometry.block_log == old.block_log
            && geometry.inode_log == old.inode_log
            && geometry.ag_blocks == old.ag_blocks
            && geometry.log_start == old.log_start
            && geometry.log_blocks == old.log_blocks
            && geometry.meta_uuid == old.meta_uuid;
        if !same_place {
            let error = Corruption::new("superblock", "keeps its shape in the log").at(DiskAddress(0));
            return Err(SuperblockError::from(error).into());
        }
        self.geometry = Arc::new(geometry);
        Ok(superblock)
    }
}
