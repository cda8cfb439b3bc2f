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
//! Invariant: everything that imago has allocated lies below `used`, and `used` is not above `durable`. `used` is an
//! upper bound, since imago does not say what it allocates; it is found anew from the data in the file each time the
//! file grows. At a clean close the file gets its real length back.

use crate::bytes::be_u32_at;
use crate::qcow2::Lower;
use imago::StorageExt;
use imago::storage::PreallocateMode;
use std::io;
use xfskit_device::FileDevice;

/// How much the file grows at once.
const STEP_BYTES: u64 = 32 << 20;
/// Clusters that one write may need besides those of its data, where these are few: tables of entries and of reference
/// counts.
const MOST_TABLES: u64 = 8;
const HEADER_BYTES: usize = 104;

/// The room behind what is in use.
pub(crate) struct Room {
    lower: Lower,
    cluster_bytes: u64,
    /// The size of the table of reference counts, which is written anew when it grows.
    table_bytes: u64,
    used: u64,
    durable: u64,
}

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
        Ok(Self { lower: lower.clone(), cluster_bytes, table_bytes, used, durable })
    }

    /// The size of a cluster in bytes.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.cluster_bytes
    }

    /// Makes the file long enough for the allocation of a number of clusters, and of the tables for them.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn make(&mut self, clusters: u64, file: Option<&FileDevice>) -> io::Result<()> {
        // A table of entries is for cluster_bytes / 8 clusters, one of reference counts for as many at least.
        let tables = clusters * 16 / self.cluster_bytes + MOST_TABLES;
        let needed = (clusters + tables) * self.cluster_bytes;
        let spare = 3 * self.table_bytes;
        if self.used + needed + spare > self.durable {
            self.used = self.end_of_data(file).unwrap_or(self.used);
            let wanted = (self.used + needed + spare + STEP_BYTES).next_multiple_of(self.cluster_bytes);
            if wanted > self.durable {
                self.lower.dyn_resize(wanted, PreallocateMode::None)?;
                self.lower.dyn_sync()?;
                self.durable = wanted;
            }
        }
        self.used += needed;
        Ok(())
    }

    /// Where the data of the file ends, if the system says so.
    fn end_of_data(&self, file: Option<&FileDevice>) -> Option<u64> {
        Some(file?.data_end(0).ok()?.next_multiple_of(self.cluster_bytes))
    }

    /// Cuts off what was not used.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn give_back(&mut self, file: Option<&FileDevice>) -> io::Result<()> {
        let used = self.end_of_data(file).unwrap_or(self.used);
        if used < self.durable && self.lower.dyn_size()? == self.durable {
            self.lower.dyn_resize(used, PreallocateMode::None)?;
            self.durable = used;
        }
        Ok(())
    }
}
