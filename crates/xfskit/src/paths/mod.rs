//! The level of paths, which the root of the crate shows. Each call references its inodes, which keeps them from being
//! freed meanwhile, and does one verb of [`crate::ops`] on them, as the superuser. The crate's page says how the calls
//! behave.

mod admin;
mod as_path;
mod attributes;
mod contents;
mod copy;
mod error;
mod file;
mod held;
mod kinds;
#[cfg(feature = "mkfs")]
mod make;
mod names;
mod nodes;
mod open;
mod read_dir;
mod remove;
mod walk;

pub use admin::grow;
pub use as_path::AsPath;
pub use error::{Error, Result};
pub use file::{File, FileOptions};
pub use kinds::{Metadata, Times};
#[cfg(feature = "mkfs")]
pub use make::{MkfsOptions, create, create_on};
pub use names::RenameMode;
pub use nodes::Node;
pub use open::{Info, OpenOptions};
pub use read_dir::{DirEntry, ReadDir};
pub use walk::{Walk, WalkEntry};
#[cfg(feature = "mkfs")]
pub use xfskit_mkfs::MakeError;

use held::Held;
use std::sync::{Arc, Weak};
use xfskit_engine::{Error as Cause, Result as EngineResult};
pub use xfskit_engine::{FileType, Permissions};
use xfskit_engine::{InodeRef, LastLink, Volume, split_path};

/// An image that is open. The [crate](crate)'s page says how its calls behave.
///
/// It is a handle: a clone is another one of the same image. Each [`File`], [`ReadDir`] and [`Walk`] holds a handle as
/// well, so a struct can own them, with the filesystem or without. **The image is closed when the last handle goes.**
/// Dropping that one closes it, unless the thread panics, but can report no error; [`close`](Self::close) does.
///
/// ```
/// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
/// struct Log {
///     file: xfskit::File,
/// }
///
/// let log = Log { file: fs.create_file("/log")? };
/// let other = fs.clone();
/// std::thread::spawn(move || other.write("/made", "by a thread")).join().expect("no panic")?;
/// assert_eq!(fs.read("/made")?, b"by a thread");
///
/// drop(log);
/// fs.close()?;
/// # Ok::<(), xfskit::Error>(())
/// ```
#[derive(Clone)]
pub struct Filesystem {
    image: Arc<Image>,
}

/// What the handles of an image share. The last one closes it.
struct Image {
    /// Only closing takes it away.
    volume: Option<Volume>,
}

impl Image {
    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("only closing takes the volume, and there is no handle then")
    }
}

impl Drop for Image {
    /// While the thread panics the image is left as a power cut would leave it, which the next opening recovers.
    fn drop(&mut self) {
        if let Some(volume) = self.volume.take()
            && !std::thread::panicking()
            && let Err(error) = volume.unmount()
        {
            tracing::error!(%error, "an image that was dropped could not be closed");
        }
    }
}

/// A handle that does not keep the image open.
#[derive(Clone)]
struct WeakFilesystem(Weak<Image>);

impl WeakFilesystem {
    fn upgrade(&self) -> EngineResult<Filesystem> {
        let image = self.0.upgrade().ok_or_else(|| Cause::Shutdown("the image was closed".to_owned()))?;
        Ok(Filesystem { image })
    }
}

impl Filesystem {
    fn new(volume: Volume) -> Self {
        Self { image: Arc::new(Image { volume: Some(volume) }) }
    }

    fn downgrade(&self) -> WeakFilesystem {
        WeakFilesystem(Arc::downgrade(&self.image))
    }

    /// The level below: the same image by inode numbers.
    pub fn volume(&self) -> &Volume {
        self.image.volume()
    }

    /// Takes the volume out, if this is the last handle.
    fn into_volume(self) -> Result<Volume> {
        let mut image = Arc::into_inner(self.image).ok_or(Error::InUse)?;
        Ok(image.volume.take().expect("only closing takes the volume, and there is no handle then"))
    }

    /// The inode at a path.
    fn reference(&self, path: &[u8], last: LastLink) -> EngineResult<InodeRef<'_>> {
        Ok(self.volume().walk_path(path, last)?.0)
    }

    /// The directory that a path's last name is in, and the name.
    fn entry<'a>(&self, path: &'a [u8]) -> EngineResult<PathEntry<'_, 'a>> {
        let (parent, name) = split_path(path)?;
        let dir = self.reference(parent, LastLink::Follow)?;
        Ok(PathEntry { dir, name, is_dirs: path.ends_with(b"/") })
    }

    /// As [`Self::entry`], for a name that is to be removed or moved.
    fn own_name<'a>(&self, path: &'a [u8]) -> EngineResult<PathEntry<'_, 'a>> {
        let entry = self.entry(path).map_err(|error| match error {
            Cause::Invalid("the root has no name") => Cause::Invalid("the root is never removed or moved"),
            other => other,
        })?;
        if entry.name == b"." || entry.name == b".." {
            return Err(Cause::Invalid("'.' and '..' are never removed or moved"));
        }
        Ok(entry)
    }
}

/// A name in a directory, and the directory.
struct PathEntry<'fs, 'a> {
    dir: InodeRef<'fs>,
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
