//! A walk over the hash btree that directories and attributes share.
//!
//! As with other btrees, every block is read once, from left to right, and compared with its parent (level, greatest
//! hash) and its left neighbour (siblings, order of hashes).

use crate::context::Context;
use crate::fork::{InodeView, Map};
use crate::report::{Consequence, Fault};
use xfskit_ondisk::da::{
    DA_CRC_OFFSET, DA_NODE_MAGIC, DaInfo, DaNodeHeader, da_magic, last_hash, node_entries, prefix, verify_node,
};
use xfskit_ondisk::{DiskAddress, FileBlock, Geometry, Verdict, checksum_matches};

/// A stateless verifier.
type VerifyFn = fn(&Geometry, DiskAddress, &[u8]) -> Verdict;

/// A kind of hash tree: where it lies, and how its leaves are checked.
#[derive(Clone, Copy)]
pub(crate) struct DaForm {
    /// Fork block of the root.
    pub(crate) root: FileBlock,
    /// Filesystem blocks of a block of the tree.
    pub(crate) blocks: u32,
    pub(crate) name: &'static str,
    pub(crate) verify_leaf: VerifyFn,
    /// The smallest hash of a verified leaf that is not empty.
    pub(crate) first_hash: fn(&[u8]) -> Option<u32>,
    pub(crate) consequence: Consequence,
}

struct Neighbour {
    block: u32,
    next: u32,
    last_hash: u32,
}

/// A walk over one tree.
pub(crate) struct DaWalk<'a, 'd> {
    context: &'a Context<'d>,
    inode: &'a InodeView<'a>,
    map: &'a Map,
    form: DaForm,
    neighbours: Vec<Option<Neighbour>>,
    /// Blocks of the tree, in filesystem blocks.
    pub(crate) blocks: u64,
    pub(crate) whole: bool,
}

impl<'a, 'd> DaWalk<'a, 'd> {
    pub(crate) fn new(context: &'a Context<'d>, inode: &'a InodeView<'a>, map: &'a Map, form: DaForm) -> Self {
        Self { context, inode, map, form, neighbours: Vec::new(), blocks: 0, whole: true }
    }

    fn fault(&mut self, name: &'static str, address: DiskAddress, check: &'static str, found: String) {
        self.whole = false;
        let fault = Fault::new(name, check, self.form.consequence).at(address).owned(self.inode.owner());
        self.context.report(fault.found(found));
    }

    /// Walks over the tree and calls `leaf` for each leaf.
    pub(crate) fn walk(&mut self, leaf: &mut dyn FnMut(&[u8], DiskAddress)) {
        self.visit(self.form.root.0 as u32, None, None, leaf);
        if !self.whole {
            return;
        }
        for neighbour in std::mem::take(&mut self.neighbours).into_iter().flatten().filter(|last| last.next != 0) {
            let found = format!("the last block of its level, {}, has {} behind it", neighbour.block, neighbour.next);
            self.fault(self.form.name, self.inode.address, "siblings", found);
        }
    }

    fn visit(&mut self, block: u32, level: Option<u16>, hash: Option<u32>, leaf: &mut dyn FnMut(&[u8], DiskAddress)) {
        let (name, at) = (self.form.name, FileBlock(block.into()));
        if at < self.form.root {
            return self.fault(
                "da node",
                self.inode.address,
                "children lie in the tree's space",
                format!("block {block}"),
            );
        }
        let Some((address, bytes)) = self.map.read(self.context, at, self.form.blocks, name, self.inode.owner()) else {
            return self.fault(
                name,
                self.inode.address,
                "every block of the tree is mapped",
                format!("fork block {block}"),
            );
        };
        let is_node = da_magic(&bytes) == DA_NODE_MAGIC && level != Some(0);
        let (name, verify): (_, VerifyFn) =
            if is_node { ("da node", verify_node) } else { (name, self.form.verify_leaf) };
        if !checksum_matches(&bytes, DA_CRC_OFFSET) {
            return self.fault(name, address, "checksum", String::new());
        }
        if let Err(corruption) = verify(&self.context.geometry, address, &bytes) {
            return self.fault(corruption.structure, address, corruption.check, corruption.found.clone());
        }
        let info = DaInfo::of(&bytes);
        self.context.check_lsn(info.lsn.get(), name, address, self.inode.owner());
        if info.owner.get() != self.inode.number.0 {
            return self.fault(name, address, "owner", format!("inode {}", info.owner));
        }
        let own_level = if is_node { prefix::<DaNodeHeader>(&bytes).level.get() } else { 0 };
        if level.is_some_and(|level| level != own_level) {
            return self.fault(name, address, "level", format!("{own_level} instead of {level:?}"));
        }
        if !self.fits_neighbour(name, block, own_level, address, &bytes) {
            return;
        }
        if let Some(hash) = hash
            && hash != last_hash(&bytes)
        {
            self.fault(name, address, "greatest hash is the parent's", format!("{:#x}, {hash:#x}", last_hash(&bytes)));
        }
        self.blocks += u64::from(self.form.blocks);
        if !is_node {
            return leaf(&bytes, address);
        }
        for entry in node_entries(&bytes) {
            self.visit(entry.child.get(), Some(own_level - 1), Some(entry.hash.get()), leaf);
        }
    }

    fn fits_neighbour(
        &mut self,
        name: &'static str,
        block: u32,
        level: u16,
        address: DiskAddress,
        bytes: &[u8],
    ) -> bool {
        let info = DaInfo::of(bytes);
        let level = usize::from(level);
        while self.neighbours.len() <= level {
            self.neighbours.push(None);
        }
        let new = Neighbour { block, next: info.next.get(), last_hash: last_hash(bytes) };
        let old = self.neighbours[level].replace(new);
        // After a fault a block may be missing, so neighbours are no longer compared.
        if !self.whole {
            return true;
        }
        let (before, next) = old.as_ref().map_or((0, block), |old| (old.block, old.next));
        if info.previous.get() != before || next != block {
            let found = format!("{} is before it instead of {before}, which has {next} behind it", info.previous);
            self.fault(name, address, "siblings", found);
            return false;
        }
        let first = if level == 0 {
            (self.form.first_hash)(bytes)
        } else {
            node_entries(bytes).first().map(|entry| entry.hash.get())
        };
        if let (Some(old), Some(first)) = (old, first)
            && old.last_hash > first
        {
            self.fault(name, address, "hashes ascend from block to block", format!("{:#x}, {first:#x}", old.last_hash));
        }
        true
    }
}
