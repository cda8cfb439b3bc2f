//! Inodes that outlive the call that found them.

use super::{Filesystem, InodeRef};
use xfskit_engine::{Result as EngineResult, Stat, Volume};
use xfskit_ondisk::InodeNumber;

/// A reference to an inode that keeps the filesystem open, where an [`InodeRef`] borrows it.
pub(super) struct Held {
    /// Dropped after the reference: the last handle closes the image, and has no references then.
    fs: Filesystem,
    number: InodeNumber,
    /// The file is open to write: room for its growth is kept until that ends.
    writes: bool,
    /// The reference was dropped already.
    is_released: bool,
}

impl Held {
    pub(super) fn new(fs: &Filesystem, inode: InodeRef<'_>) -> Self {
        let writes = inode.writes();
        Self { fs: fs.clone(), number: inode.into_raw(), writes, is_released: false }
    }

    pub(super) fn fs(&self) -> &Filesystem {
        &self.fs
    }

    pub(super) fn volume(&self) -> &Volume {
        self.fs.volume()
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

    /// Drops the reference, which frees an inode without a name.
    pub(super) fn release(mut self) -> EngineResult<()> {
        self.end()
    }

    fn end(&mut self) -> EngineResult<()> {
        if std::mem::replace(&mut self.is_released, true) {
            return Ok(());
        }
        let mut inode = InodeRef::from_raw(self.fs.volume(), self.number);
        if self.writes {
            inode.set_writes();
        }
        inode.release()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(inode = self.number.0, %error, "an inode without a name could not be freed");
        }
    }
}
