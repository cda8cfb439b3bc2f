//! A filesystem whose inodes can be held: a server looks an inode up once for each request.

use crate::{
    Caller, Error, Fallocate, InodeNumber, NewFile, Result, SetAttr, SetTime, Stat, SyncKind, SyncPoint, Volume,
};

/// Who sets the times of a file whose contents change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtime {
    /// The filesystem: it is now.
    Update,
    /// The caller, a cache that writes late what its programs have written, in whole pages and in any order. What it
    /// writes was checked when the cache took it, so an append-only file takes it where its pages lie, as long as
    /// nothing changes that the file had before.
    Keep,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The bytes, from the first one on.
    pub bytes: usize,
    /// The file was made shorter since it was last synced, and what replaces its contents is dirty:
    /// [`Handle::flush_truncated`] is due.
    pub was_truncated: bool,
}

/// An fsync that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// What is to be waited for.
    pub point: SyncPoint,
    /// Space that the inode takes by now, in 512-byte blocks.
    pub blocks: u64,
}

/// A [`Volume`] for a server: with handles of inodes, and with what a server asks of numbers that a kernel knows. No
/// inode but the root has the number 1, which is the root's in FUSE.
pub trait Handles: Volume {
    /// An inode that was looked up. It counts no reference: the inode may be freed meanwhile, and the handle's calls
    /// are refused as stale then, until another file has the number.
    type Inode<'v>: Handle
    where
        Self: 'v;

    /// Looks an inode up.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    fn inode(&self, number: InodeNumber) -> Result<Self::Inode<'_>>;

    /// Looks up what a name leads to; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    fn lookup_inode(&self, dir: InodeNumber, name: &[u8]) -> Result<Self::Inode<'_>> {
        self.inode(self.lookup(dir, name)?.inode)
    }

    /// Whether anything refers to an inode.
    fn has_references(&self, inode: InodeNumber) -> bool;

    /// How many bytes the last reference to an inode frees; 0 for one with a name.
    fn inactivation_cost(&self, inode: InodeNumber) -> u64 {
        let _ = inode;
        0
    }

    /// How many inodes have lost their last name since the volume was opened, if holders keep some of them: the space
    /// that these take is free when they let go.
    fn held_without_name(&self) -> Option<u64> {
        None
    }

    /// Whether each change of a file's contents is durable when the call returns, for whatever caller: such a call
    /// waits for the device.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    fn is_synchronous(&self, inode: InodeNumber) -> Result<bool> {
        let _ = inode;
        Ok(false)
    }
}

/// The calls of a server on an inode that it has looked up. Each is what the method of that name of [`Volume`] does.
pub trait Handle {
    /// The inode number.
    fn number(&self) -> InodeNumber;

    /// The attributes.
    ///
    /// # Errors
    /// As [`Volume::stat`].
    fn stat(&self) -> Result<Stat>;

    /// The attributes, with one reference more. There is none after an error.
    ///
    /// # Errors
    /// As [`Volume::add_reference`].
    fn grab(&self) -> Result<Stat>;

    /// Makes something in this directory, with one reference.
    ///
    /// # Errors
    /// As [`Volume::create`].
    fn create(&self, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat>;

    /// Makes a file without a name near this directory, with one reference.
    ///
    /// # Errors
    /// As [`Volume::tmpfile`].
    fn tmpfile(&self, new: &NewFile<'_>, caller: &Caller) -> Result<Stat>;

    /// Gives this inode one more name, and one more reference.
    ///
    /// # Errors
    /// As [`Volume::link`].
    fn link(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<Stat>;

    /// Takes privileges from a file that is written.
    ///
    /// # Errors
    /// As [`Volume::drop_privileges`].
    fn drop_privileges(&self, writer: Option<&Caller>) -> Result<bool>;

    /// Writes the first bytes of `data`, one at least.
    ///
    /// # Errors
    /// As [`Volume::write_some_at`].
    fn write(&self, offset: u64, data: &[u8], mtime: Mtime) -> Result<Written>;

    /// Writes back what is dirty of a file that was made shorter since it was last synced, of another one nothing. A
    /// program may have emptied the file to write it anew, and the loss of the old contents becomes durable with
    /// whatever another program syncs. For a server, which does not hear when a program closes a file: after each
    /// change of contents. What cannot be written back stays dirty, and an fsync reports it.
    fn flush_truncated(&self);

    /// Gives a range of the file space, or takes it away.
    ///
    /// # Errors
    /// As [`Volume::fallocate`].
    fn fallocate(&self, offset: u64, length: u64, what: Fallocate, mtime: Mtime) -> Result<()>;

    /// Copies a range of another file, or of this one, to byte `offset`.
    ///
    /// # Errors
    /// As [`Volume::copy_range`].
    fn copy_from(&self, from: InodeNumber, from_offset: u64, offset: u64, length: u64, mtime: Mtime) -> Result<u64>;

    /// Whether [`Self::begin_fsync`] takes short, so that a thread that must answer others may call it. A hint, which
    /// another thread may make wrong at once; does not wait itself.
    fn fsync_is_cheap(&self) -> bool;

    /// The first half of an fsync.
    ///
    /// # Errors
    /// As [`Volume::begin_fsync`].
    fn begin_fsync(&self, what: SyncKind) -> Result<Begun>;
}

/// The handle of a filesystem that finds its inodes by number each time.
#[derive(Debug)]
pub struct ByNumber<'v, V: ?Sized> {
    volume: &'v V,
    number: InodeNumber,
}

impl<'v, V: ?Sized> ByNumber<'v, V> {
    /// The handle of an inode.
    pub fn new(volume: &'v V, number: InodeNumber) -> Self {
        Self { volume, number }
    }
}

impl<V: Volume + ?Sized> ByNumber<'_, V> {
    /// Changes contents, and sets the times back where the caller keeps them.
    fn change<T>(&self, mtime: Mtime, change: impl FnOnce() -> Result<T>) -> Result<T> {
        if mtime == Mtime::Update {
            return change();
        }
        let before = self.stat()?;
        let changed = change();
        let times = SetAttr { mtime: Some(SetTime::To(before.mtime)), ctime: Some(before.ctime), ..SetAttr::default() };
        let set = self.volume.set_attr(self.number, &times, &Caller::root());
        let value = changed?;
        set.map(|_| value)
    }
}

impl<V: Volume + ?Sized> Handle for ByNumber<'_, V> {
    fn number(&self) -> InodeNumber {
        self.number
    }

    fn stat(&self) -> Result<Stat> {
        self.volume.stat(self.number)
    }

    fn grab(&self) -> Result<Stat> {
        // In this order: the attributes of what nothing holds may be another file's a moment later.
        self.volume.add_reference(self.number)?;
        let stat = self.stat();
        if stat.is_err() {
            self.volume.drop_references(self.number, 1)?;
        }
        stat
    }

    fn create(&self, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        let made = self.volume.create(self.number, name, new, caller)?;
        self.volume.add_reference(made.inode)?;
        Ok(made)
    }

    fn tmpfile(&self, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        self.volume.tmpfile(self.number, new, caller)
    }

    fn link(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<Stat> {
        let linked = self.volume.link(dir, name, self.number, caller)?;
        self.volume.add_reference(self.number)?;
        Ok(linked)
    }

    fn drop_privileges(&self, writer: Option<&Caller>) -> Result<bool> {
        self.volume.drop_privileges(self.number, writer)
    }

    fn write(&self, offset: u64, data: &[u8], mtime: Mtime) -> Result<Written> {
        let bytes = self.change(mtime, || self.volume.write_some_at(self.number, offset, data))?;
        Ok(Written { bytes, was_truncated: false })
    }

    fn flush_truncated(&self) {}

    fn fallocate(&self, offset: u64, length: u64, what: Fallocate, mtime: Mtime) -> Result<()> {
        self.change(mtime, || self.volume.fallocate(self.number, offset, length, what))
    }

    fn copy_from(&self, from: InodeNumber, from_offset: u64, offset: u64, length: u64, mtime: Mtime) -> Result<u64> {
        self.change(mtime, || self.volume.copy_range(from, from_offset, self.number, offset, length))
    }

    fn fsync_is_cheap(&self) -> bool {
        self.volume.queue_depth() == 1
    }

    fn begin_fsync(&self, what: SyncKind) -> Result<Begun> {
        let point = self.volume.begin_fsync(self.number, what)?;
        match self.stat() {
            Ok(stat) => Ok(Begun { point, blocks: stat.blocks }),
            // It was freed meanwhile: there is nothing to sync.
            Err(Error::Stale(_)) => Ok(Begun { point, blocks: 0 }),
            Err(error) => Err(error),
        }
    }
}
