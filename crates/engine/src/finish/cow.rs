//! Blocks staged for copy on write that a crash left behind: no file will ever map them.

use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::space::cow::{first_staged, free_staged};
use crate::space::step_reservation;
use crate::trans::Transaction;
use std::sync::Arc;
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::{AgBlock, AgNumber};

/// Frees all staged blocks, a record in each transaction. Returns how many blocks. A crash leaves the rest staged. To
/// be called after the intents are finished, for they may stage blocks or unstage them. Where an AG has no block for
/// the tree, the rest of its staged blocks stay until another recovery.
///
/// # Errors
/// `Corrupt`, `Io`, `Shutdown`.
pub fn free_cow_leftovers(mount: &Arc<Mount>) -> Result<u64> {
    let mut freed = 0;
    if !mount.geometry.has_reflink() {
        return Ok(freed);
    }
    for ag in (0..mount.geometry.ag_count).map(AgNumber) {
        let mut from = AgBlock(0);
        loop {
            let found = first_staged(&mut Transaction::read_only(mount), ag, from)?;
            let Some(extent) = found else { break };
            match free_one(mount, ag, extent) {
                Err(Error::NoSpace) if mount.journal.check().is_ok() => {
                    tracing::warn!(ag = ag.0, "blocks staged for copy on write are freed when their AG has more space");
                    break;
                }
                result => result?,
            }
            freed += u64::from(extent.count);
            from = AgBlock(extent.end());
        }
    }
    Ok(freed)
}

fn free_one(mount: &Arc<Mount>, ag: AgNumber, extent: FreeExtent) -> Result<()> {
    let blocks = 2 * u64::from(mount.limits.refcount_levels);
    let mut tx = mount.transaction(step_reservation(mount, 0, blocks))?;
    let result = free_staged(&mut tx, ag, extent);
    tx.finish(result)
}
