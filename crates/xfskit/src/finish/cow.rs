//! Blocks staged for copy on write that a crash left behind: no file will ever map them.

use crate::error::Result;
use crate::mount::Mount;
use crate::space::cow::{first_staged, free_staged};
use crate::space::step_reservation;
use crate::trans::Transaction;
use std::sync::Arc;
use xfskit_ondisk::{AgBlock, AgNumber};

/// Frees all staged blocks, a record in each transaction. Returns how many blocks. A crash leaves the rest staged. To
/// be called after the intents are finished, for they may stage blocks or unstage them.
///
/// # Errors
/// `Corrupt`, `NoSpace`, `Io`, `Shutdown`.
pub fn free_cow_leftovers(mount: &Arc<Mount>) -> Result<u64> {
    let mut freed = 0;
    if !mount.geometry.has_reflink() {
        return Ok(freed);
    }
    let blocks = 2 * u64::from(mount.limits.refcount_levels);
    for ag in (0..mount.geometry.ag_count).map(AgNumber) {
        let mut from = AgBlock(0);
        loop {
            let found = first_staged(&mut Transaction::read_only(mount), ag, from)?;
            let Some(extent) = found else { break };
            let mut tx = mount.transaction(step_reservation(mount, 0, blocks))?;
            let result = free_staged(&mut tx, ag, extent);
            tx.finish(result)?;
            freed += u64::from(extent.count);
            from = AgBlock(extent.end());
        }
    }
    Ok(freed)
}
