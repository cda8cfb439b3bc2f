//! Work that a crash cut off: the queue begins with the oldest intent, which holds the log's tail, so each transaction
//! needs log space only for itself.
//!
//! ```text
//! queue, first in, first out
//!   ┌──────────────────────────── transaction ────────────────────────────┐
//!   │ done item of the intent   one step of its work   intent of the rest │──▶ to the end of the queue
//!   └─────────────────────────────────────────────────────────────────────┘
//! ```
//! Locking: no other thread uses the filesystem. So AG headers may be locked in any order, and the inodes' locks are
//! dropped between the steps.

use super::run::step_of;
use super::{LoggedIntent, StepResult, Work};
use crate::error::{Error, Result};
use crate::item::LogVector;
use crate::journal::RecoveredIntent;
use crate::mount::Mount;
use crate::trans::reservation_of;
use std::collections::VecDeque;
use std::sync::Arc;
use xfskit_ondisk::Lsn;
use xfskit_ondisk::log_record::item_type;

/// The recovered intent from which work stems, for errors.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    item_type: u16,
    id: u64,
    lsn: Lsn,
}

impl Origin {
    /// The origin of an intent's work.
    pub fn of(intent: &RecoveredIntent) -> Self {
        Self { item_type: intent.item_type, id: intent.id, lsn: intent.lsn }
    }

    /// Adds to an error about damage which intent led to it.
    pub fn named(self, error: Error) -> Error {
        let name = match self.item_type {
            item_type::EFI => "extent-free",
            item_type::RUI => "reverse mapping",
            item_type::CUI => "reference count",
            item_type::BUI => "extent map",
            item_type::ATTRI => "attribute",
            item_type::XMI => "exchange",
            _ => "unknown",
        };
        match error {
            Error::Corrupt(mut corruption) => {
                let separator = if corruption.found.is_empty() { "" } else { "; " };
                let (id, cycle, block) = (self.id, self.lsn.cycle(), self.lsn.block());
                corruption.found += &format!(
                    "{separator}while the journal's {name} intent {id:#x}, log cycle {cycle} block {block}, was \
                     finished"
                );
                Error::Corrupt(corruption)
            }
            other => other,
        }
    }
}

/// An intent that recovery found, and its work.
pub struct RecoveredWork {
    intent: LoggedIntent,
    work: Box<dyn Work>,
    origin: Origin,
}

impl RecoveredWork {
    /// An intent's work, as it was decoded.
    pub fn new(intent: &RecoveredIntent, work: Box<dyn Work>) -> Self {
        let item = Arc::clone(&intent.item) as _;
        Self { intent: LoggedIntent { id: intent.id, item }, work, origin: Origin::of(intent) }
    }
}

/// Finishes work that a crash cut off, given in the order of the log; returns how many transactions it took.
///
/// # Errors
/// `Corrupt`, with the intent that led to it; `NoSpace`, `Io`, `Shutdown`. The log then still contains intents for all
/// that is not done.
pub fn finish_recovered(mount: &Arc<Mount>, mut queue: VecDeque<RecoveredWork>) -> Result<u64> {
    let mut transactions = 0;
    while let Some(recovered) = queue.pop_front() {
        let origin = recovered.origin;
        let rest = recovered.link(mount).map_err(|error| origin.named(error))?;
        queue.extend(rest);
        transactions += 1;
    }
    Ok(transactions)
}

impl RecoveredWork {
    /// One transaction: logs the done item of the intent, does a step of its work, and logs a new intent for the rest.
    fn link(self, mount: &Arc<Mount>) -> Result<Option<Self>> {
        let Self { intent, mut work, origin } = self;
        let tag = work.error_tag();
        let mut tx = match mount.transaction(work.reserve(mount)) {
            Err(Error::NoSpace) if work.may_be_left() => return leave(mount, &*work, intent).map(|()| None),
            tx => tx?,
        };
        let result = (|| match step_of(&mut tx, &mut *work, Some(intent))? {
            StepResult::Done => Ok(None),
            // No caller has got an answer that it succeeded.
            StepResult::NoSpace => work.undo(&mut tx).map(|()| None),
            StepResult::Roll => Ok(Some(tx.log_intent_for(&*work))),
        })();
        let rest = tx.finish(result)?;
        mount.stop_if_tagged(tag)?;
        Ok(rest.map(|intent| Self { intent, work, origin }))
    }
}

/// Logs the work as done although it was not done.
fn leave(mount: &Arc<Mount>, work: &dyn Work, intent: LoggedIntent) -> Result<()> {
    tracing::warn!("there is no space for an update of attributes that a crash cut off: it is left out");
    let mut copy = LogVector::default();
    work.encode_done(intent.id, &mut copy);
    let mut tx = mount.transaction(reservation_of(mount.reservations.ichange))?;
    tx.log_done(copy, intent);
    tx.finish(Ok(()))
}
