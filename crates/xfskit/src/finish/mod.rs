//! Finishing, the second half of recovery: what the log only promised is done.
//!
//! ```text
//! replay ──▶ intents without a done item, in the order of the log
//!   verify   every intent is decoded and the inodes it names are looked up; a bad one refuses the mount here,
//!            before anything was changed
//!   finish   each by the engine for deferred work, in transactions of its own ([`crate::trans::deferred`])
//!   force    no intent is left in the log's live part
//! ```
//! Here they are decoded and put into the queue; one file for each kind of work that only other writers log.
//!
//! A rest is done behind intents that were behind it. That is right for extents to free, for what is left of an
//! exchange or an attribute; the updates of a reverse mapping intent are done in one transaction, because a later
//! intent may free the blocks, and those of a reference count intent as far as the kernel would.
//!
//! Locking: the caller is alone on the filesystem.
//!
//! Crash behaviour: after any transaction the log holds, for each piece of work that is not done, one intent. The
//! recovery of a recovery starts from there.
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

/// What finishing the intents came to.
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
/// `Corrupt` when one makes no sense, alone or together with what it names: before anything was changed if that can be
/// told from the intent and its inodes; `NoSpace`, `Io`, `Shutdown`. The log then still holds all that is not done.
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

/// Decodes an intent, verifies it, and looks up the inodes that it names. `seen` are those whose attributes intents
/// before it change.
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

/// A corruption of an intent against an inode that it names.
fn wrong_inode(check: &'static str, inode: InodeNumber) -> Error {
    Corruption::new("inode", check).of(inode.0).into()
}
