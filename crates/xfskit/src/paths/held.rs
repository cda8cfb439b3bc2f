//! Inodes that outlive the call that found them.

use super::{Filesystem, InodeRef};
use xfskit_engine::{Result as EngineResult, Stat, Volume};
use xfskit_ondisk::InodeNumber;

/// A reference to an inode that keeps the filesystem open, where an [`InodeRef`] borrows it.
pub(super) struct Held {
    /// Let go of after the reference: the last handle closes the image, and has no references then. `None` after
    /// that.
    fs: Option<Filesystem>,
    number: InodeNumber,
    /// The file is open to write: room for its growth is kept until that ends.
    writes: bool,
}

impl Held {
    pub(super) fn new(fs: &Filesystem, inode: InodeRef<'_>) -> Self {
        let writes = inode.writes();
        Self { fs: Some(fs.clone()), number: inode.into_raw(), writes }
    }

    pub(super) fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("only the end takes the filesystem")
    }

    pub(super) fn volume(&self) -> &Volume {
        self.fs().volume()
    }

    pub(super) fn number(&self) -> InodeNumber {
        self.number
    }

    pub(super) fn stat(&self) -> EngineResult<Stat> {
        self.volume().stat(self.number)
    }

    pub(super) fn writes(&self) -> bool {
        self.writes
    }

    /// Drops the reference, which frees an inode without a name, and then the handle: the last one closes the image.
    pub(super) fn release(mut self) -> EngineResult<()> {
        let Some(fs) = self.fs.take() else { return Ok(()) };
        let released = self.end(&fs);
        match fs.into_volume() {
            Ok(volume) => released.and(volume.unmount()),
            // Other handles are open.
            Err(_) => released,
        }
    }

    fn end(&self, fs: &Filesystem) -> EngineResult<()> {
        let mut inode = InodeRef::from_raw(fs.volume(), self.number);
        if self.writes {
            inode.set_writes();
        }
        inode.release()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(fs) = self.fs.take()
            && let Err(error) = self.end(&fs)
        {
            tracing::warn!(inode = self.number.0, %error, "an inode without a name could not be freed");
        }
    }
}
