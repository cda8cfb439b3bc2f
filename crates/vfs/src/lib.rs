//! The floor between filesystems and what uses them.
//!
//! A filesystem implements [`Volume`]; a FUSE server, a copier, a simulator or a command calls it. Both sides speak of
//! files by [`InodeNumber`] and of names as bytes, and share the types and the errors of this crate. A server of a
//! mount asks for more: for [`Handles`], so that it looks each inode up once, and for [`Extras`], what it shows beyond
//! POSIX. Nothing here knows the format of a disk.
#![forbid(unsafe_code)]

mod caller;
mod corruption;
mod device_number;
mod dir_entry;
pub mod environment;
mod error;
mod extras;
mod fallocate;
mod file_type;
mod flags;
mod handles;
mod memory;
pub mod mode;
mod new_file;
mod path;
mod read_ahead;
mod rename;
mod seek;
mod set_attr;
mod stat;
mod sync;
mod time;
mod units;
mod volume;
mod xattr;

pub use caller::Caller;
pub use corruption::{Corruption, Verdict};
pub use device_number::DeviceNumber;
pub use dir_entry::{DirEntry, DirEntryRef, LostNames};
pub use environment::{Environment, SeededEnvironment, SystemEnvironment};
pub use error::{Error, Result, SuperblockFault};
pub use extras::{Extras, Figure, Figures, Statistics};
pub use fallocate::Fallocate;
pub use file_type::{FileType, Permissions};
pub use flags::{Flags, xflags};
pub use handles::{Begun, ByNumber, Handle, Handles, Mtime, Written};
pub use memory::MemoryVolume;
pub use new_file::{NewFile, WholeFile};
pub use path::{LastLink, names_directory, split_path};
pub use read_ahead::ReadAhead;
pub use rename::RenameFlags;
pub use seek::{FileExtent, Seek};
pub use set_attr::{SetAttr, SetTime};
pub use stat::{FsStat, Stat};
pub use sync::{SyncKind, SyncPoint};
pub use time::Timestamp;
pub use units::{DiskAddress, InodeNumber};
pub use volume::{Limits, Volume};
pub use xattr::{SetMode, XattrChange};
