//! Directories: names, and the indexes by which they are found.
//!
//! Every name is compared with the inode that it leads to, which must exist, be in use, and have the type that the name
//! says. The name is counted there, and added to the balance from which parent pointers are subtracted
//! ([`crate::table`]).

mod blocks;
mod index;
mod shortform;
mod view;

use crate::context::Context;
use crate::fork::{Fork, InodeView, Map, read_map};
use crate::report::{Consequence, Fault};
use crate::table::{Kind, name_hash};
use std::sync::atomic::{AtomicU64, Ordering};
use xfskit_ondisk::dir::{FileType, is_valid_name};
use xfskit_ondisk::{DiskAddress, ForkFormat, InodeCore, InodeNumber};

/// What the check records of a directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) inode: InodeNumber,
    /// Its `..`; 0 where that is not known.
    pub(crate) dotdot: AtomicU64,
    /// The directory that has a name for it; 0 if none has.
    pub(crate) named_by: AtomicU64,
}

/// All directories, by inode number.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    pub(crate) list: Vec<Directory>,
}

impl Directories {
    pub(crate) fn new(mut inodes: Vec<InodeNumber>) -> Self {
        inodes.sort_unstable();
        let directory = |inode| Directory { inode, dotdot: AtomicU64::new(0), named_by: AtomicU64::new(0) };
        Self { list: inodes.into_iter().map(directory).collect() }
    }

    pub(crate) fn index(&self, inode: InodeNumber) -> Option<usize> {
        self.list.binary_search_by_key(&inode, |directory| directory.inode).ok()
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) target: InodeNumber,
    pub(crate) file_type: FileType,
    /// Address of the block or inode that contains it.
    pub(crate) address: DiskAddress,
}

/// Reads an inode and calls `work` with it; `None` where it cannot be read.
pub(crate) fn with_inode<T>(
    context: &Context<'_>,
    number: InodeNumber,
    work: impl FnOnce(&InodeView<'_>) -> T,
) -> Option<T> {
    let address = context.inode_address(number)?;
    let geometry = &context.geometry;
    // Inodes may be smaller than a sector.
    let (_, within) = geometry.split_inode(number)?;
    let skip = geometry.inode_offset_in_block(within) & 511;
    let mut bytes = vec![0; (skip + geometry.inode_bytes()).next_multiple_of(512)];
    if !context.read(address, &mut bytes, "inode", crate::report::Owner::Inode(number)) {
        return None;
    }
    let bytes = &bytes[skip..skip + geometry.inode_bytes()];
    let core = InodeCore::decode(geometry, number, bytes).ok()?;
    Some(work(&InodeView { number, address, core: &core, bytes, again: true }))
}

/// Reads the map of a fork again, after its faults were reported.
pub(crate) fn map_of(context: &Context<'_>, inode: &InodeView<'_>, fork: Fork) -> Option<Map> {
    let mut map = Map::default();
    let mut blocks = 0;
    let figures = read_map(context, inode, fork, &mut Vec::new(), &mut |extent| {
        blocks += extent.count;
        map.extents.push(*extent);
    });
    (figures.whole && blocks <= context.geometry.data_blocks).then_some(map)
}

/// Walks over all names of a directory, `.` and `..` included, and checks its form; returns whether all could be read.
pub(crate) fn walk(context: &Context<'_>, inode: &InodeView<'_>, take: &mut dyn FnMut(&Name<'_>)) -> bool {
    if inode.core.data_format == ForkFormat::Local {
        return shortform::walk(context, inode, take);
    }
    map_of(context, inode, Fork::Data).is_some_and(|map| blocks::walk(context, inode, &map, take))
}

/// Checks a directory. Returns the number of its names.
pub(crate) fn check(context: &Context<'_>, directories: &Directories, index: usize) -> u64 {
    let own = &directories.list[index];
    let mut count = 0;
    let whole = with_inode(context, own.inode, |inode| {
        walk(context, inode, &mut |name| {
            if !matches!(name.name, b"." | b"..") {
                count += 1;
            }
            check_name(context, directories, own, inode, name);
        })
    });
    if whole != Some(true) {
        context.names_unknown();
    }
    count
}

fn check_name(context: &Context<'_>, directories: &Directories, own: &Directory, dir: &InodeView<'_>, name: &Name<'_>) {
    let fault = |check, found: String| {
        let fault = Fault::new("directory entry", check, Consequence::Name).at(name.address).inode(dir.number);
        let fault = fault.leading_to(name.target);
        context.report(fault.found(format_args!("{:?}: {found}", String::from_utf8_lossy(name.name))));
    };
    let dots = matches!(name.name, b"." | b"..");
    if !is_valid_name(name.name) {
        fault("names have neither slashes nor zero bytes", String::new());
    }
    let slot = context.inodes.find(&context.geometry, name.target);
    let Some(slot) = slot.filter(|slot| slot.kind() != Kind::Free) else {
        // A chunk that could not be read may contain it.
        if slot.is_some() || context.owners_known.load(Ordering::Relaxed) {
            fault("leads to an inode in use", format!("inode {}", name.target));
        }
        return;
    };
    let kind = slot.kind();
    if let Kind::Used(file_type) = kind
        && file_type != name.file_type
        && !(file_type == FileType::CharDevice && name.file_type == FileType::Whiteout)
    {
        fault("type of the inode", format!("{:?}, inode {} is {file_type:?}", name.file_type, name.target));
    }
    // A removed directory still has `.` and `..`, but its names are not counted.
    if dir.core.links == 0 {
        if !dots {
            fault("a removed directory is empty", format!("inode {}", name.target));
        }
        return;
    }
    slot.add_name();
    match name.name {
        b"." if name.target != dir.number => fault("leads to the directory itself", format!("inode {}", name.target)),
        b"." => {}
        b".." => own.dotdot.store(name.target.0, Ordering::Relaxed),
        _ => check_child(context, directories, dir, name, &fault),
    }
    if !dots && context.geometry.has_parent() {
        slot.add_to_balance(name_hash(dir.number, dir.core.generation, name.target, name.name));
    }
}

fn check_child(
    context: &Context<'_>,
    directories: &Directories,
    dir: &InodeView<'_>,
    name: &Name<'_>,
    fault: &dyn Fn(&'static str, String),
) {
    if let Some(special) = context.special_inodes().find(|special| special.number == name.target && special.is_used) {
        fault(
            "does not lead to the filesystem's own files",
            format!("inode {} is the {}", special.number, special.name),
        );
    }
    if name.target == context.geometry.root_inode {
        return fault("does not lead to the root", format!("inode {}", name.target));
    }
    let Some(child) = directories.index(name.target).map(|index| &directories.list[index]) else { return };
    let first = child.named_by.compare_exchange(0, dir.number.0, Ordering::Relaxed, Ordering::Relaxed);
    if let Err(other) = first {
        fault("a directory has one name", format!("inode {} has another one in inode {other}", name.target));
    }
}
