//! What is known of an inode and of the filesystem as a whole.

use super::file_type::type_of_inode;
use super::{FsStat, Permissions, Stat, Volume};
use crate::error::Result;
use crate::incore::{DataFork, Inode, InodeState};
use crate::trans::Transaction;
use std::sync::Arc;
use xfskit_ondisk::inode::flags2;
use xfskit_ondisk::{Geometry, InodeNumber, decode_device};

/// Flags that say how an inode is stored, not how it is to be used.
const OF_THE_FORMAT: u64 = flags2::REFLINK | flags2::BIGTIME | flags2::NREXT64;

/// What a state says.
pub(super) fn stat_of(tx: &Transaction, state: &InodeState) -> Stat {
    let core = &state.core;
    let device = if let DataFork::Dev(device) = state.data { decode_device(device).to_linux() } else { 0 };
    Stat {
        inode: core.inode,
        generation: core.generation,
        file_type: type_of_inode(core.mode),
        permissions: Permissions::new(core.mode),
        uid: core.uid,
        gid: core.gid,
        links: core.links,
        size: state.size_bytes(),
        blocks: blocks_of(tx.geometry(), state),
        device,
        atime: core.atime,
        mtime: core.mtime,
        ctime: core.ctime,
        birth_time: core.birth_time,
        project: core.project,
        is_plain: core.flags == 0 && core.flags2 & !OF_THE_FORMAT == 0 && core.project == 0,
    }
}

/// The space that an inode takes, in 512-byte blocks. What contents in memory will take counts as taken.
fn blocks_of(geometry: &Geometry, state: &InodeState) -> u64 {
    let waiting = state.dirty.as_ref().map_or(0, |dirty| dirty.paid());
    (state.core.blocks + waiting) << (geometry.block_log - 9)
}

impl Volume {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    pub fn stat(&self, inode: InodeNumber) -> Result<Stat> {
        self.stat_of(&self.mount.inode(inode)?)
    }

    /// As [`Self::stat`], of an inode that was looked up.
    pub(crate) fn stat_of(&self, inode: &Arc<Inode>) -> Result<Stat> {
        self.look_at(inode, |_| ())
    }

    /// The attributes of an inode; `meanwhile` runs while it is locked.
    pub(super) fn look_at(&self, inode: &Arc<Inode>, meanwhile: impl FnOnce(&Inode)) -> Result<Stat> {
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, inode)?;
        meanwhile(inode);
        let mut stat = stat_of(&tx, tx.inode(id));
        if let Some(written) = inode.noted_write() {
            // Later than what the core knows: each change takes the note along.
            (stat.mtime, stat.ctime) = (written, written);
        }
        Ok(stat)
    }

    /// The space that an inode takes, as its [`Stat`] says it.
    pub(crate) fn blocks_of(&self, inode: &Inode) -> u64 {
        blocks_of(&self.mount.geometry, &inode.state_lock().read())
    }

    /// The filesystem in figures, as the kernel's `xfs_fs_statfs` gives them: a mount that writes keeps blocks back for
    /// its trees and for removals, and one that only reads needs none of them.
    pub fn statfs(&self) -> FsStat {
        let geometry = &self.mount.geometry;
        let log_blocks = if geometry.log_start.is_some() { u64::from(geometry.log_blocks) } else { 0 };
        // The superblock's counters are not exact after a crash, and anything in a damaged image.
        let blocks = geometry.data_blocks.saturating_sub(log_blocks);
        let space = &self.mount.space;
        let free_blocks = if self.mount.options.read_only {
            space.free_blocks().saturating_sub(crate::space::free_list_blocks(geometry))
        } else {
            space.usable_blocks()
        };
        let free_blocks = free_blocks.min(blocks);
        let per_block = u64::from(geometry.inodes_per_block());
        let (inodes, free_inodes) = space.inodes();
        let inodes = inodes.min(geometry.data_blocks * per_block);
        let used = inodes.saturating_sub(free_inodes);
        let most = geometry.max_inodes().unwrap_or(u64::MAX);
        let total = (inodes + free_blocks * per_block).min(most).max(inodes);
        FsStat {
            block_bytes: geometry.block_bytes() as u32,
            blocks,
            free_blocks,
            inodes: total,
            free_inodes: total - used,
        }
    }
}
