//! Updates that do not fit one transaction: intents, done items and the loop that finishes them.
//!
//! ```text
//! time      link 0 (the caller's)         link 1                        link n
//! ────────────────────────────────────────────────────────────────────────────────────
//! log       caller's changes              done(I0)                      done(In-1)
//!           step 0 of the operation       step 1                        step n, the last
//!           intent I0: the rest           intent I1: the rest
//! crash     nothing happened              recovery does the rest        everything happened
//! ```
//! An operation that finishes in its first step commits with its caller's changes and logs no intent at all. When it
//! must roll, the link carries an intent that describes what is left, so each link leaves the image in a state from
//! which recovery can finish. An intent whose done item is committed into the same checkpoint is whited out there, and
//! neither reaches the log.
//!
//! An operation may also be queued as a whole (the policy `always` does that, and batches that must be atomic although they do not
//! fit one transaction): its intent is logged in link 0, and link 1 begins it.
//!
//! An operation that the caller chose not to log is the same chain without the intents: a crash between
//! its links leaves it undone. Its last link alone makes it visible, so nobody sees it half done.

use crate::error::{Error, Result};
use crate::error_tags::LARP;
use crate::item::LogVector;
use crate::trans::{Intent, PassingItem, Queued, Transaction, Update};
use std::sync::Arc;

/// What a step came to.
pub enum Step<O> {
    /// The transaction is full: commit it and go on with this.
    Roll(O),
    /// All is done.
    Done,
    /// There is no space for what is left; this link has changed nothing.
    NoSpace(O),
}

/// An operation that may take several transactions.
pub trait DeferredOp: Sized {
    /// Formats an intent that describes all that is left to do.
    fn format_intent(&self, id: u64, copy: &mut LogVector);

    /// Formats the done item of intent `id`, which described what is left now.
    fn format_done(&self, id: u64, copy: &mut LogVector);

    /// Does as much as fits the transaction.
    ///
    /// # Errors
    /// Any error after a change shuts the filesystem down; the operation checks first what it can.
    fn step(self, tx: &mut Transaction) -> Result<Step<Self>>;

    /// Takes back what earlier links did, when a later one found no space.
    ///
    /// # Errors
    /// As [`Self::step`].
    fn undo(self, tx: &mut Transaction) -> Result<()>;
}

/// Runs an operation to its end, rolling the transaction as often as it asks for. The last link is left to the caller
/// to commit.
///
/// # Errors
/// The operation's, or the journal's. `NoSpace` leaves a transaction without changes: what the links before had done for
/// the operation was taken back, and its intent is finished, in links of their own.
pub fn finish<O: DeferredOp>(tx: &mut Transaction, operation: O, logged: bool) -> Result<()> {
    let mut step = operation.step(tx)?;
    loop {
        match step {
            Step::Done => return Ok(()),
            Step::NoSpace(_) => return Err(Error::NoSpace),
            Step::Roll(rest) => {
                step = tx.in_later_link(|tx| next_link(tx, rest, logged))?;
                if let Step::NoSpace(rest) = step {
                    tx.in_later_link(|tx| {
                        rest.undo(tx)?;
                        tx.finish_frees()?;
                        tx.roll()
                    })?;
                    return Err(Error::NoSpace);
                }
            }
        }
    }
}

/// Leaves a whole operation to links of its own: its intent commits with everything that the caller does, before and after
/// this, in the link at hand. So several operations, and changes besides, are one as far as a crash goes.
pub fn queue<O: DeferredOp + Send + 'static>(tx: &mut Transaction, key: Vec<u8>, operation: O) {
    let intent = log_intent(tx, &operation);
    tx.queue(Queued { key, intent, update: Box::new(Whole(operation)) });
}

/// An operation that is queued from its beginning.
struct Whole<O>(O);

impl<O: DeferredOp + Send> Update for Whole<O> {
    fn format_intent(&self, id: u64, copy: &mut LogVector) {
        self.0.format_intent(id, copy);
    }

    fn format_done(&self, id: u64, copy: &mut LogVector) {
        self.0.format_done(id, copy);
    }

    fn run(self: Box<Self>, tx: &mut Transaction) -> Result<()> {
        finish(tx, self.0, true)
    }
}

/// Commits what was done with an intent for the rest, and does the next step in the link after that.
fn next_link<O: DeferredOp>(tx: &mut Transaction, rest: O, logged: bool) -> Result<Step<O>> {
    let intent = logged.then(|| log_intent(tx, &rest));
    tx.roll()?;
    tx.mount().stop_if_tagged(LARP)?;
    let done = intent.map(|intent| (format_done(&intent, &rest), intent));
    let step = rest.step(tx)?;
    if let Some((copy, intent)) = done {
        tx.log_done(Arc::new(PassingItem::default()), copy, intent);
    }
    Ok(step)
}

fn log_intent<O: DeferredOp>(tx: &mut Transaction, rest: &O) -> Arc<Intent> {
    let intent = Intent::new(&tx.mount().intent_ids);
    let mut copy = LogVector::default();
    rest.format_intent(intent.id(), &mut copy);
    tx.log_intent(Arc::clone(&intent) as _, copy);
    intent
}

/// The done item of the intent that describes `rest`.
fn format_done<O: DeferredOp>(intent: &Intent, rest: &O) -> LogVector {
    let mut copy = LogVector::default();
    rest.format_done(intent.id(), &mut copy);
    copy
}
