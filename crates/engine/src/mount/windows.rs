//! Windows: free blocks that are kept for a file that is being written.
//!
//! ```text
//! start        firm_end                 end
//!   ├─ firm ──────┼──────── soft ────────┤        fork block `file_block` will lie at `start`, the next behind it
//!   being written   for the file's next blocks, unless another file needs the space
//! ```
//! Contents are written before the transaction that allocates their blocks, so that no transaction waits for them. The
//! window keeps other files off the blocks meanwhile. The rest of it is speculative preallocation: it keeps a growing
//! file in one piece although other files grow beside it, and although its blocks may be written in any order. It costs
//! nothing on disk.
//!
//! Invariants: windows of an AG do not overlap; firm blocks are free in the AG's trees, and only their holder allocates
//! them; a file has firm blocks in one window at most.
//!
//! Locking: one mutex for each AG, below everything else. Crash behaviour: windows are memory only.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::{AgBlock, InodeNumber};

/// Most windows of an AG; another one replaces the oldest that is not firm.
const MAX_WINDOWS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Window {
    holder: InodeNumber,
    file_block: u64,
    start: u32,
    firm_end: u32,
    end: u32,
}

impl Window {
    fn is_firm(&self) -> bool {
        self.firm_end > self.start
    }

    /// How many blocks behind the start the fork block will lie.
    fn distance(&self, file_block: u64) -> Option<u32> {
        let distance = file_block.checked_sub(self.file_block)?;
        (distance < u64::from(self.end - self.start)).then_some(distance as u32)
    }
}

/// Blocks of a window that are firm now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Firm {
    /// The first.
    pub start: AgBlock,
    /// How many.
    pub count: u32,
}

/// Makes up to `most` blocks of a window firm, from the one at `distance` on. What lies before them becomes a window of
/// its own.
fn firm_up(list: &mut Vec<Window>, index: usize, distance: u32, most: u32) -> Firm {
    let window = &mut list[index];
    let before = Window { end: window.start + distance, ..*window };
    window.start += distance;
    window.file_block += u64::from(distance);
    window.firm_end = window.end.min(window.start.saturating_add(most));
    let firm = Firm { start: AgBlock(window.start), count: window.firm_end - window.start };
    if distance > 0 {
        list.push(Window { firm_end: before.start, ..before });
    }
    firm
}

/// The windows of an AG.
#[derive(Debug, Default)]
pub struct Windows {
    /// Whether there are any windows: where there are none, no thread takes the lock.
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

    /// Opens a window on free blocks, for the holder's fork blocks from `file_block` on, and makes up to `most` of them
    /// firm, from the block for `first` on, which is one of them. `None` when another window overlaps.
    pub(crate) fn open_firm(
        &self,
        holder: InodeNumber,
        file_block: u64,
        blocks: FreeExtent,
        (first, most): (u64, u32),
    ) -> Option<Firm> {
        let start = blocks.start.0;
        let new = Window { holder, file_block, start, firm_end: start, end: blocks.end() };
        let distance =
            new.distance(first).expect("a search for blocks asks for enough to reach the first that it wants");
        self.change(|list| {
            let meets = |window: &Window| window.start < new.end && new.start < window.end;
            if list.iter().any(|window| window.holder != holder && meets(window)) {
                return None;
            }
            // Windows of the holder that overlap are replaced, whatever blocks of the file they were for.
            list.retain(|window| !meets(window));
            if list.len() >= MAX_WINDOWS
                && let Some(oldest) = list.iter().position(|window| !window.is_firm())
            {
                list.remove(oldest);
            }
            list.push(new);
            let index = list.len() - 1;
            Some(firm_up(list, index, distance, most))
        })
    }

    /// Makes up to `most` blocks firm, from the one for `file_block` on. What lies before them stays a window of its
    /// own.
    pub(crate) fn firm_up(&self, holder: InodeNumber, file_block: u64, most: u32) -> Option<Firm> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list.lock();
        let distance = |window: &Window| window.distance(file_block).filter(|_| window.holder == holder);
        let (index, distance) = list.iter().enumerate().find_map(|(index, window)| Some((index, distance(window)?)))?;
        Some(firm_up(&mut list, index, distance, most))
    }

    /// Makes `count` blocks firm at the start of any of the holder's windows that has so many.
    pub(crate) fn firm_any(&self, holder: InodeNumber, count: u32) -> Option<AgBlock> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list.lock();
        let window = list.iter_mut().find(|window| window.holder == holder && window.end - window.start >= count)?;
        window.firm_end = window.start + count;
        Some(AgBlock(window.start))
    }

    /// The first `used` of the firm blocks are allocated; what is left is soft.
    pub(crate) fn settle(&self, holder: InodeNumber, start: AgBlock, used: u32) {
        self.change(|list| {
            for window in list.iter_mut().filter(|window| window.holder == holder && window.start == start.0) {
                window.start = window.end.min(window.start + used);
                window.file_block += u64::from(used);
                window.firm_end = window.start;
            }
            list.retain(|window| window.start < window.end);
        });
    }

    /// Closes the holder's windows, except firm ones, which are being written.
    pub(crate) fn close(&self, holder: InodeNumber) {
        if !self.is_empty() {
            self.change(|list| list.retain(|window| window.holder != holder || window.is_firm()));
        }
    }

    /// Gives up the soft parts of all windows. Returns whether there were any.
    pub(crate) fn give_back(&self) -> bool {
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
    pub(crate) fn of_others(&self, holder: Option<InodeNumber>) -> Vec<(AgBlock, u32)> {
        if self.is_empty() {
            return Vec::new();
        }
        let list = self.list.lock();
        let others = list.iter().filter(|window| Some(window.holder) != holder);
        others.map(|window| (AgBlock(window.start), window.end - window.start)).collect()
    }

    /// Firm blocks of others than `holder`: they count as used.
    pub(crate) fn firm_of_others(&self, holder: Option<InodeNumber>) -> u32 {
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

    fn firm(start: u32, count: u32) -> Option<Firm> {
        Some(Firm { start: AgBlock(start), count })
    }

    fn blocks(start: u32, count: u32) -> FreeExtent {
        FreeExtent { start: AgBlock(start), count }
    }

    #[test]
    fn a_window_keeps_others_off_until_its_soft_part_is_given_back() {
        let (windows, a, b) = (Windows::default(), InodeNumber(1), InodeNumber(2));
        assert_eq!(windows.open_firm(a, 7, blocks(100, 50), (7, 10)), firm(100, 10));
        assert_eq!(windows.open_firm(b, 0, blocks(149, 1), (0, 1)), None);
        assert_eq!(windows.of_others(Some(b)), [(AgBlock(100), 50)]);
        assert_eq!((windows.firm_of_others(Some(b)), windows.firm_of_others(Some(a))), (10, 0));
        windows.settle(a, AgBlock(100), 10);
        assert_eq!(windows.firm_up(a, 17, 100), firm(110, 40));
        assert!(!windows.give_back());
        windows.settle(a, AgBlock(110), 5);
        assert!(windows.give_back());
        assert!(windows.of_others(None).is_empty());
        assert_eq!(windows.firm_up(a, 22, 1), None);
    }

    #[test]
    fn what_was_opened_is_firm_at_once() {
        let (windows, a) = (Windows::default(), InodeNumber(1));
        assert_eq!(windows.open_firm(a, 7, blocks(100, 50), (10, 20)), firm(103, 20));
        // Another file that needs space takes the soft blocks.
        assert!(windows.give_back());
        assert_eq!(windows.of_others(None), [(AgBlock(103), 20)]);
    }

    #[test]
    fn blocks_that_come_out_of_order_lie_in_order() {
        let (windows, a) = (Windows::default(), InodeNumber(1));
        assert_eq!(windows.open_firm(a, 0, blocks(100, 50), (20, 10)), firm(120, 10));
        windows.settle(a, AgBlock(120), 10);
        assert_eq!(windows.firm_up(a, 0, 100), firm(100, 20));
        windows.settle(a, AgBlock(100), 20);
        assert_eq!(windows.firm_up(a, 30, 100), firm(130, 20));
        assert_eq!(windows.firm_up(a, 20, 1), None);
    }
}
