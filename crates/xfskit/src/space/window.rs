//! Windows: free blocks that are meant for a file.
//!
//! ```text
//! start        firm_end                 end
//!   ├─ firm ──────┼──────── soft ────────┤
//!   being written   for the file's next blocks, unless somebody needs the space
//! ```
//! Contents are written before the transaction that allocates their blocks, so that no transaction waits for them. The
//! window keeps others off the blocks meanwhile. What is left of it is speculative preallocation: it keeps a growing file in
//! one piece although others grow beside it, and costs nothing on disk.
//!
//! Invariants: windows of an AG do not overlap; a file has one in an AG at most; firm blocks are free in the AG's
//! trees, and nobody allocates them but their holder.
//!
//! Locking: one mutex for each AG, below everything else. Crash behaviour: windows are memory only.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use xfskit_ondisk::{AgBlock, InodeNumber};

/// Most windows of an AG; the one that was opened first makes way.
const MOST_WINDOWS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Window {
    holder: InodeNumber,
    start: u32,
    firm_end: u32,
    end: u32,
}

impl Window {
    fn is_firm(&self) -> bool {
        self.firm_end > self.start
    }
}

/// The windows of an AG.
#[derive(Debug, Default)]
pub struct Windows {
    /// Whether there are any, so that those who never meet one pay nothing.
    any: AtomicBool,
    list: Mutex<Vec<Window>>,
}

impl Windows {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Window>) -> T) -> T {
        let mut list = self.list.lock();
        let result = change(&mut list);
        self.any.store(!list.is_empty(), Ordering::Release);
        result
    }

    fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Opens a window for `holder` in place of the one it had, its first `firm` blocks firm. `false`: somebody else's
    /// lies there.
    pub(super) fn open(&self, holder: InodeNumber, start: AgBlock, count: u32, firm: u32) -> bool {
        let new = Window { holder, start: start.0, firm_end: start.0 + firm, end: start.0 + count };
        self.change(|list| {
            list.retain(|window| window.holder != holder);
            if list.iter().any(|window| window.start < new.end && new.start < window.end) {
                return false;
            }
            if list.len() >= MOST_WINDOWS
                && let Some(oldest) = list.iter().position(|window| !window.is_firm())
            {
                list.remove(oldest);
            }
            list.push(new);
            true
        })
    }

    /// Makes the first `most` blocks of the holder's window firm if it starts at `start`; returns how many it has.
    pub(super) fn firm_up(&self, holder: InodeNumber, start: AgBlock, most: u32) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list.lock();
        let window = list.iter_mut().find(|window| window.holder == holder && window.start == start.0)?;
        window.firm_end = window.end.min(window.start + most);
        Some(window.firm_end - window.start)
    }

    /// The first `used` blocks of the holder's window are allocated; what is left is soft.
    pub(super) fn advance(&self, holder: InodeNumber, used: u32) {
        self.change(|list| {
            for window in list.iter_mut().filter(|window| window.holder == holder) {
                window.start = window.end.min(window.start + used);
                window.firm_end = window.start;
            }
            list.retain(|window| window.start < window.end);
        });
    }

    /// Gives the soft parts of all windows back. Says whether there were any.
    pub(super) fn give_back(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        self.change(|list| {
            let before = list.iter().map(|window| window.end - window.start).sum::<u32>();
            list.iter_mut().for_each(|window| window.end = window.firm_end);
            list.retain(Window::is_firm);
            before > list.iter().map(|window| window.end - window.start).sum::<u32>()
        })
    }

    /// The blocks that others than `holder` have windows on.
    pub(super) fn of_others(&self, holder: Option<InodeNumber>) -> Vec<(AgBlock, u32)> {
        if self.is_empty() {
            return Vec::new();
        }
        let list = self.list.lock();
        let others = list.iter().filter(|window| Some(window.holder) != holder);
        others.map(|window| (AgBlock(window.start), window.end - window.start)).collect()
    }

    /// Firm blocks of others than `holder`: they count as used.
    pub(super) fn firm_of_others(&self, holder: Option<InodeNumber>) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let list = self.list.lock();
        let others = list.iter().filter(|window| Some(window.holder) != holder);
        others.map(|window| window.firm_end - window.start).sum()
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_window_keeps_others_off_until_its_soft_part_is_given_back() {
        let (windows, a, b) = (Windows::default(), InodeNumber(1), InodeNumber(2));
        assert!(windows.open(a, AgBlock(100), 50, 10));
        assert!(!windows.open(b, AgBlock(149), 1, 1));
        assert_eq!(windows.of_others(Some(b)), [(AgBlock(100), 50)]);
        assert_eq!((windows.firm_of_others(Some(b)), windows.firm_of_others(Some(a))), (10, 0));
        windows.advance(a, 10);
        assert_eq!(windows.firm_up(a, AgBlock(110), 100), Some(40));
        assert!(!windows.give_back());
        windows.advance(a, 5);
        assert!(windows.give_back());
        assert!(windows.of_others(None).is_empty());
        assert_eq!(windows.firm_up(a, AgBlock(115), 1), None);
    }
}
