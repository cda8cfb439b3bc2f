//! The indexes of a directory in leaf or node form: hashes to entries, and data blocks to their largest unused space.

use super::view::View;
use crate::da::{DaForm, DaWalk};
use crate::join::join;
use crate::report::Consequence;
use xfskit_ondisk::da::{DA_CRC_OFFSET, DaInfo, da_magic};
use xfskit_ondisk::dir::NO_DATA_BLOCK;
use xfskit_ondisk::dir::free::{free_header, free_values, verify_free};
use xfskit_ondisk::dir::leaf::{DIR_LEAF1_MAGIC, leaf_bests, leaf_entries, verify_leaf1, verify_leafn};
use xfskit_ondisk::{DiskAddress, checksum_matches};

/// What the data blocks contain.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Hash and data pointer of every entry.
    pub(super) entries: Vec<u64>,
    /// Number and largest unused length of every data block, in order.
    pub(super) bests: Vec<(u32, u16)>,
}

impl Data {
    pub(super) fn key(hash: u32, pointer: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(pointer)
    }

    /// The largest unused length of a data block, which the indexes must have.
    fn best(&self, number: u32) -> u16 {
        let place = self.bests.binary_search_by_key(&number, |best| best.0);
        place.map_or(NO_DATA_BLOCK, |place| self.bests[place].1)
    }
}

/// Compares entries with a hash index. Afterwards the entries are sorted.
pub(super) fn compare(view: &View<'_, '_>, data: &mut Data, mut index: Vec<u64>) {
    data.entries.sort_unstable();
    index.sort_unstable();
    join(
        &data.entries,
        &index,
        |&key| key,
        |entry, place| {
            let (check, key) = match (entry, place) {
                (Some(key), None) => ("every entry is in it", key),
                (None, Some(key)) => ("has only entries that exist", key),
                _ => return,
            };
            let (block, offset) = view.layout.split_pointer(*key as u32);
            let found = format!("hash {:#x}, data block {block} at {offset}", key >> 32);
            view.fault("directory index", view.inode.address, check, found);
        },
    );
}

/// Checks the indexes of a directory whose data blocks are all known; returns whether the hash index could be read.
pub(super) fn check(view: &View<'_, '_>, data: &mut Data) -> bool {
    let root = view.layout.index_root();
    let blocks = view.layout.fs_blocks();
    let owner = view.inode.owner();
    let Some((address, bytes)) = view.map.read(view.context, root, blocks, "directory leaf block", owner) else {
        view.fault(
            "directory leaf block",
            view.inode.address,
            "every part of a block is mapped",
            format!("fork block {root}"),
        );
        return false;
    };
    if da_magic(&bytes) == DIR_LEAF1_MAGIC { check_leaf(view, data, address, &bytes) } else { check_node(view, data) }
}

fn check_leaf(view: &View<'_, '_>, data: &mut Data, address: DiskAddress, bytes: &[u8]) -> bool {
    const NAME: &str = "directory leaf block";
    if !checksum_matches(bytes, DA_CRC_OFFSET) {
        view.fault(NAME, address, "checksum", String::new());
        return false;
    }
    if let Err(corruption) = verify_leaf1(&view.context.geometry, address, bytes) {
        view.fault(NAME, address, corruption.check, corruption.found.clone());
        return false;
    }
    let info = DaInfo::of(bytes);
    view.context.check_lsn(info.lsn.get(), NAME, address, view.inode.owner());
    if info.owner.get() != view.inode.number.0 {
        view.fault(NAME, address, "owner", format!("inode {}", info.owner));
        return false;
    }
    if info.next.get() != 0 || info.previous.get() != 0 {
        view.fault(NAME, address, "siblings", format!("{} and {}", info.previous, info.next));
    }
    let rest = view.map.blocks_in(view.layout.index_root().0 + u64::from(view.layout.fs_blocks())..u64::MAX);
    if rest != 0 {
        view.fault(NAME, address, "nothing is mapped behind it", format!("{rest} blocks"));
    }
    let bests = leaf_bests(bytes);
    let count = view.inode.core.size >> view.layout.block_log;
    if bests.len() as u64 != count {
        view.fault(NAME, address, "number of data blocks", format!("{} instead of {count}", bests.len()));
    }
    for (number, best) in bests.iter().enumerate() {
        check_best(view, NAME, address, data, number as u32, best.get());
    }
    let live = leaf_entries(bytes).iter().filter(|entry| !entry.is_stale());
    let index = live.map(|entry| Data::key(entry.hash.get(), entry.pointer.get())).collect();
    compare(view, data, index);
    true
}

fn check_best(view: &View<'_, '_>, name: &'static str, address: DiskAddress, data: &Data, number: u32, best: u16) {
    let expected = data.best(number);
    if best != expected {
        let found = format!("data block {number}: {best} instead of {expected}");
        view.fault(name, address, "largest unused length of a data block", found);
    }
}

const FORM: DaForm = DaForm {
    root: xfskit_ondisk::FileBlock(0),
    blocks: 1,
    name: "directory leafn block",
    verify_leaf: verify_leafn,
    first_hash: |bytes| leaf_entries(bytes).first().map(|entry| entry.hash.get()),
    consequence: Consequence::Names,
};

fn check_node(view: &View<'_, '_>, data: &mut Data) -> bool {
    let (root, free_start) = (view.layout.index_root(), view.layout.free_start());
    let form = DaForm { root, blocks: view.layout.fs_blocks(), ..FORM };
    let mut index = Vec::with_capacity(data.entries.len());
    let mut tree = DaWalk::new(view.context, view.inode, view.map, form);
    tree.walk(&mut |bytes, _| {
        let live = leaf_entries(bytes).iter().filter(|entry| !entry.is_stale());
        index.extend(live.map(|entry| Data::key(entry.hash.get(), entry.pointer.get())));
    });
    let (whole, blocks) = (tree.whole, tree.blocks);
    check_free_index(view, data);
    if !whole {
        return false;
    }
    let mapped = view.map.blocks_in(root.0..free_start.0);
    if mapped != blocks {
        let found = format!("{mapped} mapped, {blocks} of the tree");
        view.fault("directory", view.inode.address, "every index block is in the tree", found);
    }
    compare(view, data, index);
    true
}

fn check_free_index(view: &View<'_, '_>, data: &Data) {
    const NAME: &str = "directory free index block";
    let start = view.layout.free_start().0;
    let capacity = view.layout.free_capacity() as u32;
    let mut known = 0;
    for at in view.mapped(start..u64::MAX) {
        let Some((address, bytes)) = view.block(at, NAME, verify_free) else { return };
        let header = free_header(&bytes);
        let number = ((at.0 - start) / u64::from(view.layout.fs_blocks())) as u32;
        if header.first.get() != number.saturating_mul(capacity) {
            view.fault(NAME, address, "first data block", format!("{} in block {number}", header.first));
            return;
        }
        for (index, value) in free_values(&bytes).iter().enumerate() {
            check_best(view, NAME, address, data, header.first.get() + index as u32, value.get());
        }
        let range = header.first.get()..header.first.get() + header.count.get();
        known += data.bests.iter().filter(|best| range.contains(&best.0)).count();
    }
    if known != data.bests.len() {
        let found = format!("{} of {} data blocks", known, data.bests.len());
        view.fault("directory", view.inode.address, "the free index has every data block", found);
    }
}
