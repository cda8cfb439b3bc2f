//! Lists directories.

use super::file_type::type_of_entry;
use super::{DirEntry, DirEntryRef, InodeRef, LostNames, Volume};
use crate::dir;
use crate::error::Result;
use crate::trans::Transaction;
use std::ops::ControlFlow;
use std::vec;
use xfskit_ondisk::InodeNumber;

/// Entries that a [`ReadDir`] has in memory at once.
const MAX_BATCH: usize = 128;

/// The entries of a directory, by [`Volume::entries`]. After an error there are no more.
#[derive(Debug)]
pub struct ReadDir<'v> {
    dir: InodeRef<'v>,
    batch: vec::IntoIter<DirEntry>,
    /// Where the next batch begins; `None` at the end.
    cookie: Option<u64>,
}

impl<'v> ReadDir<'v> {
    /// Reads the first batch, so that what is no directory is found out at once.
    pub(super) fn new(dir: InodeRef<'v>) -> Result<Self> {
        let mut listing = Self { dir, batch: Vec::new().into_iter(), cookie: Some(0) };
        listing.fill()?;
        Ok(listing)
    }

    /// The directory.
    pub fn dir(&self) -> &InodeRef<'v> {
        &self.dir
    }

    fn fill(&mut self) -> Result<()> {
        let Some(cookie) = self.cookie.take() else { return Ok(()) };
        let (batch, next) = self.dir.volume().read_dir_batch(self.dir.number(), cookie)?;
        self.cookie = next;
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for ReadDir<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.len() == 0
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        self.batch.next().map(Ok)
    }
}

impl Volume {
    /// Some entries of `dir` from `cookie` on, but for `.` and `..`, and where the next ones begin; `None` at the end.
    #[doc(hidden)]
    pub fn read_dir_batch(&self, dir: InodeNumber, cookie: u64) -> Result<(Vec<DirEntry>, Option<u64>)> {
        let mut batch: Vec<DirEntry> = Vec::new();
        let mut next = None;
        self.read_dir(dir, cookie, |entry| {
            if batch.len() == MAX_BATCH {
                next = Some(entry.cookie);
                return ControlFlow::Break(());
            }
            if entry.name != b"." && entry.name != b".." {
                batch.push(entry.into());
            }
            ControlFlow::Continue(())
        })?;
        Ok((batch, next))
    }

    /// Hands entries of `dir` from `cookie` on (0 is the beginning, `.` and `..` included) to `each` until it says
    /// enough. The directory is locked for reading meanwhile, so `each` must not call the volume, not even to look
    /// something up: it would wait for itself, at the latest when another thread wants to write to the directory.
    /// [`Self::entries`] has no such limit.
    ///
    /// # Errors
    /// `NotADirectory`, `Corrupt`, `Io`.
    pub fn read_dir(
        &self,
        dir: InodeNumber,
        cookie: u64,
        mut each: impl FnMut(DirEntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let dir = self.mount.inode(dir)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_dir(&mut tx, &dir)?;
        // A cookie beyond those of XFS is behind the last entry.
        let Ok(cookie) = u32::try_from(cookie) else { return Ok(()) };
        let listed = dir::read(&mut tx, id, cookie, &mut |entry| {
            let (cookie, next_cookie) = (entry.cookie.into(), entry.next.into());
            let file_type = type_of_entry(entry.file_type);
            each(DirEntryRef { name: entry.name, inode: entry.inode, file_type, cookie, next_cookie })
        });
        self.located(dir.number, listed)
    }

    /// The entries of `dir` but `.` and `..`, read in batches as they are asked for. Entries that are made or removed
    /// meanwhile may be seen or not; all others are seen exactly once.
    ///
    /// # Errors
    /// As [`Self::read_dir`], of the first batch.
    pub fn entries(&self, dir: InodeNumber) -> Result<ReadDir<'_>> {
        ReadDir::new(self.reference(dir)?)
    }

    /// All entries of `dir` but `.` and `..`.
    ///
    /// # Errors
    /// As [`Self::read_dir`].
    pub fn list_dir(&self, dir: InodeNumber) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        self.read_dir(dir, 0, |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry.into());
            }
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// As [`Self::list_dir`], past blocks of the directory that cannot be used: what is left, and what is lost. Other
    /// calls return the error of the first such block.
    ///
    /// # Errors
    /// `NotADirectory`; `Corrupt` and `Io` where nothing can be listed.
    pub fn list_what_is_left(&self, dir: InodeNumber) -> Result<(Vec<DirEntry>, Option<LostNames>)> {
        let dir = self.mount.inode(dir)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_dir(&mut tx, &dir)?;
        let mut entries = Vec::new();
        let lost = dir::read_what_is_left(&mut tx, id, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let (name, next_cookie) = (entry.name.to_vec(), entry.next.into());
                let file_type = type_of_entry(entry.file_type);
                entries.push(DirEntry { name, inode: entry.inode, file_type, next_cookie });
            }
            ControlFlow::Continue(())
        });
        let Some(lost) = self.located(dir.number, lost)? else { return Ok((entries, None)) };
        let names = dir::count_names_in(&mut tx, id, &lost.numbers).ok();
        let blocks = lost.numbers.len() as u64;
        Ok((entries, Some(LostNames { error: lost.first, blocks, names })))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for another kind of file; `Corrupt`, `Io`.
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        self.located(inode.number, crate::symlink::read(&mut tx, id))
    }
}
