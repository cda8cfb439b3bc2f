//! Work that does not fit one transaction: one trait, one queue, one loop. The design: `docs/design/deferred.md`.
//!
//! ```text
//! time      link 0 (the caller's)         link 1                        link n
//! ────────────────────────────────────────────────────────────────────────────────────
//! log       caller's changes              done(I0)                      done(In-1)
//!           step 0 of the work            step 1                        step n, the last
//!           intent I0: the rest           intent I1: the rest
//! crash     nothing happened              recovery does the rest        everything happened
//! ```
//! Work that is done in its first step commits with its caller's changes and logs no intent at all. Work that is put
//! off as a whole ([`Transaction::defer`]) logs its intent in link 0 and begins in link 1.
//!
//! Work that the caller chose not to log is the same chain without the intents: a crash between its links leaves it
//! undone. Its last link alone makes it visible, so no reader sees it half done.

mod intent;
mod queue;
mod recovered;
mod run;

use intent::LoggedIntent;
pub(super) use queue::Queue;
pub use queue::Turn;
pub use recovered::{Origin, RecoveredWork, finish_recovered};
pub use run::{Logging, run};

use super::{Reservation, Transaction};
use crate::error::Result;
use crate::item::LogVector;
use crate::mount::Mount;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The link is full: something is left to do.
    Roll,
    /// All is done.
    Done,
    /// There is no space for what is left; this link has changed nothing.
    NoSpace,
}

/// Work that may take several links of a chain.
pub trait Work: Send {
    /// Encodes an intent that describes all that is left to do.
    fn encode_intent(&self, id: u64, copy: &mut LogVector);

    /// Encodes the done item of intent `id`, which described what is left now.
    fn encode_done(&self, id: u64, copy: &mut LogVector);

    /// Does as much as fits the link.
    ///
    /// # Errors
    /// Any error after a change shuts the filesystem down; the work checks first what it can.
    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult>;

    /// Takes back what earlier links did, after a step found no space. Only called for work whose steps may find no
    /// space.
    ///
    /// # Errors
    /// As [`Self::step`].
    fn undo(&mut self, _: &mut Transaction) -> Result<()> {
        unreachable!("only work that may find no space is taken back")
    }

    /// Log space and blocks for a step in a transaction of its own.
    fn reserve(&self, mount: &Mount) -> Reservation;

    /// The point between two links at which a test can stop the filesystem.
    fn error_tag(&self) -> &'static str;

    /// Whether the image is sound without the work, and no caller has got an answer that it succeeded. If recovery
    /// finds no space for such work, it counts as done.
    fn may_be_left(&self) -> bool {
        false
    }
}
