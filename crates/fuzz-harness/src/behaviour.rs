//! What an input made a target do. It takes the place of coverage, which would need instrumentation by the compiler.

use std::collections::HashSet;
use std::fmt::{Display, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The traits of one run. An input with a trait that no other input has shown is worth keeping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour(HashSet<u64>);

impl Behaviour {
    /// No traits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a trait.
    pub fn note(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.0.insert(hasher.finish());
    }

    /// Notes a message. Its digits do not count.
    pub fn note_message(&mut self, message: &impl Display) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{message}");
        text.retain(|letter| !letter.is_ascii_digit());
        text.truncate(text.char_indices().nth(120).map_or(text.len(), |(at, _)| at));
        self.note(text);
    }

    /// Notes whether `what` succeeded, and its error.
    pub fn note_result<T, E: Display>(&mut self, what: &'static str, result: &Result<T, E>) {
        self.note((what, result.is_ok()));
        if let Err(error) = result {
            self.note_message(error);
        }
    }

    /// The traits that are not in `known`.
    pub(crate) fn beyond(&self, known: &HashSet<u64>) -> HashSet<u64> {
        self.0.difference(known).copied().collect()
    }

    /// Whether all of `traits` were seen.
    pub(crate) fn covers(&self, traits: &HashSet<u64>) -> bool {
        traits.is_subset(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_messages_make_no_difference() {
        let (mut one, mut other) = (Behaviour::new(), Behaviour::new());
        one.note_message(&"block 7 of inode 130");
        other.note_message(&"block 81 of inode 9");
        assert_eq!(one, other);
        let known = one.beyond(&HashSet::new());
        other.note_message(&"something else");
        assert!(other.beyond(&known).len() == 1 && !one.covers(&other.beyond(&known)));
    }
}
