//! Whole disks: finds the filesystem in a virtual disk, a partition or a logical volume, and gives it as a device.
//!
//! ```text
//! operand     disk.qcow2#3                              `operand`
//! file        open, locked, and not read yet            `unread`, `signature`, `header`, `below`
//! container   raw, block device, qcow2, vmdk, metadump  `container`, `qcow2`, `vmdk`, `metadump`
//! table       GPT, MBR with logical partitions          `table`, `partition`, `gpt`, `mbr`
//! LVM2        linear and striped volumes                `lvm`, `lvm_text`
//! window      a BlockDevice onto extents of others      `window`
//! ```
//! [`Disks::open`] reads all of that and writes nothing; [`Disks::choose`] gives the device that is meant. The crate
//! knows nothing of XFS but its signature.
//!
//! Everything on a disk may be hostile: numbers are added with checks, and every table has a bound, which its module
//! names. The design, with what is assumed and refused, is docs/design/disks.md.
//!
//! ```no_run
//! use xfskit_device::Access;
//! use xfskit_disk::{Disks, Operand, Unnamed};
//!
//! let operand = Operand::decode("disk.qcow2#label=root".as_ref(), std::path::Path::exists)?;
//! let disks = Disks::open(&operand, Access::Read)?;
//! println!("{disks}");
//! let device = disks.choose(Unnamed::OnlyXfs)?;
//! # let _ = device;
//! # Ok::<(), xfskit_disk::DiskError>(())
//! ```
#![forbid(unsafe_code)]

mod below;
mod bytes;
mod container;
mod contents;
#[cfg(test)]
mod damage;
mod disks;
mod error;
mod foreign;
mod gpt;
mod grow;
mod header;
mod lvm;
mod lvm_text;
mod mapping;
mod mbr;
mod metadump;
mod operand;
mod partition;
mod qcow2;
mod room;
mod signature;
mod table;
mod tree;
mod unread;
mod vmdk;
mod window;

pub use below::{Base, Below, Service};
pub use container::{Container, Format};
pub use contents::{Contents, LVM_MEMBER, XFS, contents};
pub use disks::{Chosen, Disk, Disks, Found, FoundGroup, Unnamed, VolumeKind};
pub use error::{DiskError, PartFault};
pub use foreign::Foreign;
pub use header::Header;
pub use lvm::{Group, PhysicalVolume, Volume, groups, physical_volume};
pub use metadump::is_metadump;
pub use operand::{Operand, Part};
pub use partition::{Partition, Table, TableKind};
pub use qcow2::qcow2_on;
pub use signature::Opener;
pub use table::table;
pub use tree::Tree;
pub use unread::Unread;
pub use window::{Segment, Stripe, Window};
