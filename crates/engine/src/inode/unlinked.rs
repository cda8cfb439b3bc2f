//! Unlinked lists: inodes without a name that are still open.
//!
//! ```text
//! AGI  bucket[inode % 64] ──▶ inode ──next_unlinked──▶ inode ──▶ none
//! ```
//! The links lie in the inodes on disk and are logged with the cluster's buffer, not with the inode, so that recovery
//! can follow them before it knows any inode. After a crash, recovery frees what it finds there.
//!
//! Locking: the AGI first, then cluster buffers; the caller holds the inode's lock.

use crate::cycle::CycleGuard;
use crate::error::Result;
use crate::error_tags::{IUNLINK, IUNLINK_REMOVE};
use crate::space::cluster;
use crate::space::read_agi;
use crate::trans::{BufId, InoId, InodeFields, Transaction};
use xfskit_ondisk::ag::{Agi, UNLINKED_BUCKETS};
use xfskit_ondisk::inode::{INODE_CRC_OFFSET, INODE_NEXT_UNLINKED_OFFSET, stamp_inode};
use xfskit_ondisk::{AgInode, AgNumber, Corruption, InodeNumber, NULL_AG_INODE, checksum_matches};

const AGI_UNLINKED_OFFSET: usize = core::mem::offset_of!(Agi, unlinked);

fn place(tx: &Transaction, inode: InodeNumber) -> Result<(AgNumber, AgInode, usize)> {
    let (ag, within) = tx
        .geometry()
        .split_inode(inode)
        .ok_or_else(|| Corruption::new("inode number", "lies on the device").of(inode.0))?;
    Ok((ag, within, within.0 as usize % UNLINKED_BUCKETS))
}

fn set_bucket(tx: &mut Transaction, agi: BufId, bucket: usize, head: AgInode) {
    let at = AGI_UNLINKED_OFFSET + 4 * bucket;
    tx.edit(agi, at..at + 4).copy_from_slice(&head.0.to_be_bytes());
}

/// Locks the list that an inode would be put on, so that [`insert`] will not have to wait for it.
///
/// # Errors
/// `WouldBlock` when the AG must not be waited for and another transaction holds it; `Corrupt`, `Io`.
pub fn lock_list(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let (ag, ..) = place(tx, tx.inode(ino).core.inode)?;
    read_agi(tx, ag).map(|_| ())
}

/// Puts an inode on its AG's list.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn insert(tx: &mut Transaction, ino: InoId) -> Result<()> {
    tx.mount().error_tags.fail(IUNLINK)?;
    let inode = tx.inode(ino).core.inode;
    let (ag, within, bucket) = place(tx, inode)?;
    let agi = read_agi(tx, ag)?;
    let head = AgInode(tx.get_as::<Agi>(agi, 0).unlinked[bucket].get());
    ensure_on_disk!(head != within, "AGI", "unlinked list without loops", "inode {inode} is its own successor");
    if head != NULL_AG_INODE {
        set_next(tx, inode, head)?;
        tx.inode_mut(ino, InodeFields::CORE).core.next_unlinked = head;
    }
    set_bucket(tx, agi, bucket, within);
    tx.mount().nameless.add();
    Ok(())
}

/// Takes an inode off its AG's list.
///
/// # Errors
/// `Corrupt` when it is not there.
pub fn remove(tx: &mut Transaction, ino: InoId) -> Result<()> {
    tx.mount().error_tags.fail(IUNLINK_REMOVE)?;
    let inode = tx.inode(ino).core.inode;
    let (ag, within, bucket) = place(tx, inode)?;
    let agi = read_agi(tx, ag)?;
    let next = next_of(tx, inode)?;
    let mut at = AgInode(tx.get_as::<Agi>(agi, 0).unlinked[bucket].get());
    if at == within {
        set_bucket(tx, agi, bucket, next);
    } else {
        let mut guard = CycleGuard::default();
        loop {
            ensure_on_disk!(at != NULL_AG_INODE, "unlinked list", "holds the unlinked inode", "inode {inode}");
            ensure_on_disk!(guard.visit(at.0.into()), "unlinked list", "without a circle", "AG {ag}, inode {at}");
            let number = tx.geometry().inode_number(ag, at);
            let following = next_of(tx, number)?;
            if following == within {
                set_next(tx, number, next)?;
                break;
            }
            at = following;
        }
    }
    if next != NULL_AG_INODE {
        set_next(tx, inode, NULL_AG_INODE)?;
    }
    tx.inode_mut(ino, InodeFields::CORE).core.next_unlinked = NULL_AG_INODE;
    tx.mount().nameless.remove();
    Ok(())
}

/// The inodes on an AG's list, for recovery and for cleaning up.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn list(tx: &mut Transaction, ag: AgNumber) -> Result<Vec<InodeNumber>> {
    let agi = read_agi(tx, ag)?;
    let heads: Vec<AgInode> = tx.get_as::<Agi>(agi, 0).unlinked.iter().map(|head| AgInode(head.get())).collect();
    let mut found = Vec::new();
    for mut at in heads {
        let mut guard = CycleGuard::default();
        while at != NULL_AG_INODE {
            ensure_on_disk!(guard.visit(at.0.into()), "unlinked list", "without a circle", "AG {ag}, inode {at}");
            let number = tx.geometry().inode_number(ag, at);
            found.push(number);
            at = next_of(tx, number)?;
        }
    }
    Ok(found)
}

/// The link of an inode on disk.
fn next_of(tx: &mut Transaction, inode: InodeNumber) -> Result<AgInode> {
    let (buffer, offset) = cluster::read(tx, inode)?;
    let at = offset + INODE_NEXT_UNLINKED_OFFSET;
    let bytes = tx.bytes(buffer);
    let next = AgInode(u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
    tx.release(buffer);
    if next != NULL_AG_INODE {
        let (ag, _, _) = place(tx, inode)?;
        let inside = tx.geometry().contains(ag, tx.geometry().inode_block(next));
        ensure_on_disk!(inside, "inode", "next unlinked inode lies in the AG", "{next} after inode {inode}");
    }
    Ok(next)
}

/// Changes the link of an inode on disk, and logs only the link. A wrong checksum stays wrong, for a right one would
/// hide the damage. The inode in memory is sound, and its write-back sets the right checksum.
fn set_next(tx: &mut Transaction, inode: InodeNumber, next: AgInode) -> Result<()> {
    let (buffer, offset) = cluster::read(tx, inode)?;
    let slot = offset..offset + tx.geometry().inode_bytes();
    let is_sound = checksum_matches(&tx.bytes(buffer)[slot.clone()], INODE_CRC_OFFSET);
    let at = offset + INODE_NEXT_UNLINKED_OFFSET;
    tx.edit(buffer, at..at + 4).copy_from_slice(&next.0.to_be_bytes());
    if is_sound {
        stamp_inode(&mut tx.unlogged_mut(buffer)[slot]);
    }
    Ok(())
}
