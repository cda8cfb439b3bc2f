//! The journal for people: records, the operations in them, and the items that these log.
//!
//! This module changes nothing and trusts nothing: what cannot be decoded is shown as such. No other
//! part of the command needs more of the library than callers have: this one uses its feature `internals`.

mod checkpoints;
mod items;
mod print;
mod records;

pub use print::run;
pub use records::state_in_words;
