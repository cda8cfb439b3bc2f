//! Checkpoints, and what recovery would do with them.

use super::items::Item;
use super::records::{Journal, Which};
use crate::output::error::Result;
use std::cell::RefCell;
use xfskit_engine::journal::replay::{Gatherer, Keep, LogTransaction};
use xfskit_engine::journal::{ItemOutcome, RecoveryReport};
use xfskit_ondisk::Lsn;
use xfskit_ondisk::log_record::item_type;

/// A checkpoint, which the format calls a transaction.
pub struct Checkpoint {
    /// Its number in the log.
    pub id: u32,
    /// LSN at which it starts.
    pub start: Lsn,
    /// LSN of its commit record; `None` if the log ends before.
    pub commit: Option<Lsn>,
    /// The items that it logs.
    pub items: Vec<Item>,
}

impl Checkpoint {
    fn new(transaction: &LogTransaction, commit: Option<Lsn>) -> Self {
        let items = transaction.items().map(|item| Item::decode(item.regions().map(<[u8]>::to_vec).collect()));
        Self { id: transaction.id, start: transaction.start, commit, items: items.collect() }
    }
}

/// The checkpoints of the log in the order in which they were committed, then those that were not; and the damage to
/// the log, if they end at one.
pub fn checkpoints(journal: &Journal, which: Which) -> Result<(Vec<Checkpoint>, Option<String>)> {
    let list = RefCell::new(Vec::new());
    let (mut gatherer, mut damage) = (Gatherer::new(Keep::Contents), None);
    journal.records(which, |lsn, record| {
        let taken = record.and_then(|record| {
            let commit = |transaction| {
                list.borrow_mut().push(Checkpoint::new(&transaction, Some(lsn)));
                Ok(())
            };
            gatherer.take(record, commit).map_err(|error| error.to_string())
        });
        if let Err(error) = taken {
            damage = Some(error);
        }
        Ok(())
    })?;
    let mut list = list.into_inner();
    list.extend(gatherer.rest().map(|transaction| Checkpoint::new(&transaction, None)));
    Ok((list, damage))
}

/// What recovery would do with a log.
pub struct Preview {
    /// The result for each item of each complete checkpoint.
    outcomes: Vec<Vec<Option<ItemOutcome>>>,
    /// Intents that recovery would finish: type and id.
    pub intents: Vec<(u16, u64)>,
    /// The summary.
    pub report: RecoveryReport,
}

impl Preview {
    /// Computes what recovery would do; `None` for a clean log, an error if recovery fails, its intents included.
    pub fn of(journal: &Journal) -> Result<Option<Self>, xfskit_engine::Error> {
        let mut outcomes: Vec<Vec<Option<ItemOutcome>>> = Vec::new();
        let recovered = journal.log.preview(&mut |item_outcome| {
            outcomes.resize_with(outcomes.len().max(item_outcome.transaction + 1), Vec::new);
            let items = &mut outcomes[item_outcome.transaction];
            items.resize(items.len().max(item_outcome.item + 1), None);
            items[item_outcome.item] = Some(item_outcome.outcome);
        })?;
        journal.recover()?;
        Ok(recovered.map(|recovered| Self {
            outcomes,
            intents: recovered.intents.iter().map(|intent| (intent.item_type, intent.id)).collect(),
            report: recovered.report,
        }))
    }

    /// The result for an item, in words. `checkpoint` counts complete checkpoints only.
    pub fn outcome(&self, checkpoint: usize, item: usize, what: &Item) -> &'static str {
        match self.outcomes.get(checkpoint).and_then(|items| items.get(item)).copied().flatten() {
            Some(ItemOutcome::Replayed) => "replayed",
            Some(ItemOutcome::Skipped) => "skipped (disk already newer)",
            Some(ItemOutcome::Cancelled) => "skipped (block freed later)",
            Some(ItemOutcome::Passed) if self.is_pending(what) => "to be finished",
            Some(ItemOutcome::Passed) | None => "",
        }
    }

    fn is_pending(&self, what: &Item) -> bool {
        what.intent.is_some_and(|intent| self.intents.contains(&intent))
    }
}

/// The name of a type of intent.
pub fn intent_name(kind: u16) -> &'static str {
    match kind {
        item_type::EFI => "free intent",
        item_type::RUI => "reverse mapping intent",
        item_type::CUI => "reference count intent",
        item_type::BUI => "extent map intent",
        item_type::ATTRI => "attribute intent",
        item_type::XMI => "exchange intent",
        _ => "intent",
    }
}
