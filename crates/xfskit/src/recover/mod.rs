//! Finishes what the log holds as intents without done items.

use crate::error::Result;
use crate::journal::RecoveredIntent;
use crate::mount::Mount;
use std::sync::Arc;
use xfskit_ondisk::Unsupported;

/// What finishing came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntentReport {
    /// Intents that were finished.
    pub finished: u64,
}

/// Finishes intents, each in transactions of its own, in the order of the log.
///
/// # Errors
/// `Unsupported` for any.
pub fn finish_intents(_: &Arc<Mount>, intents: Vec<Arc<RecoveredIntent>>) -> Result<IntentReport> {
    match intents.first() {
        None => Ok(IntentReport::default()),
        Some(_) => Err(Unsupported::Feature("unfinished operations in the journal (intents)").into()),
    }
}
