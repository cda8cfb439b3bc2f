//! Replays quota records, where the superblock says that the image has some.

use super::report::ItemOutcome;
use super::second_pass::Replay;
use super::transactions::LogItemRegions;
use crate::error::Result;
use std::sync::Arc;
use xfskit_ondisk::Lsn;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::logged::dquot::{DQUOT_BYTES, LoggedDquot, dquot_lsn, dquot_type};

impl Replay<'_> {
    /// Whether records of a kind are replayed: usage is kept, and was not switched off by this log.
    pub(super) fn replays_quota(&self, kind: u8) -> bool {
        self.has_quota && self.quota_off & kind == 0
    }

    /// Replays a quota item.
    pub(super) fn dquot(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Result<ItemOutcome> {
        if !self.has_quota {
            return Ok(ItemOutcome::Skipped);
        }
        let geometry = Arc::clone(&self.blocks.geometry);
        let record = item.contents().next().unwrap_or_default();
        let logged = LoggedDquot::decode(&geometry, item.format(), record)?;
        if !self.replays_quota(logged.kind) {
            return Ok(ItemOutcome::Skipped);
        }
        let block = self.blocks.read(logged.address, geometry.block_bytes())?;
        let slot = &mut block.bytes[logged.offset..logged.offset + DQUOT_BYTES];
        if dquot_lsn(slot).is_some_and(|device_lsn| device_lsn.0 != u64::MAX && device_lsn > lsn) {
            return Ok(ItemOutcome::Skipped);
        }
        logged.apply(&geometry, lsn, slot);
        block.log_type = Some(match logged.kind {
            dquot_type::PROJECT => buffer_type::PROJECT_QUOTA,
            dquot_type::GROUP => buffer_type::GROUP_QUOTA,
            _ => buffer_type::USER_QUOTA,
        });
        Ok(ItemOutcome::Replayed)
    }
}
