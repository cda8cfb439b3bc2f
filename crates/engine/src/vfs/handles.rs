//! An XFS filesystem with [`Handles`] of its inodes: forwards alone.

use crate::error::Result;
use crate::incore::Inode;
use crate::ops::{Hold, Volume};
use std::sync::Arc;
use xfskit_vfs::{Begun, Caller, Fallocate, Handle, Handles, InodeNumber, Mtime, NewFile, Stat, SyncKind, Written};

/// An inode that was looked up.
pub struct Held<'v> {
    volume: &'v Volume,
    inode: Arc<Inode>,
}

// For servers: what a program calls is `Volume` itself.
#[doc(hidden)]
impl Handles for Volume {
    type Inode<'v> = Held<'v>;

    fn inode(&self, number: InodeNumber) -> Result<Held<'_>> {
        Ok(Held { volume: self, inode: self.mount().inode(number)? })
    }

    fn lookup_inode(&self, dir: InodeNumber, name: &[u8]) -> Result<Held<'_>> {
        Handles::inode(self, self.lookup_number(dir, name)?)
    }

    fn has_references(&self, inode: InodeNumber) -> bool {
        self.has_references(inode)
    }

    fn inactivation_cost(&self, inode: InodeNumber) -> u64 {
        self.bytes_to_free(inode)
    }

    fn held_without_name(&self) -> Option<u64> {
        self.has_nameless().then(|| self.count_nameless())
    }

    fn is_synchronous(&self, inode: InodeNumber) -> Result<bool> {
        self.is_synchronous(inode)
    }
}

impl Handle for Held<'_> {
    fn number(&self) -> InodeNumber {
        self.inode.number
    }

    fn stat(&self) -> Result<Stat> {
        self.volume.stat_of(&self.inode)
    }

    fn grab(&self) -> Result<Stat> {
        self.volume.grab(&self.inode)
    }

    fn create(&self, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        self.volume.create_in_dir(&self.inode, name, new, caller, Hold::Reference)
    }

    fn tmpfile(&self, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        self.volume.tmpfile_in_dir(&self.inode, new, caller)
    }

    fn link(&self, dir: InodeNumber, name: &[u8], _: &Caller) -> Result<Stat> {
        self.volume.link_inode(dir, name, &self.inode, Hold::Reference)
    }

    fn drop_privileges(&self, writer: Option<&Caller>) -> Result<bool> {
        self.volume.drop_privileges_of(&self.inode, writer)
    }

    fn write(&self, offset: u64, data: &[u8], mtime: Mtime) -> Result<Written> {
        self.volume.check_writes()?;
        match mtime {
            Mtime::Update => self.volume.write_some(&self.inode, offset, data),
            Mtime::Keep => {
                self.volume.write_late(&self.inode, offset, data)?;
                Ok(Written { bytes: data.len(), was_truncated: false })
            }
        }
    }

    fn flush_truncated(&self) {
        self.volume.bring_out_cut(&self.inode);
    }

    fn fallocate(&self, offset: u64, length: u64, what: Fallocate, mtime: Mtime) -> Result<()> {
        self.volume.fallocate_in(&self.inode, (offset, length), what, mtime)
    }

    fn copy_from(&self, from: InodeNumber, from_offset: u64, offset: u64, length: u64, mtime: Mtime) -> Result<u64> {
        let to = self.inode.number;
        match mtime {
            Mtime::Update => self.volume.copy_range(from, from_offset, to, offset, length),
            Mtime::Keep => self.volume.copy_range_keeping_times(from, from_offset, to, offset, length),
        }
    }

    fn fsync_is_cheap(&self) -> bool {
        self.volume.is_fsync_of_soon_begun(&self.inode)
    }

    fn begin_fsync(&self, what: SyncKind) -> Result<Begun> {
        let point = self.volume.begin_fsync_of(&self.inode, what)?;
        Ok(Begun { point, blocks: self.volume.blocks_of(&self.inode) })
    }
}
