//! Listing attributes.

use super::tree::tree;
use super::{Form, form, shortform};
use crate::dabtree::{CycleGuard, Path};
use crate::error::Result;
use crate::trans::{InoId, Transaction};
use std::ops::ControlFlow;
use xfskit_ondisk::attr::leaf::{LeafValue, attr_at, leaf_entries};
use xfskit_ondisk::da::lower_bound_of_hash;

/// An attribute in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrRef<'a> {
    /// Its name space.
    pub namespace: u8,
    /// The name.
    pub name: &'a [u8],
    /// The value, if it stands beside the name.
    pub value: Option<&'a [u8]>,
    /// Length of the value in bytes.
    pub value_bytes: usize,
}

/// Where a list goes on: behind `skip` attributes of hash `hash` (of all of them, in shortform).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListCursor {
    hash: u32,
    skip: u32,
}

/// Hands all attributes to `visit`, until it breaks off.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn list(tx: &mut Transaction, ino: InoId, visit: &mut dyn FnMut(AttrRef<'_>) -> ControlFlow<()>) -> Result<()> {
    list_from(tx, ino, &mut ListCursor::default(), visit)
}

/// Hands all attributes from the cursor on to `visit`, until it breaks off; the cursor then stands behind the last
/// one that was handed out. Incomplete ones are left out.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn list_from(
    tx: &mut Transaction,
    ino: InoId,
    cursor: &mut ListCursor,
    visit: &mut dyn FnMut(AttrRef<'_>) -> ControlFlow<()>,
) -> Result<()> {
    match form(tx, ino) {
        Form::None | Form::Empty => Ok(()),
        Form::Shortform => list_shortform(tx, ino, cursor, visit),
        Form::Tree => list_tree(tx, ino, cursor, visit),
    }
}

fn list_shortform(
    tx: &Transaction,
    ino: InoId,
    cursor: &mut ListCursor,
    visit: &mut dyn FnMut(AttrRef<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let bytes = shortform::bytes(tx.inode(ino));
    for attr in xfskit_ondisk::attr::shortform::attrs(bytes).skip(cursor.skip as usize) {
        let attr = attr?;
        cursor.skip += 1;
        let (value, value_bytes) = (Some(attr.value), attr.value.len());
        if visit(AttrRef { namespace: attr.namespace, name: attr.name, value, value_bytes }).is_break() {
            break;
        }
    }
    Ok(())
}

fn list_tree(
    tx: &mut Transaction,
    ino: InoId,
    cursor: &mut ListCursor,
    visit: &mut dyn FnMut(AttrRef<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let tree = tree(ino);
    let mut path = Path::descend(tx, &tree, cursor.hash)?;
    let mut guard = CycleGuard::default();
    let mut skip = cursor.skip;
    loop {
        guard.visit(path.leaf().block)?;
        let bytes = tx.bytes(path.leaf().id);
        let entries = leaf_entries(bytes);
        let first = lower_bound_of_hash(entries, cursor.hash, |entry| entry.hash.get());
        for position in first..entries.len() {
            let attr = attr_at(bytes, position)?;
            if attr.hash == cursor.hash && skip > 0 {
                skip -= 1;
                continue;
            }
            if attr.hash != cursor.hash {
                *cursor = ListCursor { hash: attr.hash, skip: 0 };
            }
            skip = 0;
            cursor.skip += 1;
            if attr.is_incomplete() {
                continue;
            }
            let (value, value_bytes) = match attr.value {
                LeafValue::Local(value) => (Some(value), value.len()),
                LeafValue::Remote { length, .. } => (None, length as usize),
            };
            let (namespace, name) = (attr.namespace(), attr.name);
            if visit(AttrRef { namespace, name, value, value_bytes }).is_break() {
                path.release(tx);
                return Ok(());
            }
        }
        if !path.advance(tx, &tree)? {
            path.release(tx);
            return Ok(());
        }
    }
}
