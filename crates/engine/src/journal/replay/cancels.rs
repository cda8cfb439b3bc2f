//! Buffers that were freed: items of them from before the free must not be replayed, for the blocks may contain file
//! contents or other metadata by now.
//!
//! The first pass counts the cancel records of each buffer. The second takes them off again as it reads them, so that a
//! buffer is cancelled exactly as long as one of its cancel records is still ahead.

use std::collections::HashMap;
use xfskit_ondisk::DiskAddress;

/// A buffer by its exact place: address and length in basic blocks.
type CancelKey = (DiskAddress, u16);

/// The cancel records that are still ahead.
#[derive(Default)]
pub(super) struct Cancels {
    ahead: HashMap<CancelKey, u32>,
}

impl Cancels {
    /// The first pass found a cancel record.
    pub(super) fn add(&mut self, address: DiskAddress, basic_blocks: u16) {
        *self.ahead.entry((address, basic_blocks)).or_default() += 1;
    }

    /// The second pass reads a cancel record.
    pub(super) fn pass(&mut self, address: DiskAddress, basic_blocks: u16) {
        let place = (address, basic_blocks);
        if let Some(count) = self.ahead.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.ahead.remove(&place);
            }
        }
    }

    /// Whether a cancel record of the buffer is still ahead.
    pub(super) fn is_cancelled(&self, address: DiskAddress, basic_blocks: u16) -> bool {
        self.ahead.contains_key(&(address, basic_blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_cancelled_until_its_last_record_has_passed() {
        let (mut cancels, place) = (Cancels::default(), DiskAddress(8));
        cancels.add(place, 8);
        cancels.add(place, 8);
        assert!(cancels.is_cancelled(place, 8) && !cancels.is_cancelled(place, 16));
        cancels.pass(place, 8);
        assert!(cancels.is_cancelled(place, 8));
        cancels.pass(place, 8);
        cancels.pass(place, 8);
        assert!(!cancels.is_cancelled(place, 8));
    }
}
