//! Makes XFS v5 images as mkfs.xfs does: the same options, defaults, geometry and layout.
//!
//! ```text
//! Options (what the caller asks for) -> Plan (all numbers, nothing written) -> make (AGs, log, first superblock last)
//! ```
//! Two images from the same options, UUID and time are the same byte for byte. Sizes, layout and the superblock equal
//! those of mkfs.xfs 7.2 for an image file. The root directory lies where xfs_repair computes that it must.
//!
//! ```
//! use xfskit_device::MemoryDevice;
//! use xfskit_mkfs::{Options, make};
//!
//! let device = MemoryDevice::new(64 << 20);
//! let mut options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
//! options.apply('d', "agcount=2").unwrap();
//! let superblock = make(&device, None, &options, Default::default()).unwrap();
//! assert_eq!(superblock.raw().ag_count.get(), 2);
//! ```
#![forbid(unsafe_code)]

mod ag_layout;
mod error;
mod existing;
mod idle;
mod log;
mod log_size;
mod make;
mod options;
mod parse;
mod plan;
mod readers;
mod root;
mod sizes;

pub use error::MakeError;
pub use existing::{Extent, first_data};
pub use make::{make, plan, set_aside, verify};
pub use options::{AgLayout, Autofsck, InodeSize, LogLocation, LogStripe, Options, Size, Stripe};
pub use readers::{Reader, reader_names};
