//! Every on-disk structure of XFS v5, its checksum and its stateless verifier.
//!
//! The lowest layer of xfskit: bytes in, typed values or a [`Corruption`] out, and back. No I/O, no allocation whose
//! size disk contents determine, no `unsafe`. A structure that was verified by itself may still disagree with another
//! one; the layers above check that.
//!
//! Naming: `Raw…` is not verified yet; `decode_…` and `encode_…` do no I/O; `verify_…` returns a [`Verdict`].
#![forbid(unsafe_code)]

pub mod acl;
pub mod ag;
pub mod attr;
pub mod btree;
mod checksum;
pub mod da;
mod device;
pub mod dir;
pub mod extent;
pub mod features;
mod fork_bytes;
mod geometry;
pub mod inode;
mod inode_in_use;
pub mod limits;
pub mod log_items;
pub mod log_record;
pub mod logged;
pub mod new_ag;
pub mod part_header;
pub mod reservation;
pub mod search;
pub mod superblock;
pub mod symlink;
pub mod time;
mod units;

pub use checksum::{checksum, checksum_matches, crc32c, set_checksum};
pub use device::{decode_device, encode_device, fits_device_node};
pub use extent::Extent;
pub use fork_bytes::ForkBytes;
pub use geometry::{Geometry, INODES_PER_CHUNK};
pub use inode::{ForkFormat, InodeCore};
pub use limits::{BtreeShape, Limits};
pub use reservation::{Reservation, Reservations, minimum_log_blocks};
pub use superblock::{RawSuperblock, Superblock, SuperblockError, Unsupported};
pub use time::clamp_time;
pub use units::*;
pub use xfskit_vfs::{Corruption, DeviceNumber, DiskAddress, InodeNumber, Timestamp, Verdict, ensure};
