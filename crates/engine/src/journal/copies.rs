//! Memory for the copies of small items: slabs that are filled one after the other.
//!
//! ```text
//! slab   copy 1 │ room │ copy 2 │ ...      a copy lies in one slab, with room to grow a little
//! ```
//! A copy that is made anew takes its old place when it fits, else a new one. The place that it leaves stays unused
//! until the checkpoint is written. An inode's copy has an upper bound, so the unused part has one too.
//!
//! Slabs return to the [`SlabStock`] when their checkpoint is durable.

use super::pool::{SLAB_BYTES, SlabStock};
use crate::item::LogVector;

/// What a copy may grow by without a new place.
const ROOM_TO_GROW: usize = 64;
/// Most regions of a copy.
pub const MAX_REGIONS: usize = 4;

/// Where the regions of a copy end, each a multiple of 4.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionEnds {
    ends: [u32; MAX_REGIONS],
    count: u8,
}

impl RegionEnds {
    /// Adds a region of `bytes` bytes, and padding to a multiple of 4.
    #[inline]
    pub fn push(&mut self, bytes: usize) {
        let end = self.bytes() + bytes.next_multiple_of(4);
        self.ends[usize::from(self.count)] = end as u32;
        self.count += 1;
    }

    /// The ends.
    #[inline]
    pub fn ends(&self) -> &[u32] {
        &self.ends[..self.count.into()]
    }

    /// Bytes of all regions.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.ends().last().copied().unwrap_or(0) as usize
    }

    /// Bytes in the log, with an operation header of 12 bytes for each region.
    #[inline]
    pub fn log_bytes(&self) -> usize {
        self.bytes() + 12 * self.ends().len()
    }
}

/// A copy that is to be made: the lengths of its regions, and their contents.
pub trait Regions {
    /// Where they end.
    fn ends(&self) -> RegionEnds;

    /// Writes the regions to `out`, all of its bytes.
    fn fill(&self, out: &mut [u8]);
}

/// Where a copy lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    slab: u32,
    start: u32,
    room: u32,
    ends: RegionEnds,
}

impl Copied {
    pub(super) fn region_count(&self) -> usize {
        self.ends.ends().len()
    }
}

/// The slabs of one shard and checkpoint.
#[derive(Default)]
pub(super) struct Copies {
    slabs: Vec<Box<[u8]>>,
    /// Bytes of the last slab that are given out.
    used: usize,
}

impl Copies {
    /// Makes a copy.
    pub(super) fn add(&mut self, copy: &impl Regions, ends: RegionEnds, stock: &SlabStock) -> Copied {
        let room = (ends.bytes() + ROOM_TO_GROW).next_multiple_of(64);
        assert!(room <= SLAB_BYTES, "a copy of {} bytes fits a slab", ends.bytes());
        if self.slabs.is_empty() || self.used + room > SLAB_BYTES {
            self.slabs.push(stock.take());
            self.used = 0;
        }
        let place = Copied { slab: self.slabs.len() as u32 - 1, start: self.used as u32, room: room as u32, ends };
        self.used += room;
        self.fill(&place, copy);
        place
    }

    /// Makes a copy anew, at its old place if it fits there.
    pub(super) fn replace(&mut self, old: Copied, copy: &impl Regions, ends: RegionEnds, stock: &SlabStock) -> Copied {
        if ends.bytes() > old.room as usize {
            return self.add(copy, ends, stock);
        }
        let place = Copied { ends, ..old };
        self.fill(&place, copy);
        place
    }

    fn fill(&mut self, place: &Copied, copy: &impl Regions) {
        let start = place.start as usize;
        copy.fill(&mut self.slabs[place.slab as usize][start..start + place.ends.bytes()]);
    }

    /// The slabs, when the copies are not needed any more.
    pub(super) fn into_slabs(self) -> Vec<Box<[u8]>> {
        self.slabs
    }

    /// The regions of a copy, in order.
    pub(super) fn regions(&self, place: &Copied) -> impl Iterator<Item = &[u8]> {
        let bytes = &self.slabs[place.slab as usize][place.start as usize..];
        let mut start = 0;
        let ends = place.ends;
        (0..ends.ends().len()).map(move |index| {
            let end = ends.ends()[index] as usize;
            let region = &bytes[start..end];
            start = end;
            region
        })
    }
}

/// Makes a copy in a vector of its own.
pub(super) fn copy_into(vector: &mut LogVector, copy: &impl Regions, ends: &RegionEnds) {
    copy.fill(vector.set_up(ends.ends()));
}
