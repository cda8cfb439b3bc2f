//! Finishing, the second half of recovery: does the work that intents in the log promise.
//!
//! ```text
//! replay ──▶ intents without a done item, in the order of the log
//!   verify   every intent is decoded and the inodes it names are looked up; a bad one refuses the mount here,
//!            before anything was changed
//!   finish   each by the engine for deferred work, in transactions of its own ([`crate::trans::deferred`])
//!   force    no intent is left in the log's live part
//! ```
//! This module decodes the intents and puts them into the queue. Each kind of work that only other writers log has a
//! file.
//!
//! Where an intent takes several transactions, its rest is done after the intents that follow it in the log. That is
//! right for extents to free, exchanges and attributes. All updates of a reverse mapping intent are done in one
//! transaction, because a later intent may free the blocks; those of a reference count intent as far as the kernel
//! would.
//!
//! Locking: no other thread uses the filesystem.
//!
//! Crash behaviour: after each transaction the log contains one intent for each piece of work that is not done. If
//! recovery is cut off, the next one starts from there.
//!
//! Facts: the kernel's `xlog_recover_process_intents` and the `recover_work` functions of its log items.

mod attr;
mod bmap;
mod cow;
mod exchange;
mod inode;
mod refcount;
mod rmap;
#[cfg(test)]
mod tests;

pub use cow::free_cow_leftovers;

use crate::error::{Error, Result};
use crate::journal::RecoveredIntent;
use crate::mount::Mount;
use crate::space::Frees;
use crate::trans::deferred::{Origin, RecoveredWork, Work, finish_recovered};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use xfskit_ondisk::log_items::{self, IntentRules};
use xfskit_ondisk::{Corruption, InodeNumber};

/// How many intents were finished, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntentReport {
    /// Intents to free extents.
    pub extent_frees: u64,
    /// Intents to change reverse mappings.
    pub rmaps: u64,
    /// Intents to change reference counts.
    pub refcounts: u64,
    /// Intents to change extent maps.
    pub bmaps: u64,
    /// Intents to change attributes.
    pub attrs: u64,
    /// Intents to exchange mappings.
    pub exchanges: u64,
    /// Transactions that it took.
    pub transactions: u64,
}

/// Finishes the intents that the replay found, given in the order of the log.
///
/// # Errors
/// `Corrupt` when one makes no sense, alone or together with what it names: before anything was changed if the intent
/// and its inodes show it; `NoSpace`, `Io`, `Shutdown`. The log then still contains intents for all that is not done.
pub fn finish_intents(mount: &Arc<Mount>, intents: Vec<Arc<RecoveredIntent>>) -> Result<IntentReport> {
    let mut report = IntentReport::default();
    mount.intent_ids.avoid(intents.iter().map(|intent| intent.id));
    let mut queue = VecDeque::with_capacity(intents.len());
    let mut seen = HashSet::new();
    for intent in intents {
        let work = verified(mount, &intent, &mut seen, &mut report);
        let work = work.map_err(|error| Origin::of(&intent).named(error))?;
        queue.push_back(RecoveredWork::new(&intent, work));
    }
    if queue.is_empty() {
        return Ok(report);
    }
    mount.journal.set_recovering(true);
    let finished = finish_recovered(mount, queue).and_then(|transactions| mount.sync().map(|()| transactions));
    mount.journal.set_recovering(false);
    report.transactions = finished?;
    tracing::info!(?report, "operations that a crash cut off were finished");
    Ok(report)
}

/// Decodes an intent, verifies it, and looks up the inodes that it names. `seen` are the inodes whose attributes
/// earlier intents change.
fn verified(
    mount: &Arc<Mount>,
    intent: &RecoveredIntent,
    seen: &mut HashSet<InodeNumber>,
    report: &mut IntentReport,
) -> Result<Box<dyn Work>> {
    use log_items::Intent;
    let rules = IntentRules { geometry: Some(&mount.geometry), logged_attrs: mount.may_log_attr_intents() };
    let (count, work): (_, Box<dyn Work>) = match log_items::decode_intent(&rules, &intent.regions)? {
        Intent::ExtentFree(intent) => (&mut report.extent_frees, Box::new(Frees::recovered(intent))),
        Intent::Rmap(intent) => (&mut report.rmaps, Box::new(rmap::Updates::new(intent))),
        Intent::Refcount(intent) => (&mut report.refcounts, Box::new(refcount::Updates::new(intent))),
        Intent::Bmap(intent) => (&mut report.bmaps, Box::new(bmap::Change::new(mount, intent)?)),
        Intent::Attr(intent) => {
            let is_first = seen.insert(intent.inode);
            (&mut report.attrs, Box::new(attr::Update::new(mount, &intent, is_first)?))
        }
        Intent::Exchange(intent) => (&mut report.exchanges, Box::new(exchange::Exchange::new(mount, intent)?)),
    };
    *count += 1;
    Ok(work)
}

/// The error for an inode that an intent names and that fails `check`.
fn wrong_inode(check: &'static str, inode: InodeNumber) -> Error {
    Corruption::new("inode", check).of(inode.0).into()
}
