//! Images by paths, in the manner of [`std::fs`].
//!
//! The same calls under the same names, on files in an image instead of files of the system:
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use std::sync::Arc;
//! use xfskit::device::MemoryDevice;
//! use xfskit::paths::{self, Filesystem, MkfsOptions};
//!
//! // An image in memory; paths::create makes a file.
//! let device = Arc::new(MemoryDevice::new(64 << 20));
//! let fs = paths::create_on(device.clone(), &MkfsOptions::new().small())?;
//!
//! // Files, attributes, further names.
//! fs.create_dir_all("/etc/app")?;
//! fs.write("/etc/app/motd", "hello\n")?;
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
//! assert!(fs.xattr("/message", "security.selinux")?.is_some());
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
//! and [`create`](fn@create) makes an image. [`Filesystem::close`] writes everything out and reports what went wrong;
//! dropping does the same and can report nothing. A program that ends without either leaves an image that the next
//! opening recovers, the kernel's mount included. Images that lost their first superblock or their end are for
//! [`crate::rescue`].
//!
//! # Paths
//!
//! Paths are bytes; everything that implements [`AsPath`] will do. They count from the root of the image, with a
//! leading slash or without: there is no current directory, and the empty path is the root's. Symbolic links are
//! followed as by `std::fs`; one with an absolute target stays within the image. A call that removes or moves refuses
//! a path that ends in `.` or `..`.
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
//! [`File::sync_all`], everything done to that file. Without them a crash loses the last calls. It never leaves half
//! of a change to one name, or to the attributes of one file: a rename was done or was not. Calls of many steps, as
//! [`Filesystem::remove_dir_all`], may be cut off between two. Contents are not atomic: [`Filesystem::write`] says
//! what a crash may leave, and [`Filesystem::write_atomic`] leaves the old or the new.
//!
//! # Threads
//!
//! [`Filesystem`] is `Send` and `Sync`, and its calls take `&self`; they run side by side and lock what they touch.
//! An image that is open to write is refused to everyone else, a second `Filesystem` of the same program included.
//!
//! # Errors
//!
//! [`Error`] names the path and keeps the engine's error, whose [`errno`](crate::Error::errno) is that of the system
//! call. `?` makes an [`std::io::Error`] of it, of the kind that `std::fs` has. After damage or a failing device the
//! filesystem shuts itself down: every later change fails, and the image stays as the journal can recover it.
//!
//! # The level below
//!
//! [`Filesystem::volume`] gives the engine itself, by inode numbers: callers with rights, device nodes, batches,
//! holes, shared extents.

mod as_path;
mod attributes;
mod contents;
mod copy;
mod error;
mod file;
mod kinds;
mod lookup;
#[cfg(feature = "mkfs")]
mod make;
mod names;
mod open;
mod read_dir;
mod remove;
mod walk;

pub use as_path::AsPath;
pub use error::{Error, Result};
pub use file::{File, FileOptions};
pub use kinds::{FileType, Metadata, Permissions, Times};
#[cfg(feature = "mkfs")]
pub use make::{MkfsOptions, create, create_on};
pub use open::{Info, OpenOptions};
pub use read_dir::{DirEntry, ReadDir};
pub use walk::{Walk, WalkEntry};

use crate::error::{Error as Cause, Result as EngineResult};
use crate::ops::{Filesystem as Volume, split_path};
use lookup::Pin;

/// An image that is open. See the [module](self) for how its calls behave.
pub struct Filesystem {
    /// Only closing takes it away.
    volume: Option<Volume>,
}

impl Filesystem {
    /// The level below: the same image by inode numbers.
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("only closing takes the volume, and that consumes the filesystem")
    }

    /// The inode at a path, held.
    fn pin(&self, path: &[u8], last: LastLink) -> EngineResult<Pin<'_>> {
        lookup::find(self.volume(), path, last)
    }

    /// The directory that a path's last name is in, held, and the name.
    fn place<'a>(&self, path: &'a [u8]) -> EngineResult<Place<'_, 'a>> {
        let (parent, name) = split_path(path)?;
        let dir = self.pin(parent, LastLink::Follow)?;
        Ok(Place { dir, name, is_dirs: path.ends_with(b"/") })
    }

    /// As [`Self::place`], for a name that is to be removed or moved.
    fn own_name<'a>(&self, path: &'a [u8]) -> EngineResult<Place<'_, 'a>> {
        let place = self.place(path).map_err(|error| match error {
            Cause::Invalid("the root has no name") => Cause::Invalid("the root is never removed or moved"),
            other => other,
        })?;
        if place.name == b"." || place.name == b".." {
            return Err(Cause::Invalid("'.' and '..' are never removed or moved"));
        }
        Ok(place)
    }
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastLink {
    Follow,
    Keep,
}

/// A name in a directory that is held.
struct Place<'fs, 'a> {
    dir: Pin<'fs>,
    name: &'a [u8],
    /// The path ended in a slash, which only a directory's may.
    is_dirs: bool,
}

/// Adds the path and what was to be done to an error.
trait OnPath<T> {
    fn on(self, verb: &'static str, path: &[u8]) -> Result<T>;
}

impl<T> OnPath<T> for EngineResult<T> {
    fn on(self, verb: &'static str, path: &[u8]) -> Result<T> {
        self.map_err(|source| Error::Path { verb, path: path.to_vec(), source })
    }
}
