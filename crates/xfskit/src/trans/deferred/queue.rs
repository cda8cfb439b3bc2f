//! What waits for links of its own, and the intents that stand for it in the log.

use super::{LoggedIntent, Work};
use crate::item::{CheckpointSeq, LogVector};
use crate::trans::Transaction;
use std::collections::VecDeque;

/// Whose turn comes first when a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Updates: they may free blocks.
    First,
    /// Frees.
    Last,
}

/// Work that waits.
pub(super) struct Waiting {
    pub work: Box<dyn Work>,
    /// What it is about, so that a later change of the same waits for it.
    key: Vec<u8>,
    /// Its intent, once a link has logged it.
    pub intent: Option<LoggedIntent>,
}

/// What a transaction has put off.
#[derive(Default)]
pub(in crate::trans) struct Queue {
    first: VecDeque<Waiting>,
    last: VecDeque<Waiting>,
}

impl Queue {
    pub(super) fn of(&mut self, turn: Turn) -> &mut VecDeque<Waiting> {
        match turn {
            Turn::First => &mut self.first,
            Turn::Last => &mut self.last,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.first.iter_mut().chain(&mut self.last)
    }
}

impl Transaction<'_> {
    /// Leaves work as a whole to links of its own: its intent commits with everything that the caller does in the link
    /// at hand, before and after this. So several pieces of work, and changes besides, are one as far as a crash goes.
    pub fn defer(&mut self, turn: Turn, key: Vec<u8>, work: Box<dyn Work>) {
        self.dirty = true;
        self.deferred.of(turn).push_back(Waiting { work, key, intent: None });
    }

    /// Whether updates wait for their links.
    pub fn has_deferred_updates(&self) -> bool {
        !self.deferred.first.is_empty()
    }

    /// Whether an update waits that is about the key.
    pub fn has_deferred(&self, key: impl FnOnce() -> Vec<u8>) -> bool {
        if self.deferred.first.is_empty() {
            return false;
        }
        let key = key();
        self.deferred.first.iter().any(|waiting| waiting.key == key)
    }

    /// Logs an intent for all that waits and has none; part of every link's commit.
    pub(in crate::trans) fn log_deferred(&mut self) {
        let mut queue = std::mem::take(&mut self.deferred);
        for waiting in queue.all().filter(|waiting| waiting.intent.is_none()) {
            waiting.intent = Some(self.log_intent_for(&*waiting.work));
        }
        self.deferred = queue;
    }

    /// Logs the intents of all that waits anew, and that the old ones are done: the next link has to wait for log
    /// space, and they must not be what holds the tail. Those in the checkpoint at hand are at the head already.
    pub(in crate::trans) fn relog_deferred(&mut self) {
        let mut queue = std::mem::take(&mut self.deferred);
        for Waiting { work, intent, .. } in queue.all() {
            let Some(old) = intent.take_if(|intent| !self.is_at_head(intent)) else { continue };
            let mut done = LogVector::default();
            work.encode_done(old.id, &mut done);
            *intent = Some(self.log_intent_for(&**work));
            self.log_done(done, old);
            self.mount.counters.intents_relogged.increment();
        }
        self.deferred = queue;
    }

    /// Whether this link commits the intent, or the checkpoint at hand has it.
    fn is_at_head(&self, intent: &LoggedIntent) -> bool {
        let logged_in = intent.item.state().lock().gathered.newest();
        logged_in == CheckpointSeq::default() || logged_in == self.mount.journal.current()
    }
}
