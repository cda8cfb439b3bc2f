//! How the library behaves, at length: what the [crate's page](crate) says in short.
//!
//! # Opening and closing
//!
//! [`Filesystem::open`] takes an image file or a block device and the lock of it, [`Filesystem::options`] says more,
//! and [`create`](fn@crate::create) makes an image; one of 16 MiB has 7.3 MB free. [`Filesystem::close`] writes
//! everything out and reports what went wrong; it is refused while a clone, a [`File`], a [`ReadDir`] or a
//! [`Walk`] is open. Dropping the last handle does the same and can report nothing. A program that ends
//! without either leaves an image that the next opening recovers, the kernel's mount included. To see what a power cut
//! leaves of an image file, copy the file while it is open and no call runs, and open the copy. Dropping a
//! [`volume::Volume`] that a program opened itself writes nothing out, as a power cut. Images that lost their first
//! superblock or their end are for [`rescue`].
//!
//! # Paths
//!
//! Paths are bytes; everything that implements [`AsPath`] will do. They count from the root of the image, with a
//! leading slash or without: there is no current directory, and the empty path is the root's. Symbolic links are
//! followed as by `std::fs`; one with an absolute target stays within the image. A call that removes or moves refuses
//! a path that ends in `.` or `..`. The crate `xfskit-transfer` copies whole trees in and out by one call (`copy_in`,
//! `copy_out`).
//!
//! # Rights
//!
//! Every call is the superuser's: no permission is checked, and what is made belongs to user 0 and group 0 (in a
//! directory with the set-group-id bit, to its group). Immutable and append-only files are protected from every
//! caller. A program that acts for others checks their rights itself.
//!
//! # What is durable when
//!
//! Once [`Filesystem::sync`] or [`Filesystem::close`] has returned, everything done before it is durable; after
//! [`File::sync_all`], everything done to that file. Without them a crash may lose any number of the last calls.
//! Changes of names, attributes, owners and permissions are lost from the last one backwards, so one that is there has
//! all before it; contents, and times that were set alone, may be lost where later calls are not. A crash never leaves
//! half of a change to one name, or to the attributes of one file: a rename was done or was not. Calls of many steps,
//! as [`Filesystem::remove_dir_all`], may be cut off between two. Contents are not atomic: [`Filesystem::write`] says
//! what a crash may leave, and [`Filesystem::write_atomic`] leaves the old or the new.
//!
//! # Threads
//!
//! [`Filesystem`] is `Send` and `Sync`, and its calls take `&self`; they run side by side and lock what they touch.
//! An image that is open to write is refused to every other filesystem, one that reads in the same program included.
//! A [`Filesystem`] is a handle that clones, and a [`File`] holds one too: a thread or a struct owns what it uses. The
//! last handle closes the image.
//!
//! # Errors
//!
//! [`Error`] names the path, has the number of the system call's error ([`Error::errno`]) and keeps the engine's error
//! ([`Error::cause`]). All calls return it, but for [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`] of a
//! [`File`]. `?` makes an [`std::io::Error`] of it, which has the number, as the errors of `std::fs`, and no message.
//!
//! Where a call lists its errors, "`Path`: `NotFound`" is the variant of [`Error`], then the variant of
//! [`volume::Error`] in its `source`, which [`Error::cause`] returns:
//!
//! ```
//! # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
//! # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
//! let error = fs.read("/none").unwrap_err();
//! assert!(matches!(error.cause(), Some(xfskit::volume::Error::NotFound)));
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! # Ok::<(), xfskit::Error>(())
//! ```
//!
//! A message contains its cause, so no error returns the cause as its `source` again.
//!
//! Damage is `Corrupt`, which names the check, the structure, the disk address and the owner; of the superblock it is
//! `Superblock`. Damage and a device that fails concern the call that meets them. When the journal cannot be written, a
//! flush fails, or an error stops a change half-way, the filesystem shuts itself down: every later change fails, and
//! the image stays as the journal can recover it.
//!
//! # Where it is not `std::fs`
//!
//! - [`FileOptions`] has no `read`: every file that is open can be read.
//! - The calls of [`Metadata`] give values, no `Result`: XFS has all of the times, for one.
//! - [`Permissions`] are bits, as chmod(1) takes them: `Permissions::new(0o644)`.
//! - [`DirEntry::name`] is bytes, and [`DirEntry::file_type`] needs no call that can fail.
//! - [`Filesystem::write_atomic`], [`Filesystem::walk`], [`Filesystem::paths_of`] and attributes have no counterpart.
//!
//! # From paths to inodes
//!
//! [`Filesystem::volume`] leads to the level of inode numbers: attributes that must be new or must be there
//! ([`volume::SetMode`]), batches, holes, shared extents.
//!
//! ```
//! # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
//! # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
//! use xfskit::volume::{Caller, LastLink, SetMode};
//!
//! fs.write("/file", "text")?;
//! let file = fs.volume().resolve_ref(b"/file", LastLink::Follow)?;
//! fs.volume().set_xattr(file.number(), b"user.lock", b"1", SetMode::Create, &Caller::root())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`AsPath`]: crate::AsPath
//! [`DirEntry::file_type`]: crate::DirEntry::file_type
//! [`DirEntry::name`]: crate::DirEntry::name
//! [`Error`]: crate::Error
//! [`Error::cause`]: crate::Error::cause
//! [`Error::errno`]: crate::Error::errno
//! [`File`]: crate::File
//! [`File::sync_all`]: crate::File::sync_all
//! [`FileOptions`]: crate::FileOptions
//! [`Filesystem`]: crate::Filesystem
//! [`Filesystem::close`]: crate::Filesystem::close
//! [`Filesystem::open`]: crate::Filesystem::open
//! [`Filesystem::options`]: crate::Filesystem::options
//! [`Filesystem::paths_of`]: crate::Filesystem::paths_of
//! [`Filesystem::remove_dir_all`]: crate::Filesystem::remove_dir_all
//! [`Filesystem::sync`]: crate::Filesystem::sync
//! [`Filesystem::volume`]: crate::Filesystem::volume
//! [`Filesystem::walk`]: crate::Filesystem::walk
//! [`Filesystem::write`]: crate::Filesystem::write
//! [`Filesystem::write_atomic`]: crate::Filesystem::write_atomic
//! [`Metadata`]: crate::Metadata
//! [`Permissions`]: crate::Permissions
//! [`ReadDir`]: crate::ReadDir
//! [`Walk`]: crate::Walk
//! [`rescue`]: crate::rescue
//! [`volume::Error`]: crate::volume::Error
//! [`volume::SetMode`]: crate::volume::SetMode
//! [`volume::Volume`]: crate::volume::Volume
