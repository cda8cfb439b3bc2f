//! The journal for people: records, the operations in them, and the items that these log.
//!
//! This module changes nothing and trusts nothing: what cannot be decoded is shown as such. No other
//! part of the command needs more of the library than callers have: this one uses its feature `internals`.

mod checkpoints;
mod items;
mod records;

pub use checkpoints::{Checkpoint, Preview, checkpoints, intent_name};
pub use items::Item;
pub use records::{Found, Journal, Which, flag_names, has, is_log, state_in_words};
pub use xfskit_engine::journal::Operation;
