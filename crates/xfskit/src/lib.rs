//! XFS without the kernel: real XFS (version 5) images with a real journal, in the manner of [`std::fs`].
//!
//! The same calls under the same names, on files in an image instead of files of the system:
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use std::sync::Arc;
//! use xfskit::device::MemoryDevice;
//! use xfskit::{Filesystem, MkfsOptions};
//!
//! // An image in memory; xfskit::create makes a file.
//! let device = Arc::new(MemoryDevice::new(64 << 20));
//! let fs = xfskit::create_on(device.clone(), &MkfsOptions::new().small())?;
//!
//! // Files, attributes, further names.
//! fs.create_dir_all("/etc/app")?;
//! fs.write("/etc/app/motd", "hello\n")?;
//! // The kernel stores a label with a zero byte at its end.
//! fs.set_xattr("/etc/app/motd", "security.selinux", "system_u:object_r:etc_t:s0\0")?;
//! fs.hard_link("/etc/app/motd", "/message")?;
//! for path in fs.paths_of("/message")? {
//!     println!("{}", path.display());
//! }
//! fs.sync()?;
//! fs.write("/message", "this may be lost")?;
//!
//! // The power is cut: what the device holds now is all that is left.
//! let survived = device.to_bytes();
//! drop(fs);
//!
//! // Opening recovers; what was synced is there.
//! let fs = Filesystem::options().open_device(Arc::new(MemoryDevice::from_bytes(survived)))?;
//! println!("{}", fs.info().recovery.expect("the journal was dirty"));
//! assert_eq!(fs.paths_of("/message")?.len(), 2);
//! assert!(fs.get_xattr("/message", "security.selinux")?.is_some());
//! # let text = fs.read_to_string("/message")?;
//! # assert!(text == "hello\n" || "this may be lost".starts_with(&text));
//! fs.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Opening and closing
//!
//! [`Filesystem::open`] takes an image file or a block device and the lock of it, [`Filesystem::options`] says more,
//! and [`create`](fn@create) makes an image. [`Filesystem::close`] writes everything out and reports what went wrong.
//! Images that lost their first superblock or their end are for [`rescue`]. Every call is the superuser's: no
//! permission is checked.
//!
//! # What is durable when
//!
//! | after | durable is |
//! |---|---|
//! | [`Filesystem::sync`], [`Filesystem::close`] | everything done before it |
//! | [`File::sync_all`] | everything done to that file |
//! | [`Filesystem::write_atomic`] | after a crash, the old file or all of the new one |
//! | any other call | after a crash, perhaps nothing of it, but never half of a change to one name |
//!
//! # Threads
//!
//! A [`Filesystem`] is a handle that clones, and a [`File`] holds one too: threads and structs own what they use. Calls
//! run side by side. The last handle closes the image.
//!
//! # Errors
//!
//! [`Error`] names the path, and has the number of the system call's error ([`Error::errno`]), the
//! [kind](Error::kind) and the [cause](Error::cause). `?` makes an [`std::io::Error`] with that number of it.
//!
//! # Levels
//!
//! | level | for | begin at |
//! |---|---|---|
//! | paths | programs that make images, or read and change files in them | [`Filesystem`] |
//! | inodes | servers and tools that act for callers with rights, by inode numbers | [`volume`] |
//! | engine | this project's own crates: caches, journal, trees | the crate `xfskit-engine`; see `ARCHITECTURE.md` |
//!
//! Only the first two stay as they are from one version to the next. [`Filesystem::volume`] leads from the first to
//! the second. The [`guide`] says the rest: paths, rights, what a crash may leave, how errors are told apart, and where
//! this is not `std::fs`.
//!
//! The library opens one filesystem on one device. Partitions, logical volumes and virtual disks, copies of trees
//! between host and image, archives and the check of an image are the command's.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `mkfs` (default) | [`create`](fn@create) makes images; without it they can only be opened |
#![forbid(unsafe_code)]

pub mod guide;
pub mod rescue;

/// Devices that an image can lie on: a file or block device, memory, or what implements
/// [`BlockDevice`](device::BlockDevice).
pub mod device {
    #[doc(inline)]
    pub use xfskit_device::{
        Access, BlockDevice, FileDevice, Fua, Hints, Holder, InUse, MemoryDevice, OpenError, WrapsDevice,
    };
}
mod paths;
pub mod volume;

pub use paths::{
    AsPath, DirEntry, Error, File, FileOptions, FileType, Filesystem, Info, Metadata, Node, OpenOptions, Permissions,
    ReadDir, RenameMode, Result, Times, Walk, WalkEntry, grow,
};
#[cfg(feature = "mkfs")]
pub use paths::{MakeError, MkfsOptions, create, create_on};
#[doc(inline)]
pub use xfskit_engine::XattrChange;
