//! Reads the extents of a btree fork into memory.

use super::bmbt::BmbtKind;
use crate::btree::Cursor;
use crate::error::Result;
use crate::incore::{ExtentList, ForkKind, ForkMap};
use crate::trans::{InoId, Transaction};

/// Makes sure that the whole list of extents is in memory.
pub(super) fn load(tx: &mut Transaction, ino: InoId, fork: ForkKind) -> Result<()> {
    match tx.inode(ino).map(fork) {
        Some(ForkMap::Btree(root)) if root.extents.get().is_none() => {}
        _ => return Ok(()),
    }
    let core = &tx.inode(ino).core;
    let (name, inode) = ("extent map", core.inode);
    let is_contents = fork == ForkKind::Data && core.is_regular();
    let expected = match fork {
        ForkKind::Data => core.data_extents,
        ForkKind::Attr => core.attr_extents.into(),
    };
    let mut cursor = Cursor::new(BmbtKind::new(ino, fork, inode));
    let mut list = ExtentList::default();
    let mut next = cursor.first(tx)?;
    while let Some(extent) = next {
        ensure_on_disk!(
            (list.len() as u64) < expected,
            name,
            "as many records as the inode counts",
            "more than {expected} in inode {inode}"
        );
        list.push(extent);
        next = cursor.next(tx)?;
    }
    cursor.close(tx);
    ensure_on_disk!(
        list.len() as u64 == expected,
        name,
        "as many records as the inode counts",
        "{} instead of {expected} in inode {inode}",
        list.len()
    );
    crate::inode::fork::verify_extents(tx.geometry(), name, list.iter_from(0)).map_err(|e| e.of(inode.0))?;
    if !is_contents {
        crate::inode::fork::verify_blocks_mapped_once(name, list.iter_from(0)).map_err(|e| e.of(inode.0))?;
    }
    if let Some(ForkMap::Btree(root)) = tx.inode(ino).map(fork) {
        // Another reader may have been faster; the lists are equal.
        let _ = root.extents.set(list);
    }
    Ok(())
}
