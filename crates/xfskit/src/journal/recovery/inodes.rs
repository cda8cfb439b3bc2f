//! Replays logged inodes and new inode chunks.

use super::blocks::Slot;
use super::transactions::LogItemRegions;
use super::{Outcome, Replay};
use crate::error::Result;
use std::sync::Arc;
use xfskit_ondisk::btree::{BMBT_MAGIC, LongBlockHeader};
use xfskit_ondisk::inode::{INODE_CORE_BYTES, INODE_CRC_OFFSET, INODE_LSN_OFFSET, INODE_MAGIC, encode_free_inode};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::logged::icreate::NewInodes;
use xfskit_ondisk::logged::inode::{LoggedInode, inode_fields};
use xfskit_ondisk::{AgInode, BASIC_BLOCK_BYTES, Corruption, FsBlock, InodeNumber, Lsn, checksum_matches};
use zerocopy::FromBytes;

impl Replay<'_> {
    /// Replays an inode item.
    pub(super) fn inode(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Result<Outcome> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let regions: Vec<&[u8]> = item.regions().take(5).collect();
        let place = LoggedInode::decode_format(&geometry, regions[0])?;
        if self.cancels.is_cancelled(place.address, place.basic_blocks) {
            return Ok(Outcome::Cancelled);
        }
        let logged = LoggedInode::decode(&geometry, &regions)?;
        let bytes = usize::from(logged.basic_blocks) * BASIC_BLOCK_BYTES;
        let index = logged.offset >> geometry.inode_log;
        let block = self.blocks.read(logged.address, bytes)?;
        let slot = &mut block.bytes[logged.offset..logged.offset + geometry.inode_bytes()];
        if slot[..2] != INODE_MAGIC.to_be_bytes() {
            return Err(Corruption::new("inode", "magic number").at(logged.address).of(logged.inode.0).into());
        }
        // A torn inode says nothing of its age.
        let is_newer = block.slots[index] == Slot::Home
            && checksum_matches(slot, INODE_CRC_OFFSET)
            && home_lsn(slot).is_some_and(|home| home > lsn);
        if !is_newer {
            logged.apply(&geometry, lsn, slot).map_err(|error| error.at(logged.address))?;
            block.slots[index] = Slot::Changed;
            block.log_type = Some(buffer_type::INODES);
        }
        let in_use = slot[2..4] != [0, 0];
        let forks = [(inode_fields::DATA_OWNER, false), (inode_fields::ATTR_OWNER, true)];
        for (_, is_attr) in forks.into_iter().filter(|(field, _)| in_use && logged.fields & field != 0) {
            self.change_owner(lsn, &logged, is_attr)?;
        }
        Ok(if is_newer { Outcome::Skipped } else { Outcome::Replayed })
    }

    /// The blocks of a fork's btree came from another inode, by an exchange of whole forks: gives them their new owner.
    /// They are changed even if the inode is newer at home, for they may not be.
    fn change_owner(&mut self, lsn: Lsn, logged: &LoggedInode<'_>, is_attr: bool) -> Result<()> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let bytes = usize::from(logged.basic_blocks) * BASIC_BLOCK_BYTES;
        let slot = &self.blocks.read(logged.address, bytes)?.bytes[logged.offset..][..geometry.inode_bytes()];
        let (format, fork) = fork_of(slot, is_attr);
        if format != FORMAT_BTREE {
            return Ok(());
        }
        let wrong = || Corruption::new("bmbt root", "whole").of(logged.inode.0);
        let header = fork.get(..4).ok_or_else(wrong)?;
        let level = u16::from_be_bytes([header[0], header[1]]);
        let mut blocks =
            children(&fork[4..], usize::from(u16::from_be_bytes([header[2], header[3]]))).ok_or_else(wrong)?;
        // Each level is walked from its blocks' parents; what hangs below a block of the wrong level is not followed.
        for level in (0..level.min(MOST_LEVELS)).rev() {
            let mut below = Vec::new();
            for block in blocks {
                below.extend(self.change_block_owner(lsn, logged.inode, block, level)?);
            }
            if below.len() as u64 > geometry.data_blocks {
                return Err(wrong().into());
            }
            blocks = below;
        }
        Ok(())
    }

    fn change_block_owner(&mut self, lsn: Lsn, owner: InodeNumber, block: FsBlock, level: u16) -> Result<Vec<FsBlock>> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let wrong = || Corruption::new("bmbt block", "one of the inode's tree").of(owner.0);
        let address = geometry.fs_block_address(block).ok_or_else(wrong)?;
        let found = self.blocks.read(address, geometry.block_bytes())?;
        let (header, rest) = LongBlockHeader::mut_from_prefix(&mut found.bytes).map_err(|_| wrong())?;
        if header.magic.get() != BMBT_MAGIC || header.level.get() != level {
            return Err(wrong().at(address).into());
        }
        header.owner = owner.0.into();
        let records = usize::from(header.records.get());
        let below = if level > 0 { children(rest, records).ok_or_else(wrong)? } else { Vec::new() };
        found.log_type = Some(BTREE_TYPE);
        found.lsn = found.lsn.max(found.home.unwrap_or(lsn)).max(lsn);
        Ok(below)
    }

    /// Makes the inodes of a new chunk.
    pub(super) fn new_inodes(&mut self, item: LogItemRegions<'_>) -> Result<Outcome> {
        let geometry = Arc::clone(&self.blocks.geometry);
        let new = NewInodes::decode(&geometry, item.format())?;
        let blocks_of = |bytes: usize| (bytes / BASIC_BLOCK_BYTES) as u16;
        let cancelled =
            new.clusters(&geometry).any(|(address, _, bytes)| self.cancels.is_cancelled(address, blocks_of(bytes)));
        if cancelled {
            return Ok(Outcome::Cancelled);
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
        Ok(Outcome::Replayed)
    }
}

const FORMAT_BTREE: u8 = 3;
const BTREE_TYPE: u16 = 4;
/// No extent map of 2^48 records is higher.
const MOST_LEVELS: u16 = 9;

fn home_lsn(slot: &[u8]) -> Option<Lsn> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&slot[INODE_LSN_OFFSET..INODE_LSN_OFFSET + 8]);
    let lsn = u64::from_be_bytes(bytes);
    (lsn != 0 && lsn != u64::MAX).then_some(Lsn(lsn))
}

/// The format of a fork and its bytes.
fn fork_of(slot: &[u8], is_attr: bool) -> (u8, &[u8]) {
    let forks = &slot[INODE_CORE_BYTES..];
    let start = usize::from(slot[82]) * 8;
    match (is_attr, start) {
        (false, 0) => (slot[5], forks),
        (false, start) => (slot[5], &forks[..start.min(forks.len())]),
        (true, 0) => (0, &[]),
        (true, start) => (slot[83], &forks[start.min(forks.len())..]),
    }
}

/// The pointers of a node or root: behind room for as many keys as pointers.
fn children(area: &[u8], records: usize) -> Option<Vec<FsBlock>> {
    let room = area.len() / 16;
    let pointers = area.get(8 * room..8 * room + 8 * records)?;
    let pointer = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok().map(FsBlock);
    pointers.chunks_exact(8).map(pointer).collect()
}
