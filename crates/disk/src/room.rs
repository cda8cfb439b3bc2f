//! The length of a qcow2 image's file.
//!
//! ```text
//! file   clusters in use ────────────┤ used        │ durable: the file ends here
//!                                    └─ what the next writes allocate lies here, and reads as zeros until then
//! ```
//! Imago writes a new table behind the end of the file and then the entry that points to it, without a flush between.
//! After a power failure the entry may be there and the file as short as before. `qemu-img check -r all` does not mend
//! an entry that points past the end. So the file is made longer, and that is made durable, before anything is
//! allocated there: a table that did not arrive is then one of zeros, which refers to nothing.
//!
//! Invariant: everything that imago has allocated lies below `used` and what was asked for since that was found, and
//! that is not above `durable`. It is an upper bound, since imago does not say what it allocates; `used` is found anew
//! from the data in the file each time the file grows, with what writes in flight may still allocate. At a clean close
//! the file gets its real length back.

use crate::bytes::be_u32_at;
use imago::storage::PreallocateMode;
use imago::{DynStorage, StorageExt};
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use xfskit_device::FileDevice;

/// What imago reads and writes: a file, or in tests a simulated one.
pub(crate) type Lower = Arc<dyn DynStorage>;

/// How much the file grows at once.
const STEP_BYTES: u64 = 64 << 20;
/// Clusters for tables of reference counts where few clusters are allocated.
const FEW_COUNTS: u64 = 4;
const HEADER_BYTES: usize = 104;

/// The room behind what is in use.
pub(crate) struct Room {
    lower: Lower,
    cluster_bytes: u64,
    /// The size of the table of reference counts, which is written anew when it grows.
    table_bytes: u64,
    /// Where the data of the file ended when that was last looked at.
    used: u64,
    /// Clusters that writes have asked for since.
    asked: u64,
    /// Of these, clusters of writes that have not returned.
    in_flight: u64,
    /// The tables of entries (L2) that exist, because an earlier write needed them.
    tables: HashSet<u64>,
    /// The length of the file, which is durable.
    durable: u64,
}

/// Clusters that were asked for, to be given to [`Room::done`] after the write.
#[must_use]
pub(crate) struct Asked(u64);

impl Room {
    /// # Errors
    /// Those of the storage.
    pub(crate) fn new(lower: &Lower, file: Option<&FileDevice>) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        lower.read(&mut header[..], 0)?;
        // The caller has checked both against QEMU's limits.
        let cluster_bytes = 1 << be_u32_at(&header, 20);
        let table_bytes = u64::from(be_u32_at(&header, 56)) * cluster_bytes;
        let length = lower.dyn_size()?;
        let used = length.next_multiple_of(cluster_bytes);
        let is_fixed = match file {
            Some(file) => !file.metadata()?.is_file(),
            None => false,
        };
        // A block device has its whole length from the start.
        let durable = if is_fixed { u64::MAX } else { length };
        let (asked, in_flight, tables) = (0, 0, HashSet::new());
        Ok(Self { lower: lower.clone(), cluster_bytes, table_bytes, used, asked, in_flight, tables, durable })
    }

    /// The size of a cluster in bytes.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.cluster_bytes
    }

    /// Makes the file long enough for the allocation of a number of clusters for a range of the disk.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn make(&mut self, range: Range<u64>, clusters: u64, file: Option<&FileDevice>) -> io::Result<Asked> {
        // A table of entries is for so much of the disk.
        let covered = self.cluster_bytes / 8 * self.cluster_bytes;
        let tables = (range.start / covered..range.end.div_ceil(covered)).filter(|table| self.tables.insert(*table));
        let needed = clusters + tables.count() as u64;
        self.asked += needed;
        self.in_flight += needed;
        if self.end_of_asked() > self.durable {
            if let Some(end) = self.end_of_data(file) {
                (self.used, self.asked) = (end, self.in_flight);
            }
            let wanted = (self.end_of_asked() + STEP_BYTES).next_multiple_of(self.cluster_bytes);
            if wanted > self.durable {
                self.lower.dyn_resize(wanted, PreallocateMode::None)?;
                self.lower.dyn_sync()?;
                self.durable = wanted;
            }
        }
        Ok(Asked(needed))
    }

    /// Says that the write has returned.
    pub(crate) fn done(&mut self, asked: &Asked) {
        self.in_flight -= asked.0;
    }

    /// The end of what was used and of all that was asked for since, with the reference counts for it.
    fn end_of_asked(&self) -> u64 {
        // A table of reference counts is for cluster_bytes / 8 clusters at least.
        let counts = self.asked * 8 / self.cluster_bytes + FEW_COUNTS;
        self.used + (self.asked + counts) * self.cluster_bytes + 3 * self.table_bytes
    }

    /// Where the data of the file ends, if the system says so. Below `used` everything is in use.
    fn end_of_data(&self, file: Option<&FileDevice>) -> Option<u64> {
        let start = self.used.min(self.lower.dyn_size().ok()?);
        Some(file?.data_end(start).ok()?.next_multiple_of(self.cluster_bytes))
    }

    /// Cuts off what was not used.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn give_back(&mut self, file: Option<&FileDevice>) -> io::Result<()> {
        let used = self.end_of_data(file).unwrap_or_else(|| self.end_of_asked());
        if used < self.durable && self.lower.dyn_size()? == self.durable {
            self.lower.dyn_resize(used, PreallocateMode::None)?;
            self.durable = used;
        }
        Ok(())
    }
}
