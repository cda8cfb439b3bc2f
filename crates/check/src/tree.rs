//! A walk over a whole btree, of any of the seven kinds.
//!
//! Every block is read once, from left to right, and verified, and compared with its parent (level, lowest key, highest
//! key where records overlap) and its neighbour (siblings, order of keys). A block that fails is reported and not
//! entered, so that damaged pointers lead neither in circles nor twice to the same block.

use crate::context::Context;
use crate::report::{Consequence, Fault, Owner};
use xfskit_ondisk::btree::{BlockView, TreeFormat, verify_block};
use xfskit_ondisk::{AgBlock, AgNumber, Corruption, DiskAddress, FsBlock, checksum_matches};

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeStart {
    /// The AG of the tree; not used for the tree of a file.
    pub(crate) ag: AgNumber,
    /// The owner of the tree.
    pub(crate) owner: Owner,
    /// What a damaged block means.
    pub(crate) consequence: Consequence,
    /// The tree was walked before, and its faults were reported then.
    pub(crate) quiet: bool,
}

/// What a parent says of its child.
pub(crate) struct Child<K> {
    /// Address of the parent.
    pub(crate) from: DiskAddress,
    pub(crate) pointer: u64,
    pub(crate) level: u32,
    pub(crate) low: Option<K>,
    pub(crate) high: Option<K>,
}

struct Neighbour<K> {
    block: u64,
    right: Option<u64>,
    last_key: Option<K>,
}

/// A walk over one tree.
pub(crate) struct TreeWalk<'a, F: TreeFormat> {
    context: &'a Context<'a>,
    place: TreeStart,
    /// The last block of each level.
    neighbours: Vec<Option<Neighbour<F::Key>>>,
    buffers: Vec<Vec<u8>>,
    /// Every block of the tree, by its pointer.
    pub(crate) blocks: Vec<u64>,
    /// No block was left out.
    pub(crate) whole: bool,
}

impl<'a, F: TreeFormat> TreeWalk<'a, F> {
    pub(crate) fn new(context: &'a Context<'a>, place: TreeStart) -> Self {
        Self { context, place, neighbours: Vec::new(), buffers: Vec::new(), blocks: Vec::new(), whole: true }
    }

    /// Walks over the tree below its root block, and calls `leaf` for each leaf.
    pub(crate) fn walk(
        &mut self,
        from: DiskAddress,
        root: u64,
        levels: u32,
        leaf: &mut dyn FnMut(BlockView<'_, F>, DiskAddress),
    ) {
        self.visit(&Child { from, pointer: root, level: levels - 1, low: None, high: None }, true, leaf);
        self.finish();
    }

    fn fault(&mut self, address: DiskAddress, check: &'static str, found: impl core::fmt::Display) {
        self.whole = false;
        let fault = Fault::new(F::NAME, check, self.place.consequence);
        self.report(fault.at(address).owned(self.place.owner).found(found));
    }

    fn report(&self, fault: Fault) {
        if !self.place.quiet {
            self.context.report(fault);
        }
    }

    fn address_of(&self, pointer: u64) -> Option<DiskAddress> {
        let geometry = &self.context.geometry;
        if F::LONG {
            return geometry.fs_block_address(FsBlock(pointer));
        }
        let block = AgBlock(u32::try_from(pointer).ok()?);
        (block.0 != 0 && geometry.contains(self.place.ag, block)).then(|| geometry.address(self.place.ag, block))
    }

    /// Checks the block that `child` names and everything below it.
    pub(crate) fn visit(
        &mut self,
        child: &Child<F::Key>,
        is_root: bool,
        leaf: &mut dyn FnMut(BlockView<'_, F>, DiskAddress),
    ) {
        let Some(address) = self.address_of(child.pointer) else {
            self.whole = false;
            let fault = Fault::new(F::NAME, "pointer leads into the device", self.place.consequence);
            self.report(fault.at(child.from).owned(self.place.owner).found(format_args!("block {:#x}", child.pointer)));
            return;
        };
        let mut bytes = self.buffers.pop().unwrap_or_default();
        bytes.resize(self.context.geometry.block_bytes(), 0);
        if !self.context.read(address, &mut bytes, F::NAME, self.place.owner) {
            self.whole = false;
        } else if self.block_is_sound(child, is_root, address, &bytes) {
            self.blocks.push(child.pointer);
            let view = BlockView::<F>::new(&bytes);
            if child.level == 0 {
                leaf(view, address);
            } else {
                for index in 0..view.count() {
                    let below = Child {
                        from: address,
                        pointer: view.pointer(index),
                        level: child.level - 1,
                        low: Some(view.key(index)),
                        high: F::OVERLAPPING.then(|| view.high_key(index)),
                    };
                    self.visit(&below, false, leaf);
                }
            }
        }
        self.buffers.push(bytes);
    }

    fn block_is_sound(&mut self, child: &Child<F::Key>, is_root: bool, address: DiskAddress, bytes: &[u8]) -> bool {
        let context = self.context;
        let verdict = if checksum_matches(bytes, F::CRC_OFFSET) {
            verify_block::<F>(&context.geometry, address, bytes)
        } else {
            Err(Corruption::new(F::NAME, "checksum"))
        };
        if let Err(corruption) = verdict {
            self.whole = false;
            let fault = Fault::of(&corruption.at(address), self.place.owner, self.place.consequence);
            self.report(fault);
            return false;
        }
        let lsn = u64::from_be_bytes(bytes[F::LSN_OFFSET..F::LSN_OFFSET + 8].try_into().expect("eight bytes"));
        if !self.place.quiet {
            context.check_lsn(lsn, F::NAME, address, self.place.owner);
        }
        let view = BlockView::<F>::new(bytes);
        if let Owner::Inode(inode) = self.place.owner
            && F::LONG
            && view.owner() != inode.0
        {
            self.fault(address, "owner", format_args!("inode {}", view.owner()));
            return false;
        }
        if u32::from(view.level()) != child.level {
            self.fault(address, "level", format_args!("{} instead of {}", view.level(), child.level));
            return false;
        }
        if view.count() == 0 && !is_root {
            self.fault(address, "only the root may be empty", "no records");
        }
        self.fits_neighbour(child, address, view) && self.fits_parent(child, address, view)
    }

    /// Compares a block with the one to its left on its level.
    fn fits_neighbour(&mut self, child: &Child<F::Key>, address: DiskAddress, view: BlockView<'_, F>) -> bool {
        let level = child.level as usize;
        while self.neighbours.len() <= level {
            self.neighbours.push(None);
        }
        let bounds = view.bounds();
        let last_key = bounds.map(|_| view.key(view.count() - 1));
        let new = Neighbour { block: child.pointer, right: view.right(), last_key };
        let old = self.neighbours[level].replace(new);
        // After a fault a block may be missing, so neighbours are no longer compared.
        if !self.whole {
            return true;
        }
        let (block, right, key) = match &old {
            Some(old) => (Some(old.block), old.right, old.last_key),
            None => (None, Some(child.pointer), None),
        };
        if view.left() != block || right != Some(child.pointer) {
            let found =
                format_args!("left is {:?} instead of {block:?}, which has {right:?} to its right", view.left())
                    .to_string();
            self.fault(address, "siblings", found);
            return false;
        }
        if let (Some(before), Some((first, _))) = (key, bounds)
            && before >= first
        {
            self.fault(address, "keys ascend from block to block", format_args!("{before:?}, {first:?}"));
        }
        true
    }

    fn fits_parent(&mut self, child: &Child<F::Key>, address: DiskAddress, view: BlockView<'_, F>) -> bool {
        let Some((low, high)) = view.bounds() else { return true };
        if let Some(key) = child.low
            && key != low
        {
            self.fault(address, "lowest key is the parent's", format_args!("{low:?} instead of {key:?}"));
        }
        if let Some(key) = child.high
            && key != high
        {
            self.fault(address, "highest key is the parent's", format_args!("{high:?} instead of {key:?}"));
        }
        true
    }

    /// Checks, after the last block, that no level has another block to the right.
    pub(crate) fn finish(&mut self) {
        if !self.whole {
            return;
        }
        for level in 0..self.neighbours.len() {
            if let Some(Neighbour { block, right: Some(right), .. }) = self.neighbours[level] {
                let address = self.address_of(block).expect("the block was read");
                self.fault(address, "siblings", format_args!("the last block of its level has {right} to its right"));
            }
        }
    }
}
