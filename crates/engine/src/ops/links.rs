//! What one more name or one less asks of an inode: link counts, which a damaged image may have wrong, and its project.
//! Both are checked before an operation changes anything, so that it can fail without harm.

use crate::error::{Error, Result};
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::Corruption;
use xfskit_ondisk::inode::{MODE_BLOCK, MODE_CHAR, MODE_FIFO, MODE_SOCKET, MODE_TYPE, flags};

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

/// Checks that `dir` may take an inode that exists. Who counts the blocks of a directory tree gives its directories a
/// project that they hand down, so nothing of another project may get a name in them. Devices, pipes and sockets
/// without a project may: tools that give a tree a project pass over them.
///
/// # Errors
/// `CrossesProjects`.
pub(super) fn check_project(tx: &Transaction, dir: InoId, child: InoId) -> Result<()> {
    let (dir, child) = (&tx.inode(dir).core, &tx.inode(child).core);
    let is_special = matches!(child.mode & MODE_TYPE, MODE_CHAR | MODE_BLOCK | MODE_FIFO | MODE_SOCKET);
    let fits = dir.flags & flags::PROJINHERIT == 0 || dir.project == child.project || is_special && child.project == 0;
    if fits { Ok(()) } else { Err(Error::CrossesProjects) }
}

fn wrong(tx: &Transaction, ino: InoId, check: &'static str) -> Result<()> {
    let core = &tx.inode(ino).core;
    Err(Corruption::new("inode", check).of(core.inode.0).found(format_args!("{} links", core.links)).into())
}
