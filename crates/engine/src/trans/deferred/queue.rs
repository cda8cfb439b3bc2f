//! Work that waits for links of its own, and the intents that represent it in the log.

use super::{LoggedIntent, Work};
use crate::item::{CheckpointSeq, LogVector};
use crate::trans::Transaction;
use std::collections::VecDeque;

/// Which deferred work is done first when a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Updates: they may free blocks.
    First,
    /// Frees.
    Last,
}

/// Work that waits.
pub(super) struct QueuedWork {
    pub work: Box<dyn Work>,
    /// What the work changes, so that a later change of the same waits for it.
    key: Vec<u8>,
    /// Its intent, once a link has logged it.
    pub intent: Option<LoggedIntent>,
}

/// The work that a transaction has put off. Most transactions put nothing off, and their queue is one word.
#[derive(Default)]
pub(in crate::trans) struct Queue(Option<Box<Lists>>);

#[derive(Default)]
struct Lists {
    first: VecDeque<QueuedWork>,
    last: VecDeque<QueuedWork>,
}

impl Queue {
    fn add(&mut self, turn: Turn, work: QueuedWork) {
        self.0.get_or_insert_default().of_mut(turn).push_back(work);
    }

    /// The work of a turn that comes next, which leaves the queue.
    pub(super) fn take_next(&mut self, turn: Turn) -> Option<QueuedWork> {
        self.0.as_mut()?.of_mut(turn).pop_front()
    }

    /// Whether no work waits for a turn.
    #[inline]
    pub(super) fn is_empty(&self, turn: Turn) -> bool {
        self.0.as_ref().is_none_or(|lists| lists.of(turn).is_empty())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut QueuedWork> {
        self.0.iter_mut().flat_map(|lists| lists.first.iter_mut().chain(&mut lists.last))
    }
}

impl Lists {
    fn of(&self, turn: Turn) -> &VecDeque<QueuedWork> {
        match turn {
            Turn::First => &self.first,
            Turn::Last => &self.last,
        }
    }

    fn of_mut(&mut self, turn: Turn) -> &mut VecDeque<QueuedWork> {
        match turn {
            Turn::First => &mut self.first,
            Turn::Last => &mut self.last,
        }
    }
}

impl Transaction<'_> {
    /// Leaves work as a whole to links of its own. Its intent commits with all changes of the caller in this link,
    /// before and after this call. So several pieces of work, and changes with them, are atomic in a crash.
    pub fn defer(&mut self, turn: Turn, key: Vec<u8>, work: Box<dyn Work>) {
        self.dirty = true;
        self.deferred.add(turn, QueuedWork { work, key, intent: None });
    }

    /// Whether updates wait for their links.
    pub fn has_deferred_updates(&self) -> bool {
        !self.deferred.is_empty(Turn::First)
    }

    /// Whether an update of that key waits.
    pub fn has_deferred(&self, key: impl FnOnce() -> Vec<u8>) -> bool {
        let Some(lists) = self.deferred.0.as_ref().filter(|lists| !lists.first.is_empty()) else { return false };
        let key = key();
        lists.first.iter().any(|waiting| waiting.key == key)
    }

    /// Logs an intent for each piece of work that has none; part of every link's commit.
    pub(in crate::trans) fn log_deferred(&mut self) {
        let mut queue = std::mem::take(&mut self.deferred);
        for waiting in queue.all().filter(|waiting| waiting.intent.is_none()) {
            waiting.intent = Some(self.log_intent_for(&*waiting.work));
        }
        self.deferred = queue;
    }

    /// Logs new intents for all work that waits, and done items for the old ones: the next link has to wait for log
    /// space, and the old intents must not hold the tail. Intents in the gathering checkpoint are at the head already.
    pub(in crate::trans) fn relog_deferred(&mut self) {
        let mut queue = std::mem::take(&mut self.deferred);
        for QueuedWork { work, intent, .. } in queue.all() {
            let Some(old) = intent.take_if(|intent| !self.is_at_head(intent)) else { continue };
            let mut done = LogVector::default();
            work.encode_done(old.id, &mut done);
            *intent = Some(self.log_intent_for(&**work));
            self.log_done(done, old);
            self.mount.counters.intents_relogged.increment();
        }
        self.deferred = queue;
    }

    /// Whether this link commits the intent, or the gathering checkpoint contains it.
    fn is_at_head(&self, intent: &LoggedIntent) -> bool {
        let logged_in = intent.item.state().lock().gathered.newest();
        logged_in == CheckpointSeq::default() || logged_in == self.mount.journal.current()
    }
}
