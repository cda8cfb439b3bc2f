//! The only interface through which xfskit reaches storage.
//!
//! [`BlockDevice`] is read, write, flush, discard and geometry, [`WrapsDevice`] a device over another one;
//! [`FileDevice`] is an image file or a real device, [`MemoryDevice`] is a vector of bytes, [`OverlayDevice`] stores
//! changes to another device in memory. Simulators and recorders implement the same trait.
//!
//! Contract: writes may reach storage in any order until [`BlockDevice::flush`] returns. Where two writes in flight
//! overlap, each byte is from either of them. The engine relies on nothing more.
//!
//! The only unsafe code is the request to a loop device for its file, in `loop_device`.

mod at_once;
mod block_device;
mod file;
mod holders;
mod holes;
mod locks;
mod loop_device;
mod memory;
mod overlay;
pub mod probe;
mod sysfs;
mod wraps;

pub use at_once::{at_once, in_order};
pub use block_device::{BlockDevice, Fua, Hints};
pub use file::{Access, FileDevice, InUse, Names, OpenError};
pub use holders::{Holder, share_storage, unescape};
pub use holes::{DataPieces, data_pieces};
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use wraps::WrapsDevice;
