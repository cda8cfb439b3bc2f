//! The second half of recovery: what the log only promised is done.
//!
//! ```text
//! physical recovery ──▶ intents without a done item, in the order of the log
//!   verify   every intent is decoded and the inodes it names are looked up; a bad one refuses the mount here,
//!            before anything was changed
//!   finish   queue, first in, first out
//!            ┌──────────────────────────── transaction ────────────────────────────┐
//!            │ done item of the intent   one step of its work   intent of the rest │──▶ to the end of the queue
//!            └─────────────────────────────────────────────────────────────────────┘
//!   force    no intent is left in the log's live part
//! ```
//! Invariants: an intent's done item and its work are one transaction, so nothing is ever done twice; the rest of the
//! work is an intent in that same transaction, so nothing is lost. The rest goes to the end of the queue, as its intent
//! does to the head of the log: the queue always begins with the oldest intent, which holds the log's tail, so each
//! transaction needs log space only for itself.
//!
//! A rest is done behind intents that were behind it. That is right for extents to free, for what is left of an
//! exchange or an attribute; the updates of a reverse mapping intent are done in one transaction, because a later intent
//! may free the blocks, and those of a reference count intent as far as the kernel would.
//!
//! Locking: nobody else uses the filesystem yet. So AG headers may be locked in any order, and inodes are let go
//! between the steps.
//!
//! Crash behaviour: after any transaction the log holds, for each piece of work that is not done, one intent. The
//! recovery of a recovery starts from there.
//!
//! Facts: the kernel's `xlog_recover_process_intents` and the `recover_work` functions of its log items.

mod attr;
mod bmap;
mod cow;
mod exchange;
mod extent_free;
mod inode;
mod refcount;
mod rmap;
#[cfg(test)]
mod tests;

pub use cow::free_cow_leftovers;

use crate::error::{Error, Result};
use crate::item::{LogItem, LogVector};
use crate::journal::RecoveredIntent;
use crate::mount::{Mount, reservation_of};
use crate::trans::{Intent, PassingItem, Reservation, Transaction};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use xfskit_ondisk::log_items::{self, IntentRules};
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{Corruption, InodeNumber, Lsn};

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

/// What is left to do of an intent.
trait Work {
    /// Log space and blocks for a step.
    fn reservation(&self, mount: &Mount) -> Reservation;

    /// Does a part that fits one transaction; returns what is left.
    fn step(self: Box<Self>, tx: &mut Transaction) -> Result<Option<Box<dyn Work>>>;

    /// Formats an intent that describes all that is left.
    fn format_intent(&self, id: u64, copy: &mut LogVector);

    /// Formats the done item of intent `id`, which described what is left now.
    fn format_done(&self, id: u64, copy: &mut LogVector);

    /// The place where a test can stop recovery, after a step.
    fn error_tag(&self) -> &'static str;

    /// Whether the image is sound without it, and nobody was told that it had happened: where there is no space for it, it
    /// then counts as done.
    fn may_be_left(&self) -> bool {
        false
    }
}

/// An intent and its work.
struct Pending {
    intent: Arc<dyn LogItem>,
    id: u64,
    work: Box<dyn Work>,
    /// The recovered intent from which it stems, for errors.
    origin: Origin,
}

#[derive(Clone, Copy)]
struct Origin {
    item_type: u16,
    id: u64,
    lsn: Lsn,
}

impl Origin {
    /// Says in an error about damage which intent led to it.
    fn named(self, error: Error) -> Error {
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
                    "{separator}while the journal's {name} intent {id:#x}, log cycle {cycle} block {block}, was finished"
                );
                Error::Corrupt(corruption)
            }
            other => other,
        }
    }
}

/// Finishes the intents that physical recovery found, given in the order of the log.
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
        let origin = Origin { item_type: intent.item_type, id: intent.id, lsn: intent.lsn };
        let work = verified(mount, &intent, &mut seen, &mut report).map_err(|error| origin.named(error))?;
        queue.push_back(Pending { id: intent.id, intent, work, origin });
    }
    if queue.is_empty() {
        return Ok(report);
    }
    mount.journal.set_recovering(true);
    let finished = finish_all(mount, queue, &mut report);
    mount.journal.set_recovering(false);
    finished?;
    tracing::info!(?report, "operations that a crash cut off were finished");
    Ok(report)
}

fn finish_all(mount: &Arc<Mount>, mut queue: VecDeque<Pending>, report: &mut IntentReport) -> Result<()> {
    while let Some(pending) = queue.pop_front() {
        let origin = pending.origin;
        let rest = finish_step(mount, pending).map_err(|error| origin.named(error))?;
        queue.extend(rest);
        report.transactions += 1;
    }
    mount.sync()
}

/// Decodes an intent, verifies it, and looks up the inodes that it names. `seen` are those whose attributes intents before it
/// change.
fn verified(
    mount: &Arc<Mount>,
    intent: &RecoveredIntent,
    seen: &mut HashSet<InodeNumber>,
    report: &mut IntentReport,
) -> Result<Box<dyn Work>> {
    use log_items::Intent;
    let rules = IntentRules { geometry: Some(&mount.geometry), logged_attrs: mount.may_log_attr_intents() };
    let (count, work): (_, Box<dyn Work>) = match log_items::decode_intent(&rules, &intent.regions)? {
        Intent::ExtentFree(intent) => (&mut report.extent_frees, Box::new(extent_free::Frees::new(intent))),
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

/// One transaction: the intent is done, a step of its work with it, and what is left is a new intent.
fn finish_step(mount: &Arc<Mount>, pending: Pending) -> Result<Option<Pending>> {
    let Pending { intent, id, work, origin } = pending;
    let tag = work.error_tag();
    let mut tx = match mount.transaction(work.reservation(mount)) {
        Err(Error::NoSpace) if work.may_be_left() => return leave(mount, &*work, id, intent).map(|()| None),
        tx => tx?,
    };
    let result = (|| {
        let mut copy = LogVector::default();
        work.format_done(id, &mut copy);
        let rest = work.step(&mut tx)?;
        tx.log_done(Arc::new(PassingItem::default()), copy, intent);
        Ok(rest.map(|work| log_rest(&mut tx, work, origin)))
    })();
    let rest = tx.finish(result)?;
    mount.stop_if_tagged(tag)?;
    Ok(rest)
}

/// An intent counts as done although nothing was done.
fn leave(mount: &Arc<Mount>, work: &dyn Work, id: u64, intent: Arc<dyn LogItem>) -> Result<()> {
    tracing::warn!("there is no space for an update of attributes that a crash cut off: it is left out");
    let mut copy = LogVector::default();
    work.format_done(id, &mut copy);
    let mut tx = mount.transaction(reservation_of(mount.reservations.ichange))?;
    tx.log_done(Arc::new(PassingItem::default()), copy, intent);
    tx.finish(Ok(()))
}

/// Logs an intent for what is left.
fn log_rest(tx: &mut Transaction, work: Box<dyn Work>, origin: Origin) -> Pending {
    let intent = Intent::new(&tx.mount().intent_ids);
    let id = intent.id();
    let mut copy = LogVector::default();
    work.format_intent(id, &mut copy);
    tx.log_intent(Arc::clone(&intent) as _, copy);
    Pending { intent, id, work, origin }
}

/// Log space for a step that changes a few extents in every kind of tree, and one tree in `changes` places more; and
/// `blocks` blocks.
fn reservation(mount: &Mount, changes: usize, blocks: u64) -> Reservation {
    let truncate = reservation_of(mount.reservations.itruncate);
    let write = reservation_of(mount.reservations.write);
    let log_bytes = truncate.log_bytes + write.log_bytes + (changes * 2 * mount.geometry.block_bytes()) as u32;
    Reservation { log_bytes, log_count: 1, ..Reservation::default() }.with_blocks(blocks).dipping()
}

/// A corruption of an intent against an inode that it names.
fn wrong_inode(check: &'static str, inode: InodeNumber) -> Error {
    Corruption::new("inode", check).of(inode.0).into()
}
