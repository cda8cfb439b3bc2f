//! The second pass: the items of each transaction, in the order of their dependences.
//!
//! Invariant: blocks change in memory only; they are written out by [`super::blocks`], whole and stamped.

use super::blocks::Blocks;
use super::cancels::Cancels;
use super::directories::Directories;
use super::intents::{PendingIntents, Role, intent_id, role};
use super::report::ItemOutcome;
use super::transactions::{LogItemRegions, LogTransaction};
use crate::error::Result;
use xfskit_ondisk::Lsn;
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::logged::buffer::LoggedBuffer;

/// The second pass.
pub(super) struct Replay<'a> {
    pub blocks: Blocks,
    pub cancels: &'a mut Cancels,
    pub quota_off: u8,
    pub has_quota: bool,
    pub intents: PendingIntents,
    pub directories: Directories,
}

impl Replay<'_> {
    /// Replays the items of a transaction: new inode chunks and buffers first, for other items change the blocks that
    /// they make; then inodes and everything else; then the links of unlinked lists, which would be lost under an inode
    /// that is replayed after them; cancel records last, for the items before them are still cancelled.
    pub(super) fn transaction(
        &mut self,
        transaction: &LogTransaction,
        each: &mut dyn FnMut(usize, ItemOutcome),
    ) -> Result<()> {
        let mut groups: [Vec<usize>; 4] = Default::default();
        for (index, item) in transaction.items().enumerate() {
            groups[group_of(item)?].push(index);
        }
        for index in groups.into_iter().flatten() {
            self.blocks.relieve()?;
            each(index, self.item(transaction.start, transaction.item(index))?);
        }
        Ok(())
    }

    fn item(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Result<ItemOutcome> {
        match item.item_type() {
            item_type::BUFFER => self.buffer(lsn, item),
            item_type::INODE => self.inode(lsn, item),
            item_type::ICREATE => self.new_inodes(item),
            item_type::DQUOT => self.dquot(lsn, item),
            kind => {
                match role(kind) {
                    Some(Role::Intent) => self.intents.add(lsn, item)?,
                    Some(Role::Done(intent)) => self.intents.finish(intent, intent_id(item.format())?),
                    None => {}
                }
                Ok(ItemOutcome::Passed)
            }
        }
    }
}

/// The group of items with which an item of a transaction is replayed.
fn group_of(item: LogItemRegions<'_>) -> Result<usize> {
    Ok(match item.item_type() {
        item_type::ICREATE => 0,
        item_type::BUFFER => {
            let buffer = LoggedBuffer::decode(item.format())?;
            match (buffer.is_cancel(), buffer.is_inodes()) {
                (true, _) => 3,
                (false, true) => 2,
                (false, false) => 0,
            }
        }
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::replay::{blocks, directories};
    use crate::test_image::TestImage;
    use std::sync::Arc;
    use xfskit_device::BlockDevice;
    use xfskit_ondisk::log_record::buffer_flags;
    use xfskit_ondisk::logged::buffer::buffer_type;

    const ITEMS: u64 = 10_000;
    const BASIC_BLOCKS: u16 = 64;

    /// Replays a transaction that changes a few bytes in each of many blocks of 32 KiB. `check` sees how many bytes are
    /// in memory.
    fn replay_little_of_much(arguments: &[(char, &str)], flags: u16, check: impl Fn(&Blocks)) {
        let image = TestImage::new(400, arguments);
        let mount = image.mount();
        let item = |number: u64| {
            let mut format = vec![0; 24];
            let words = [item_type::BUFFER, 2, flags, BASIC_BLOCKS].map(u16::to_le_bytes);
            format[..8].copy_from_slice(&words.concat());
            format[8..16].copy_from_slice(&((1 + number) * u64::from(BASIC_BLOCKS)).to_le_bytes());
            (format[16], format[20]) = (1, 1);
            vec![format, vec![1; 128]]
        };
        let items = (0..ITEMS).chain(0..ITEMS / 10).map(item);
        let transaction = LogTransaction::made_up(Lsn::new(1, 1), items);
        let device = Arc::clone(&image.device) as Arc<dyn BlockDevice>;
        let mut replay = Replay {
            blocks: Blocks::new(device, Arc::clone(&mount.geometry), |_| None, 0..0),
            cancels: &mut Cancels::default(),
            quota_off: 0,
            has_quota: false,
            intents: PendingIntents::default(),
            directories: Directories::default(),
        };
        let mut outcomes = 0;
        replay
            .transaction(&transaction, &mut |_, outcome| outcomes += u64::from(outcome == ItemOutcome::Replayed))
            .unwrap();
        assert_eq!(outcomes, ITEMS + ITEMS / 10);
        check(&replay.blocks);
    }

    fn assert_bounded(blocks: &Blocks) {
        let most = blocks::MAX_BYTES + usize::from(BASIC_BLOCKS) * 512;
        assert!(blocks.bytes() <= most, "{} bytes are in memory", blocks.bytes());
    }

    /// Links of unlinked lists, in inodes that other items would have to replace.
    #[test]
    fn one_transaction_takes_no_more_memory_than_many() {
        let flags = buffer_type::INODES << buffer_flags::TYPE_SHIFT | buffer_flags::INODES;
        replay_little_of_much(&[], flags, |blocks| {
            assert_bounded(blocks);
            assert!(blocks.expect_mended().is_err());
        });
    }

    /// Blocks that may be pieces of directory blocks cannot be stamped before everything else is written in place.
    #[test]
    fn pieces_of_directory_blocks_do_not_gather_in_memory() {
        let flags = directories::DIRECTORY_TYPES.start() << buffer_flags::TYPE_SHIFT;
        replay_little_of_much(&[('b', "size=32768"), ('n', "size=65536")], flags, assert_bounded);
    }
}
