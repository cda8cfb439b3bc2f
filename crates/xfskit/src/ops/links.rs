//! Link counts, which a damaged image may have wrong. They are checked before an operation changes anything, so that it
//! can fail without harm.

use crate::error::Result;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::Corruption;

/// Links of a directory without subdirectories: its name and its own `.`.
pub(super) const EMPTY_DIR_LINKS: u32 = 2;

/// Changes the link count of an inode.
///
/// # Errors
/// `Corrupt` when it would leave its range.
pub(super) fn count_links(tx: &mut Transaction, ino: InoId, change: i32) -> Result<()> {
    let core = &tx.inode(ino).core;
    let Some(links) = core.links.checked_add_signed(change) else { return wrong(tx, ino, "link count in range") };
    if change != 0 {
        tx.inode_mut(ino, InodeFields::CORE).core.links = links;
    }
    Ok(())
}

/// Checks that an inode that was found by a name counts a name.
///
/// # Errors
/// `Corrupt`.
pub(super) fn check_named(tx: &Transaction, ino: InoId) -> Result<()> {
    let core = &tx.inode(ino).core;
    let least = if core.is_dir() { EMPTY_DIR_LINKS } else { 1 };
    if core.links < least { wrong(tx, ino, "an inode with a name has links") } else { Ok(()) }
}

/// Checks that an empty directory has the links of one.
///
/// # Errors
/// `Corrupt`.
pub(super) fn check_empty_dir(tx: &Transaction, ino: InoId) -> Result<()> {
    let empty = tx.inode(ino).core.links == EMPTY_DIR_LINKS;
    if empty { Ok(()) } else { wrong(tx, ino, "an empty directory has two links") }
}

/// Checks that a directory counts the link of a subdirectory that it is going to lose.
///
/// # Errors
/// `Corrupt`.
pub(super) fn check_has_subdirectory(tx: &Transaction, dir: InoId) -> Result<()> {
    let enough = tx.inode(dir).core.links > EMPTY_DIR_LINKS;
    if enough { Ok(()) } else { wrong(tx, dir, "a directory counts the links of its subdirectories") }
}

fn wrong(tx: &Transaction, ino: InoId, check: &'static str) -> Result<()> {
    let core = &tx.inode(ino).core;
    Err(Corruption::new("inode", check).of(core.inode.0).found(format_args!("{} links", core.links)).into())
}
