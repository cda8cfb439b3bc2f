//! How a transaction begins: log space and blocks are reserved, and nothing is locked yet.

use super::{Reservation, Transaction};
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::sync::LockMode;
use std::sync::Arc;

/// Free blocks for each AG below which space counts as scarce: a few inode chunks.
const SCARCE_BLOCKS_PER_AG: u64 = 256;

impl Mount {
    /// Starts a transaction. The caller holds no locks and no other transaction. While space is scarce, transactions
    /// that may allocate run one at a time.
    ///
    /// # Errors
    /// `ReadOnly`, `NoSpace`, `Shutdown`.
    pub fn transaction(self: &Arc<Self>, reservation: Reservation) -> Result<Transaction<'_>> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.journal.check()?;
        let is_scarce = reservation.blocks > 0
            && self.space.has_less_than(SCARCE_BLOCKS_PER_AG * u64::from(self.geometry.ag_count));
        let turn = is_scarce.then(|| self.scarce_space.lock_arc());
        if !self.space.reserve_blocks(reservation.blocks, reservation.pool) {
            return Err(Error::NoSpace);
        }
        match self.journal.reserve(reservation.log_bytes, reservation.log_count) {
            Ok(grant) => Ok(Transaction::build(self, LockMode::Exclusive, reservation, Some(grant)).with_turn(turn)),
            Err(error) => {
                self.space.give_back_blocks(reservation.blocks);
                Err(error)
            }
        }
    }
}
