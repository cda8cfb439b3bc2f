//! References to inodes: as long as an inode has any, its number stands for the same file, with a name or without.

use super::{Stat, Volume};
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::sync::atomic::Ordering;
use std::fmt;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;

/// A reference to an inode, by [`Volume::reference`]. The inode survives the removal of its last name until the last
/// reference is dropped.
///
/// Dropping it can report no error; [`release`](Self::release) does.
pub struct InodeRef<'v> {
    volume: &'v Volume,
    number: InodeNumber,
    /// The file is open to write: room for its growth is kept until that ends.
    writes: bool,
}

impl<'v> InodeRef<'v> {
    /// Takes over a reference that was counted by number, as [`into_raw`](Self::into_raw) and
    /// [`Volume::add_reference`] leave it.
    pub fn from_raw(volume: &'v Volume, number: InodeNumber) -> Self {
        Self { volume, number, writes: false }
    }

    /// Gives up the guard but not the reference, for a caller that keeps numbers, as a FUSE server does: it ends by
    /// [`Volume::drop_references`].
    pub fn into_raw(self) -> InodeNumber {
        std::mem::ManuallyDrop::new(self).number
    }

    /// The inode number.
    pub fn number(&self) -> InodeNumber {
        self.number
    }

    /// The volume that the inode is in.
    #[doc(hidden)]
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// The attributes of the inode.
    ///
    /// # Errors
    /// As [`Volume::stat`].
    pub fn stat(&self) -> Result<Stat> {
        self.volume.stat(self.number)
    }

    /// What `name` leads to in this directory, as [`Volume::lookup_ref`]; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Volume::lookup_ref`].
    pub fn lookup(&self, name: &[u8]) -> Result<(InodeRef<'v>, Stat)> {
        self.volume.lookup_ref(self.number, name)
    }

    /// Drops the reference, which frees an inode without a name.
    ///
    /// # Errors
    /// `Corrupt`, `Shutdown` from freeing the inode. An inode for whose freeing there is no space now is freed later.
    pub fn release(self) -> Result<()> {
        std::mem::ManuallyDrop::new(self).end()
    }

    /// Whether the file is open to write.
    #[doc(hidden)]
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Notes that the file is open to write until the reference is dropped.
    #[doc(hidden)]
    pub fn set_writes(&mut self) {
        self.writes = true;
    }

    fn end(&self) -> Result<()> {
        if self.writes {
            self.volume.finish_writing(self.number);
        }
        self.volume.drop_references(self.number, 1)
    }
}

impl Drop for InodeRef<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(inode = self.number.0, %error, "an inode without a name could not be freed");
        }
    }
}

impl fmt::Debug for InodeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InodeRef").field(&self.number.0).finish()
    }
}

impl Volume {
    /// References an inode.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xfskit_engine::{Caller, Error, NewFile};
    /// # let device = Arc::new(xfskit_device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// # let (volume, root) = (fs.volume(), Caller::root());
    /// let made = volume.create(volume.root(), b"file", &NewFile::file(0o644), &root)?;
    /// let file = volume.reference(made.inode)?;
    /// volume.unlink(volume.root(), b"file", &root)?;
    /// assert_eq!(file.stat()?.links, 0);
    /// file.release()?;
    /// assert!(matches!(volume.stat(made.inode), Err(Error::Stale(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    pub fn reference(&self, inode: InodeNumber) -> Result<InodeRef<'_>> {
        self.add_reference(inode)?;
        Ok(InodeRef::from_raw(self, inode))
    }

    /// Counts one more reference to an inode, for a caller that keeps numbers, as a FUSE server does. Others take
    /// [`Self::reference`].
    ///
    /// # Errors
    /// As [`Self::reference`].
    pub fn add_reference(&self, inode: InodeNumber) -> Result<()> {
        let inode = self.mount.inode(inode)?;
        inode.opens.fetch_add(1, Ordering::AcqRel);
        // One that is free would hand the reference to the next file with its number.
        super::check_state_in_use(&inode.state_lock().read()).inspect_err(|_| {
            inode.opens.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// The attributes of an inode, and a reference to it: it is counted while the inode is locked, so it is of the file
    /// that has these attributes.
    pub(crate) fn grab(&self, inode: &Arc<Inode>) -> Result<Stat> {
        self.look_at(inode, |inode| {
            inode.opens.fetch_add(1, Ordering::AcqRel);
        })
    }

    /// Counts `count` fewer references to an inode. The last one frees an inode without a name. A caller that drops
    /// more than there are has lost count; the inode has no references then.
    ///
    /// # Errors
    /// As [`InodeRef::release`].
    pub fn drop_references(&self, inode: InodeNumber, count: u64) -> Result<()> {
        match self.release_references(inode, count) {
            Some(inode) => Ok(self.inactivate_or_put_off(&inode)?),
            None => Ok(()),
        }
    }

    /// Counts fewer references; the inode, if it was the last.
    pub(super) fn release_references(&self, inode: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        // One that is not cached has a name, so its last reference frees nothing.
        let inode = self.mount.inodes.find_or_release(inode, count)?;
        let release = |opens: u64| Some(opens.saturating_sub(count));
        let before = inode.opens.fetch_update(Ordering::AcqRel, Ordering::Acquire, release);
        let before = before.unwrap_or_else(|opens| opens);
        if before < count {
            tracing::warn!(inode = inode.number.0, before, count, "more references were dropped than there were");
        }
        (before <= count && before > 0).then_some(inode)
    }

    /// How many bytes the last reference to an inode frees: none of one with a name. Nothing is read from the device,
    /// for an inode without a name is in memory while it is referenced.
    pub fn bytes_to_free(&self, inode: InodeNumber) -> u64 {
        let Some(inode) = self.mount.inodes.peek(inode) else { return 0 };
        let core = &inode.state_lock().read().core;
        if core.links == 0 { core.blocks << self.mount.geometry.block_log } else { 0 }
    }

    /// Whether anything refers to an inode.
    pub fn has_references(&self, inode: InodeNumber) -> bool {
        self.mount.inodes.references(inode) > 0
    }

    /// References an inode, if it is in use.
    fn reference_in_use(&self, inode: InodeNumber) -> Result<Option<(InodeRef<'_>, Stat)>> {
        let not_stale = |error| if matches!(error, Error::Stale(_)) { Ok(None) } else { Err(error) };
        let found = match self.reference(inode) {
            Ok(found) => found,
            Err(error) => return not_stale(error),
        };
        match found.stat() {
            Ok(stat) => Ok(Some((found, stat))),
            Err(error) => not_stale(error),
        }
    }

    /// References a file that was just made; `None` where another thread has removed it already.
    #[doc(hidden)]
    pub fn reference_made(&self, made: &Stat) -> Result<Option<InodeRef<'_>>> {
        let found = self.reference_in_use(made.inode)?;
        Ok(found.filter(|(_, stat)| stat.generation == made.generation).map(|(found, _)| found))
    }

    /// As [`Self::lookup`], with a reference. Between the look at the directory and the look at the inode another
    /// thread may remove the name, and the number may go to another file. So the name is looked up once more: an inode
    /// with a reference is not freed, so where the name still leads to its number, it leads to this file.
    ///
    /// # Errors
    /// As [`Self::lookup`]; `Stale` for a name that leads to no inode in use again and again, which is damage.
    pub fn lookup_ref(&self, dir: InodeNumber, name: &[u8]) -> Result<(InodeRef<'_>, Stat)> {
        for _ in 0..MAX_TRIES {
            let number = self.lookup_number(dir, name)?;
            if let Some(found) = self.reference_in_use(number)?
                && self.lookup_number(dir, name)? == number
            {
                return Ok(found);
            }
        }
        Err(Error::Stale(self.lookup_number(dir, name)?.0))
    }
}

/// How often a name is looked up that leads to an inode that is not in use, or to another one each time.
const MAX_TRIES: usize = 64;
