//! A directory with blocks of its own, as the checks of its blocks and indexes see it.

use crate::context::Context;
use crate::fork::{InodeView, Map};
use crate::report::{Consequence, Fault};
use xfskit_ondisk::da::prefix;
use xfskit_ondisk::dir::{DIR_CRC_OFFSET, DirBlockHeader, DirLayout};
use xfskit_ondisk::{DiskAddress, FileBlock, Geometry, Verdict, checksum_matches};

/// A directory in blocks, while it is checked.
#[derive(Clone, Copy)]
pub(super) struct View<'a, 'd> {
    pub(super) context: &'a Context<'d>,
    pub(super) inode: &'a InodeView<'a>,
    pub(super) map: &'a Map,
    pub(super) layout: DirLayout,
}

impl View<'_, '_> {
    pub(super) fn fault(&self, name: &'static str, address: DiskAddress, check: &'static str, found: String) {
        let fault = Fault::new(name, check, Consequence::Names).at(address).owned(self.inode.owner());
        self.context.report(fault.found(found));
    }

    /// Reads and verifies a data or free index block.
    pub(super) fn block(
        &self,
        at: FileBlock,
        name: &'static str,
        verify: fn(&Geometry, DiskAddress, &[u8]) -> Verdict,
    ) -> Option<(DiskAddress, Vec<u8>)> {
        let blocks = self.layout.fs_blocks();
        let Some((address, bytes)) = self.map.read(self.context, at, blocks, name, self.inode.owner()) else {
            self.fault(name, self.inode.address, "every part of a block is mapped", format!("fork block {at}"));
            return None;
        };
        if !checksum_matches(&bytes, DIR_CRC_OFFSET) {
            self.fault(name, address, "checksum", String::new());
            return None;
        }
        if let Err(corruption) = verify(&self.context.geometry, address, &bytes) {
            self.fault(corruption.structure, address, corruption.check, corruption.found.clone());
            return None;
        }
        let header: &DirBlockHeader = prefix(&bytes);
        self.context.check_lsn(header.lsn.get(), name, address, self.inode.owner());
        if header.owner.get() != self.inode.number.0 {
            self.fault(name, address, "owner", format!("inode {}", header.owner));
            return None;
        }
        Some((address, bytes))
    }

    /// Directory blocks that are mapped, wholly or in part, in a range of the fork.
    pub(super) fn mapped(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = FileBlock> {
        let unit = u64::from(self.layout.fs_blocks());
        let mut next = range.start;
        let first = self.map.extents.partition_point(|extent| extent.end().0 <= range.start);
        self.map.extents[first..].iter().take_while(move |extent| extent.file_block.0 < range.end).flat_map(
            move |extent| {
                let start = (extent.file_block.0 / unit * unit).max(next);
                next = extent.end().0.min(range.end).next_multiple_of(unit).max(next);
                (start..next).step_by(unit as usize).map(FileBlock)
            },
        )
    }
}
