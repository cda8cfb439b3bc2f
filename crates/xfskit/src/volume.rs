//! The level of inode numbers: what a server or a tool calls that acts for callers with rights.
//!
//! A [`Volume`] is an image that is open; [`Volume::open`] opens one. Its methods are the verbs of POSIX, on inode
//! numbers and names of bytes; [`Volume::resolve`] finds the inode at a path. [`Filesystem::volume`] leads here from
//! the level of paths.
//!
//! ```
//! use std::sync::Arc;
//! use xfskit::device::MemoryDevice;
//! use xfskit::volume::{Caller, NewFile};
//!
//! let device = Arc::new(MemoryDevice::new(32 << 20));
//! let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
//! let volume = fs.volume();
//! let user = Caller { uid: 1000, gid: 1000, groups: vec![] };
//! let made = volume.create(volume.root(), b"notes", &NewFile::file(0o644), &user)?;
//! volume.write_at(made.inode, 0, b"hello")?;
//! assert_eq!(volume.stat(made.inode)?.uid, 1000);
//! for entry in volume.entries(volume.root())? {
//!     assert_eq!(entry?.name, b"notes");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that has only this level, on an image file. The device has the lock of the file for as long as it lives:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("disk.img");
//! # xfskit::create(&path, 64 << 20, &xfskit::MkfsOptions::new().small())?.close()?;
//! use std::sync::Arc;
//! use xfskit::device::{Access, FileDevice};
//! use xfskit::volume::{Caller, MountOptions, NewFile, SetMode, Volume};
//!
//! let device = FileDevice::open(&path, Access::Write)?;
//! let volume = Volume::open(Arc::new(device), MountOptions::default())?;
//! let root = Caller::root();
//! let dir = volume.create(volume.root(), b"etc", &NewFile::dir(0o755), &root)?;
//! let file = volume.create(dir.inode, b"motd", &NewFile::file(0o644), &root)?;
//! volume.write_at(file.inode, 0, b"hello")?;
//! volume.finish_writing(file.inode);
//! let label = b"system_u:object_r:etc_t:s0\0";
//! volume.set_xattr(file.inode, b"security.selinux", label, SetMode::Any, &root)?;
//! for entry in volume.entries(dir.inode)? {
//!     let entry = entry?;
//!     println!("{} {}", entry.inode, entry.name.escape_ascii());
//! }
//! volume.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Volume::finish_writing`] need not be called: it gives back the free blocks that are set aside, in memory only, for
//! the file's growth, so that the next file may lie there. Where no others are left, other files get them in any case.
//! It matters for a file that was emptied and written anew: the call writes the new contents out, so that the next sync
//! of anything makes them durable together with the loss of the old ones. Without it a power cut may leave neither. A
//! server that hears of no close calls [`Volume::bring_out_if_cut`] after each write instead.
//!
//! # The order of arguments
//!
//! Every call is given, as far as it needs them and in this order:
//!
//! 1. what it acts on: an inode, or a name as (directory, name); of a move or a copy first the source, then the target;
//! 2. where: an offset and a length, in bytes;
//! 3. what it stores or fills: data, a value, a symbolic link's target, the inode that gets the name;
//! 4. how: a mode of the call, or flags;
//! 5. the [`Caller`].
//!
//! # Rights
//!
//! What is made belongs to the [`Caller`], in a directory with the set-group-id bit to its group. Of the caller's
//! rights the volume checks only those that need a look at the inode while it is locked:
//!
//! | call | what is checked |
//! |---|---|
//! | `unlink`, `rmdir`, `rename`, `link_over` | in a directory with the sticky bit, who owns it or the file |
//! | `set_flags` | the owner or user 0; for a project, and for flags that protect, user 0 |
//! | `create`, `set_attr`, ACLs | who is not in the file's group sets no set-group-id bit |
//! | every change | immutable and append-only files refuse every caller |
//!
//! All else is **not** checked: permission bits and ACLs of the file and of the directories on the way, whose mode,
//! owner or times a caller may change, who may make device nodes, who may use the name spaces `trusted` and `security`.
//! A server has that checked before it calls, as the kernel does for a FUSE mount with `default_permissions`.
//!
//! # Inode numbers
//!
//! A number that came out of a directory may stand for another file as soon as that file has lost its last name. An
//! [`InodeRef`] keeps the file, and so what its number stands for; [`Volume::reference`], [`Volume::lookup_ref`] and
//! [`Volume::resolve_ref`] give one. A number from elsewhere, as from a person or from a handle that was kept for long,
//! is asked about first: [`Volume::is_in_use`]. So a program whose other threads may remove files takes references; one
//! that alone changes the image does without. A server whose clients keep numbers counts them by
//! [`Volume::add_reference`] and [`Volume::drop_references`].
//!
//! # What is durable when
//!
//! As at the level of paths, see [the crate's page](crate::guide#what-is-durable-when): after [`Volume::sync`],
//! [`Volume::fsync`] and [`Volume::fdatasync`]. Many files together: [`Volume::begin_fsync`] for each, then one
//! [`Volume::await_durable`]. Threads that call `fsync` at the same time share checkpoint and flush by themselves.
//! Dropping a volume without [`Volume::unmount`] leaves the image as a power cut would; a
//! [`Filesystem`](crate::Filesystem) that is dropped closes its image.
//!
//! # Threads
//!
//! A volume is `Send` and `Sync`; its calls run side by side. Each is one step for all others, but for contents: large
//! writes, appends of more than 8 MiB and copies may be seen half done.
//!
//! # Errors
//!
//! [`Error`] has a variant for each thing that POSIX refuses, and its [`errno`](Error::errno). A change that is refused
//! ([`is_refusal`](Error::is_refusal)) has changed nothing, but for contents: of a write, an allocation or a copy a
//! part may have been done. Other errors say nothing of the request: [`is_damage`](Error::is_damage) that a structure
//! or the superblock cannot be used, that the device failed or the host had no space for it (`Io`), or that the
//! filesystem is shut down; and `Unsupported` that the image has what xfskit does not do. What a change had done by
//! then, the journal finishes or takes back as a whole.
//!
//! [`Filesystem::volume`]: crate::Filesystem::volume

#[doc(inline)]
pub use xfskit_engine::{
    AttrLogging, AttrPath, Caller, Counter, Counters, DirEntry, DirEntryRef, Discard, Environment, Error, Fallocate,
    FileExtent, FileType, Flags, FsStat, Growth, HostSpace, InodeRef, LastLink, LogState, LostNames, MountOptions,
    NewFile, NewUuid, Permissions, ReadAhead, ReadDir, RecoveredDevices, RecoveryReport, RenameFlags, Result,
    SeededEnvironment, Seek, SetAttr, SetMode, SetTime, Stat, SyncKind, SyncPoint, SystemEnvironment, TrimBy, Trimmed,
    Usage, Volume, WholeFile, XattrChange, XattrOptions, split_path, xflags,
};
#[doc(inline)]
pub use xfskit_ondisk::{Corruption, InodeNumber, Lsn, Timestamp};

/// Named places where the engine can be made to fail, to see what a program makes of that. Names are given to
/// [`MountOptions::error_tags`] with the pass, counted from 1, that fails.
///
/// A place fails with an I/O error, by a stop as if the power failed, by taking a rare turn, or by an ordinary refusal;
/// [`TAGS`](error_tags::TAGS) says which.
///
/// ```
/// use xfskit::volume::{MountOptions, error_tags};
///
/// let tag = error_tags::find("readagf").expect("a tag of that name");
/// let options = MountOptions { error_tags: vec![(tag, 3)], ..MountOptions::default() };
/// assert!(error_tags::TAGS.iter().any(|(name, what)| *name == tag && what.contains("cannot be read")));
/// # let _ = options;
/// ```
pub mod error_tags {
    #[doc(inline)]
    pub use xfskit_engine::error_tags::{TAGS, find};
}
