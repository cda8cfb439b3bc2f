//! What an update of an attribute takes of the log and of free space.

use crate::mount::{BlockPool, Mount};
use crate::trans::Reservation;
use crate::trans::deferred::Logging;
use xfskit_ondisk::attr::MAX_VALUE_BYTES;
use xfskit_ondisk::reservation;

/// Most that the intent of an update takes in the log, in bytes, besides the value: two names with their parent
/// pointers, and headers.
const INTENT_BYTES: usize = 1024;

/// What the intent of an update takes in the log, in bytes: it carries the whole value.
pub fn intent_bytes(value_bytes: usize) -> u32 {
    debug_assert!(value_bytes <= MAX_VALUE_BYTES, "a value of {value_bytes} bytes");
    (value_bytes + INTENT_BYTES) as u32
}

/// Log space and blocks for one update with a value of `value_bytes` bytes: what each of its links may need.
pub fn reservation(mount: &Mount, value_bytes: usize, logging: Logging) -> Reservation {
    let kernel = &mount.reservations;
    let value_blocks = value_bytes.div_ceil(mount.geometry.block_bytes()) as u64;
    let blocks = u64::from(reservation::attribute_space(&mount.limits)) + 2 * value_blocks;
    let intent_bytes = if logging == Logging::Logged { intent_bytes(value_bytes) } else { 0 };
    Reservation {
        log_bytes: 2 * (kernel.attrsetm.bytes + kernel.attrsetrt.bytes).max(kernel.attrrm.bytes) + intent_bytes,
        log_count: 1,
        blocks,
        pool: BlockPool::Ordinary,
    }
}
