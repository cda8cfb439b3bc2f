//! The loop that takes work from link to link.

use super::{LoggedIntent, StepResult, Turn, Work};
use crate::error::{Error, Result};
use crate::item::LogVector;
use crate::trans::Transaction;

/// Whether work that takes several links is logged by intents, so that recovery finishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logging {
    /// It is.
    Logged,
    /// It is not: a crash between its links leaves it undone.
    NotLogged,
}

/// Does all steps of work, and rolls the transaction as often as the work asks for. The caller commits the last link.
///
/// # Errors
/// The work's, or the journal's. `NoSpace` leaves a transaction without changes: further links have taken back what
/// earlier links had done for the work, and have finished its intent.
pub fn run(tx: &mut Transaction, work: &mut dyn Work, logging: Logging) -> Result<()> {
    match work.step(tx)? {
        StepResult::NoSpace => Err(Error::NoSpace),
        step => go_on(tx, work, step, logging),
    }
}

/// As [`run`], after a step with the result `step`.
fn go_on(tx: &mut Transaction, work: &mut dyn Work, mut step: StepResult, logging: Logging) -> Result<()> {
    while step == StepResult::Roll {
        step = tx.in_later_link(|tx| next_link(tx, work, logging))?;
    }
    if step == StepResult::Done {
        return Ok(());
    }
    tx.in_later_link(|tx| {
        work.undo(tx)?;
        tx.finish_deferred(Turn::Last)?;
        tx.roll()
    })?;
    Err(Error::NoSpace)
}

/// Commits what was done with an intent for the rest, and takes the next step in the link after that.
fn next_link(tx: &mut Transaction, work: &mut dyn Work, logging: Logging) -> Result<StepResult> {
    let intent = (logging == Logging::Logged).then(|| tx.log_intent_for(work));
    tx.roll()?;
    tx.mount().stop_if_tagged(work.error_tag())?;
    step_of(tx, work, intent)
}

/// A step in a link that begins with it: the intent that described it is done in the same link.
pub(super) fn step_of(tx: &mut Transaction, work: &mut dyn Work, intent: Option<LoggedIntent>) -> Result<StepResult> {
    let done = intent.map(|intent| {
        let mut copy = LogVector::default();
        work.encode_done(intent.id, &mut copy);
        (copy, intent)
    });
    let step = work.step(tx)?;
    if let Some((copy, intent)) = done {
        tx.log_done(copy, intent);
    }
    Ok(step)
}

impl Transaction<'_> {
    /// Does the work that was put off for `turn`, each piece in links of its own. The caller commits the last link. A
    /// piece that finds no space is taken back, and the others are done all the same.
    ///
    /// # Errors
    /// `NoSpace` for what was taken back, with a transaction without changes; `Corrupt`, `Io`, `Shutdown`.
    pub fn finish_deferred(&mut self, turn: Turn) -> Result<()> {
        let mut taken_back = false;
        while !self.deferred.is_empty(turn) {
            taken_back |= self.in_later_link(|tx| tx.begin_deferred(turn))?;
        }
        if !taken_back {
            return Ok(());
        }
        self.in_later_link(Self::roll)?;
        Err(Error::NoSpace)
    }

    /// Does the first piece that waits. Returns whether it was taken back for want of space.
    fn begin_deferred(&mut self, turn: Turn) -> Result<bool> {
        self.roll()?;
        let Some(mut waiting) = self.deferred.take_next(turn) else { return Ok(false) };
        let work = &mut *waiting.work;
        self.mount.stop_if_tagged(work.error_tag())?;
        let step = step_of(self, work, waiting.intent)?;
        match go_on(self, work, step, Logging::Logged) {
            Err(Error::NoSpace) if !self.dirty => Ok(true),
            other => other.map(|()| false),
        }
    }
}
