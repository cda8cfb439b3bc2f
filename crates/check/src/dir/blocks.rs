//! Directories in blocks of their own: data blocks with the names, and their indexes.

use super::Name;
use super::index::{self, Data};
use super::view::View;
use crate::context::Context;
use crate::fork::{InodeView, Map};
use crate::report::Consequence;
use std::collections::HashSet;
use xfskit_ondisk::da::hash_name;
use xfskit_ondisk::dir::data::{DATA_HEADER_BYTES, block_index, data_header, entries, verify_block, verify_data};
use xfskit_ondisk::dir::{DirLayout, entry_bytes};
use xfskit_ondisk::{DiskAddress, FileBlock, InodeNumber};

/// Checks the blocks and calls `take` for each name; returns whether all could be read.
pub(super) fn walk(context: &Context<'_>, inode: &InodeView<'_>, map: &Map, take: &mut dyn FnMut(&Name<'_>)) -> bool {
    let view = View { context, inode, map, layout: DirLayout::new(&context.geometry) };
    let index_root = view.layout.index_root();
    let end = map.end_below(index_root.0) << context.geometry.block_log;
    if end != inode.core.size {
        let found = format!("{} instead of {end}", inode.core.size);
        inode.fault(context, "size of a directory is where its data ends", found, Consequence::Names);
    }
    let whole = if map.block(index_root).is_none() { walk_one_block(&view, take) } else { walk_data(&view, take) };
    whole && inode.core.size == end
}

fn walk_one_block(view: &View<'_, '_>, take: &mut dyn FnMut(&Name<'_>)) -> bool {
    const NAME: &str = "directory block";
    if view.inode.core.size != view.layout.block_bytes() as u64 {
        let found = format!("{} bytes", view.inode.core.size);
        view.fault("directory", view.inode.address, "only one block needs no index", found);
        return false;
    }
    let blocks = view.map.blocks_in(0..u64::MAX);
    if blocks != u64::from(view.layout.fs_blocks()) {
        view.fault("directory", view.inode.address, "nothing is mapped but its block", format!("{blocks} blocks"));
    }
    let Some((address, bytes)) = view.block(FileBlock(0), NAME, verify_block) else { return false };
    let mut data = Data::default();
    take_names(view, NAME, 0, address, &bytes, &mut data, take);
    // The verifier found every entry in the index, but only counted the index. This compares index entries with
    // entries.
    let live = block_index(&bytes).iter().filter(|entry| !entry.is_stale());
    let index = live.map(|entry| Data::key(entry.hash.get(), entry.pointer.get())).collect();
    index::compare(view, &mut data, index);
    find_duplicates(view, &data);
    true
}

fn walk_data(view: &View<'_, '_>, take: &mut dyn FnMut(&Name<'_>)) -> bool {
    const NAME: &str = "directory data block";
    let mut data = Data::default();
    let mut whole = true;
    for at in view.mapped(0..view.layout.index_root().0) {
        let number = (at.0 / u64::from(view.layout.fs_blocks())) as u32;
        match view.block(at, NAME, verify_data) {
            Some((address, bytes)) => {
                data.bests.push((number, data_header(&bytes).best_free[0].length.get()));
                take_names(view, NAME, number, address, &bytes, &mut data, take);
            }
            None => whole = false,
        }
    }
    if !whole {
        return false;
    }
    let index_whole = index::check(view, &mut data);
    if index_whole {
        find_duplicates(view, &data);
    }
    true
}

fn take_names(
    view: &View<'_, '_>,
    structure: &'static str,
    number: u32,
    address: DiskAddress,
    bytes: &[u8],
    data: &mut Data,
    take: &mut dyn FnMut(&Name<'_>),
) {
    let places = [(&b"."[..], DATA_HEADER_BYTES), (b"..", DATA_HEADER_BYTES + entry_bytes(1))];
    if number == 0 {
        for (name, offset) in places {
            if !entries(bytes).any(|entry| entry.offset == offset && entry.name == name) {
                let found = String::from_utf8_lossy(name).into_owned();
                view.fault(structure, address, "the dots come first", found);
            }
        }
    }
    for entry in entries(bytes) {
        data.entries.push(Data::key(hash_name(entry.name), view.layout.pointer(number, entry.offset)));
        let place = places.iter().find(|place| place.0 == entry.name);
        if place.is_some_and(|&(_, offset)| number != 0 || offset != entry.offset) {
            view.fault(structure, address, "the dots have one entry each", format!("at {}", entry.offset));
            continue;
        }
        let target = InodeNumber(entry.inode);
        take(&Name { name: entry.name, target, file_type: entry.file_type, address });
    }
}

/// Looks for names that a directory has twice, among the names whose hashes repeat. The entries are sorted.
fn find_duplicates(view: &View<'_, '_>, data: &Data) {
    let same = |pair: &&[u64]| pair[0] >> 32 == pair[1] >> 32;
    let hashes: HashSet<u32> = data.entries.windows(2).filter(same).map(|pair| (pair[0] >> 32) as u32).collect();
    if hashes.is_empty() {
        return;
    }
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    for at in view.mapped(0..view.layout.index_root().0) {
        let blocks = view.layout.fs_blocks();
        let read = view.map.read(view.context, at, blocks, "directory data block", view.inode.owner());
        let Some((address, bytes)) = read else { return };
        for entry in entries(&bytes).filter(|entry| hashes.contains(&hash_name(entry.name))) {
            if !seen.insert(entry.name.to_vec()) {
                view.fault("directory", address, "names are unique", entry.name.escape_ascii().to_string());
            }
        }
    }
}
