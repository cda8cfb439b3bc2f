//! What all names together must agree with: link counts, the tree of directories, parent pointers.

use crate::attr;
use crate::context::Context;
use crate::dir::{self, Directories};
use crate::fork::Fork;
use crate::report::{Consequence, Fault};
use crate::table::{Kind, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::FileType;

/// Maximum number of inodes whose parent pointers are compared one by one.
const MAX_EXPLAINED: usize = 1000;

/// Checks link counts, directories and parent pointers, after all names were counted.
pub(crate) fn check(context: &Context<'_>, directories: &Directories) {
    let all_names = context.names_known.load(Ordering::Relaxed);
    check_special(context);
    let mut unbalanced = BTreeSet::new();
    for (inode, slot) in context.inodes.used(&context.geometry) {
        check_links(context, directories, inode, slot, all_names);
        if !slot.is_balanced() && slot.links() > 0 && unbalanced.len() < MAX_EXPLAINED {
            unbalanced.insert(inode);
        }
    }
    check_tree(context, directories, all_names);
    if !unbalanced.is_empty() && context.geometry.has_parent() {
        explain(context, directories, &unbalanced, all_names);
    }
}

/// Counts the superblock's references to the filesystem's own inodes as names, and checks that these inodes exist.
fn check_special(context: &Context<'_>) {
    for special in context.special_inodes() {
        match context.inodes.find(&context.geometry, special.number) {
            Some(slot) if slot.kind() != Kind::Free => slot.add_name(),
            _ if !context.owners_known.load(Ordering::Relaxed) => {}
            _ => {
                let consequence = if special.is_used { Consequence::Image } else { Consequence::Quota };
                let fault = Fault::new("superblock", "its inodes exist", consequence).inode(special.number);
                context.report(fault.found(special.name));
            }
        }
    }
    let root = context.geometry.root_inode;
    let kind = context.inodes.find(&context.geometry, root).map(Slot::kind);
    let known = kind.is_some() || context.owners_known.load(Ordering::Relaxed);
    if known && !matches!(kind, Some(Kind::Used(FileType::Directory) | Kind::Damaged)) {
        let fault = Fault::new("root directory", "exists and is a directory", Consequence::Image).inode(root);
        context.report(fault.found(format_args!("{kind:?}")));
    }
}

fn fault(context: &Context<'_>, inode: InodeNumber, check: &'static str, found: String, what: Consequence) {
    let fault = Fault::new("inode", check, what).inode(inode);
    let fault = match context.inode_address(inode) {
        Some(address) => fault.at(address),
        None => fault,
    };
    context.report(fault.found(found));
}

fn check_links(context: &Context<'_>, directories: &Directories, inode: InodeNumber, slot: &Slot, all_names: bool) {
    let Kind::Used(file_type) = slot.kind() else { return };
    let (links, names) = (slot.links(), slot.names());
    let named = match file_type {
        FileType::Directory => {
            let own = directories.index(inode).map(|index| directories.list[index].named_by.load(Ordering::Relaxed));
            inode == context.geometry.root_inode || own.is_some_and(|by| by != 0)
        }
        _ => names > 0,
    };
    if links > 0 && !named {
        if all_names {
            fault(context, inode, "some name leads to it", format!("{links} links"), Consequence::Unreachable);
        }
    } else if links != names && (all_names || names > links) {
        fault(context, inode, "number of links", format!("{links} instead of {names}"), Consequence::Removal);
    }
}

/// Checks that each `..` leads to the directory that has the name, and that directories form no circles.
fn check_tree(context: &Context<'_>, directories: &Directories, all_names: bool) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        Now,
        Before,
    }
    let root = context.geometry.root_inode;
    let mut seen = vec![Seen::Not; directories.list.len()];
    for start in 0..directories.list.len() {
        let own = &directories.list[start];
        let (dotdot, by) = (own.dotdot.load(Ordering::Relaxed), own.named_by.load(Ordering::Relaxed));
        let parent = if own.inode == root { root.0 } else { by };
        if dotdot != 0 && parent != 0 && dotdot != parent {
            let found = format!("inode {dotdot} instead of {parent}");
            fault(context, own.inode, "'..' of a directory leads to where its name is", found, Consequence::Name);
        }
        let mut path = Vec::new();
        let mut at = Some(start);
        while let Some(index) = at.filter(|&index| seen[index] == Seen::Not) {
            seen[index] = Seen::Now;
            path.push(index);
            let by = directories.list[index].named_by.load(Ordering::Relaxed);
            at = if by == 0 { None } else { directories.index(InodeNumber(by)) };
        }
        if let Some(index) = at.filter(|&index| seen[index] == Seen::Now)
            && all_names
        {
            let inode = directories.list[index].inode;
            let check = "directories do not go round in circles";
            fault(context, inode, check, format!("{} of them", path.len()), Consequence::Unreachable);
        }
        for index in path {
            seen[index] = Seen::Before;
        }
    }
}

/// Directory, its generation, name: what a name and its parent pointer have in common.
type Key = (InodeNumber, u32, Vec<u8>);

/// Reads names and parent pointers of some inodes again and reports where they differ.
fn explain(context: &Context<'_>, directories: &Directories, inodes: &BTreeSet<InodeNumber>, all_names: bool) {
    let mut names: BTreeMap<InodeNumber, Vec<Key>> = BTreeMap::new();
    let mut pointers: BTreeMap<InodeNumber, Vec<Key>> = BTreeMap::new();
    context.faults.quietly(|| {
        for directory in &directories.list {
            dir::with_inode(context, directory.inode, |inode| {
                let (number, generation) = (inode.number, inode.core.generation);
                dir::walk(context, inode, &mut |name| {
                    if inodes.contains(&name.target) && !matches!(name.name, b"." | b"..") {
                        names.entry(name.target).or_default().push((number, generation, name.name.to_vec()));
                    }
                });
            });
        }
        for &number in inodes {
            dir::with_inode(context, number, |inode| {
                let Some(map) = dir::map_of(context, inode, Fork::Attr) else { return };
                attr::parent_pointers(context, inode, &map, &mut |pointer| {
                    let key = (pointer.parent, pointer.generation, pointer.name.to_vec());
                    pointers.entry(number).or_default().push(key);
                });
            });
        }
    });
    for &inode in inodes {
        let mut names = names.remove(&inode).unwrap_or_default();
        let mut pointers = pointers.remove(&inode).unwrap_or_default();
        names.sort_unstable();
        pointers.sort_unstable();
        crate::join::join(&names, &pointers, Clone::clone, |name, pointer| {
            let (check, key) = match (name, pointer) {
                (Some(key), None) => ("every name has a parent pointer", key),
                (None, Some(key)) if all_names => ("every parent pointer has a name", key),
                _ => return,
            };
            let found = format!("{:?} in inode {}, generation {}", String::from_utf8_lossy(&key.2), key.0, key.1);
            let place = context.inode_address(inode);
            let fault = Fault::new("parent pointer", check, Consequence::Parents).inode(inode).found(found);
            context.report(match place {
                Some(address) => fault.at(address),
                None => fault,
            });
        });
    }
}
