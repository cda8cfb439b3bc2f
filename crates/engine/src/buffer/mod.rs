//! Metadata blocks in memory: a bounded cache of buffers that are verified when they are read and before they are
//! written.
//!
//! ```text
//! BufferCache  256 shards of address → Arc<Buffer>, each with a clock hand for eviction
//! Buffer       key, lock around the contents and their kind, the journal's bookkeeping
//! BufferKey    the runs of blocks that the contents lie in
//! BufferKind   how a structure is verified and stamped; a static for each structure on disk
//! MemoryUse    bytes of the buffers, and of what is charged to the cache
//! ```
//! Invariants
//! - At most one buffer exists for an address, and its length never changes while it is cached.
//! - A buffer that is locked, pinned or waits for write-back is never evicted, so the bound is soft: the cache exceeds
//!   it by what the journal pins, which the log's size bounds. Eviction passes over buffers that are referenced.
//!   Write-back drops buffers that will hardly be needed again, referenced or not: clusters whose inodes are all
//!   cached, and freed blocks once the free is durable.
//! - A buffer that was evicted is marked. A thread that reaches a buffer by a reference of its own (the journal's
//!   lists, a directory's memory) looks at the mark under the lock.
//! - Contents are verified (checksum, then the kind's own checks) when they are read, and checked again before they
//!   are written back, so that memory damage is not made durable.
//!
//! Locking: a shard's lock is held for a look-up only, never across I/O; a buffer is read from the device under its
//! own exclusive lock. [`crate::sync`] has the order of locks.

mod cache;
mod cached;
mod key;
mod kind;
mod memory;

pub use cache::{BufferCache, Fill};
pub use cached::{Buffer, BufferContent};
pub use key::{BufferKey, DiskRun, DiskRuns};
pub use kind::BufferKind;
pub use memory::Charge;
pub(crate) use memory::MemoryUse;
