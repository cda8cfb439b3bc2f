//! Attributes, in shortform, in one leaf, and in a tree of leaves; and the parent pointers among them.
//!
//! Each name adds to the balance of its inode, and each parent pointer subtracts from it ([`crate::table`]).

mod leaf;
mod remote;
mod shortform;

use crate::context::Context;
use crate::fork::{Fork, InodeView, Map};
use crate::report::{Consequence, Fault, Summary};
use crate::table::{Slot, name_hash};
use std::collections::HashSet;
use xfskit_ondisk::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use xfskit_ondisk::attr::{ParentRecord, flags};
use xfskit_ondisk::dir::is_valid_name;
use xfskit_ondisk::{DiskAddress, ForkFormat, InodeNumber};

/// An attribute, in any on-disk form.
pub(crate) struct Found<'a> {
    pub(crate) namespace: u8,
    pub(crate) name: &'a [u8],
    /// `None` for a value in blocks of its own.
    pub(crate) value: Option<&'a [u8]>,
    /// `None` in shortform.
    pub(crate) hash: Option<u32>,
    pub(crate) address: DiskAddress,
    pub(crate) structure: &'static str,
}

/// A parent pointer.
pub(crate) struct Pointer<'a> {
    pub(crate) parent: InodeNumber,
    pub(crate) generation: u32,
    pub(crate) name: &'a [u8],
}

/// Checks the attributes of an inode.
pub(crate) fn check(context: &Context<'_>, inode: &InodeView<'_>, map: &Map, slot: &Slot, summary: &mut Summary) {
    // While a file without a name is freed, its attributes are removed step by step, and their tree may be invalid.
    if inode.core.links == 0 {
        return;
    }
    let mut keys = Keys::default();
    walk(context, inode, map, &mut |attr| {
        summary.attributes += 1;
        check_attr(context, inode, attr, &mut keys);
        if let Some(pointer) = parent_pointer(attr) {
            summary.parent_pointers += 1;
            slot.take_from_balance(name_hash(pointer.parent, pointer.generation, inode.number, pointer.name));
        }
    });
}

/// Calls `take` for each parent pointer of an inode.
pub(crate) fn parent_pointers(
    context: &Context<'_>,
    inode: &InodeView<'_>,
    map: &Map,
    take: &mut dyn FnMut(&Pointer<'_>),
) {
    walk(context, inode, map, &mut |attr| {
        if let Some(pointer) = parent_pointer(attr) {
            take(&pointer);
        }
    });
}

fn walk(context: &Context<'_>, inode: &InodeView<'_>, map: &Map, take: &mut dyn FnMut(&Found<'_>)) {
    if inode.core.attr_format == ForkFormat::Local {
        shortform::walk(context, inode, inode.fork(context, Fork::Attr), take);
    } else if !map.extents.is_empty() {
        leaf::walk(context, inode, map, take);
    }
}

fn parent_pointer<'a>(attr: &Found<'a>) -> Option<Pointer<'a>> {
    if attr.namespace & flags::PARENT == 0 {
        return None;
    }
    let record = ParentRecord::decode(attr.value?)?;
    Some(Pointer { parent: InodeNumber(record.inode), generation: record.generation, name: attr.name })
}

/// The attributes with the current hash. Attributes are sorted by hash, so no others are needed to find duplicates.
#[derive(Default)]
struct Keys {
    hash: u32,
    last: Vec<u8>,
    next: Vec<u8>,
    /// Filled only when a hash repeats.
    seen: HashSet<Vec<u8>>,
}

impl Keys {
    /// Whether the attribute is new. A shortform attribute has no hash and always counts as new.
    fn insert(&mut self, attr: &Found<'_>) -> bool {
        let Some(hash) = attr.hash else { return true };
        self.next.clear();
        self.next.push(attr.namespace);
        self.next.extend_from_slice(attr.name);
        if attr.namespace & flags::PARENT != 0 {
            self.next.push(0);
            self.next.extend_from_slice(attr.value.unwrap_or_default());
        }
        let is_new = if hash == self.hash && !self.last.is_empty() {
            if self.seen.is_empty() {
                self.seen.insert(self.last.clone());
            }
            self.seen.insert(self.next.clone())
        } else {
            self.seen.clear();
            true
        };
        self.hash = hash;
        std::mem::swap(&mut self.last, &mut self.next);
        is_new
    }
}

fn check_attr(context: &Context<'_>, inode: &InodeView<'_>, attr: &Found<'_>, keys: &mut Keys) {
    let shown = || attr.name.escape_ascii().to_string();
    let fault = |check, what| {
        context.report(Fault::new(attr.structure, check, what).at(attr.address).owned(inode.owner()).found(shown()));
    };
    if attr.namespace & flags::PARENT != 0 {
        if !context.geometry.has_parent() {
            fault("no parent pointers without the feature", Consequence::Attributes);
        }
        if !is_valid_name(attr.name) || matches!(attr.name, b"." | b"..") {
            fault("name of a parent pointer", Consequence::Parents);
        }
        let valid = attr.value.is_some_and(|value| value.len() == xfskit_ondisk::attr::PARENT_RECORD_BYTES);
        if !valid {
            fault("value of a parent pointer", Consequence::Parents);
        }
    } else if attr.namespace & flags::NAMESPACE == flags::ROOT && [ACCESS_NAME, DEFAULT_NAME].contains(&attr.name) {
        if let Some(Err(corruption)) = attr.value.map(Acl::decode) {
            fault(corruption.check, Consequence::Attributes);
        }
    } else if attr.name.contains(&0) {
        fault("names have no zero bytes", Consequence::Attributes);
    }
    if !keys.insert(attr) {
        fault("names are unique", Consequence::Attributes);
    }
}
