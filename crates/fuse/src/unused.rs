//! Files that the kernel is to forget as soon as no program has them open.
//!
//! ```text
//! added ─▶ the kernel is asked, again and again ─┬─ it has forgotten the file
//!                                                └─ after a fifth of a second: a program keeps it open
//! ```
//! One thread asks for all; it ends when there are none. More files than [`MOST`] at once are left out.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

const MOST: usize = 4096;
/// How often the kernel is asked: first soon, for a program that changes a file closes it then, and later seldom.
const SOON: Duration = Duration::from_micros(300);
const LATER: Duration = Duration::from_millis(20);
const SOON_ROUNDS: u8 = 10;
const ROUNDS: u8 = 20;

/// The files, with how often the kernel was asked to forget each.
#[derive(Debug, Default)]
pub(crate) struct UnusedSoon(Mutex<HashMap<u64, u8>>);

impl UnusedSoon {
    /// Adds a file. Returns whether it is the first, for which a thread is to call [`Self::prune`].
    pub(crate) fn add(&self, node: u64) -> bool {
        let mut files = self.0.lock();
        if files.len() >= MOST {
            return false;
        }
        let is_first = files.is_empty();
        files.insert(node, 0);
        is_first
    }

    /// No thread can be had.
    pub(crate) fn give_up(&self) {
        self.0.lock().clear();
    }

    /// Asks by `ask` until all files are forgotten, or kept open; ends, too, where the kernel refuses, as those before
    /// Linux 6.18 do.
    pub(crate) fn prune(&self, is_known: impl Fn(u64) -> bool, ask: impl Fn(&[u64]) -> io::Result<()>) {
        loop {
            let is_soon = self.0.lock().values().any(|rounds| *rounds < SOON_ROUNDS);
            std::thread::sleep(if is_soon { SOON } else { LATER });
            let nodes: Vec<u64> = self.0.lock().keys().copied().collect();
            let result = ask(&nodes);
            let gone: Vec<u64> = nodes.into_iter().filter(|node| !is_known(*node)).collect();
            let mut files = self.0.lock();
            files.retain(|node, rounds| {
                *rounds += 1;
                *rounds < ROUNDS && !gone.contains(node)
            });
            if result.is_err() {
                files.clear();
            }
            if files.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn each_is_asked_for_until_it_is_forgotten_and_no_longer_than_it_is_kept_open() {
        let files = UnusedSoon::default();
        assert!(files.add(7) && !files.add(7) && !files.add(8) && !files.add(7));
        let asked = Cell::new(0);
        files.prune(
            |node| node == 8 || asked.get() < 3,
            |nodes| {
                asked.set(asked.get() + 1);
                assert_eq!(nodes.len(), if asked.get() <= 3 { 2 } else { 1 });
                Ok(())
            },
        );
        assert_eq!(asked.get(), u32::from(ROUNDS));
        assert!(files.add(9));
        files.prune(|_| true, |_| Err(io::ErrorKind::InvalidInput.into()));
        assert!((0..2 * MOST as u64).filter(|node| files.add(*node)).count() == 1);
    }
}
