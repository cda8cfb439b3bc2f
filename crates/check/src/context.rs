//! What all passes share: the device, the geometry, the table of inodes, and the faults found.

use crate::log::LogView;
use crate::report::{Consequence, Fault, Faults, Owner};
use crate::table::InodeTable;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xfskit_device::BlockDevice;
use xfskit_ondisk::superblock::{QUOTA_OF_GROUPS, QUOTA_OF_PROJECTS, QUOTA_OF_USERS};
use xfskit_ondisk::{DiskAddress, FsBlock, Geometry, InodeNumber, Limits, Lsn, Superblock};

/// All passes together may read this many blocks for each block of the image, which is enough for a sound image.
/// Reading of maps that lead to the same blocks over and over ends there.
const READS_PER_BLOCK: u64 = 8;

/// What all passes share.
pub(crate) struct Context<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) superblock: &'a Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) limits: Limits,
    pub(crate) log: Option<LogView>,
    pub(crate) faults: Faults,
    pub(crate) inodes: InodeTable,
    /// Every owner of every block is known: all inode trees, inodes and extent maps could be read.
    pub(crate) owners_known: AtomicBool,
    /// Every name is known: all directories could be read.
    pub(crate) names_known: AtomicBool,
    /// Blocks that may still be read.
    budget: AtomicU64,
}

/// An inode that the superblock names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpecialInode {
    pub(crate) name: &'static str,
    pub(crate) number: InodeNumber,
    /// Whether a mount reads it; quota inodes are not used while quotas are off.
    pub(crate) is_used: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        device: &'a dyn BlockDevice,
        superblock: &'a Superblock,
        log: Option<LogView>,
        faults: Faults,
    ) -> Self {
        let geometry = Geometry::new(superblock);
        Self {
            device,
            superblock,
            limits: Limits::new(&geometry),
            budget: AtomicU64::new(geometry.data_blocks.saturating_mul(READS_PER_BLOCK)),
            inodes: InodeTable::default(),
            owners_known: AtomicBool::new(true),
            names_known: AtomicBool::new(true),
            geometry,
            log,
            faults,
        }
    }

    pub(crate) fn report(&self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Fills `buffer` from `address`. If that fails, reports a fault and returns false.
    pub(crate) fn read(&self, address: DiskAddress, buffer: &mut [u8], name: &'static str, owner: Owner) -> bool {
        let blocks = (buffer.len() as u64).div_ceil(self.geometry.block_bytes() as u64);
        let left = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(blocks));
        if left.is_err() {
            let fault = Fault::new(name, "blocks are read a few times at most", Consequence::SharedSpace);
            self.report(
                fault.at(address).owned(owner).found("so many structures share blocks that reading stops here"),
            );
            return false;
        }
        match self.device.read(address.bytes(), buffer) {
            Ok(()) => true,
            Err(error) => {
                let fault = Fault::new(name, "can be read from the device", Consequence::Image);
                self.report(fault.at(address).owned(owner).found(error));
                false
            }
        }
    }

    /// Checks that a structure's LSN is not beyond the end of the journal.
    pub(crate) fn check_lsn(&self, lsn: u64, name: &'static str, address: DiskAddress, owner: Owner) {
        let Some(log) = self.log else { return };
        // Remote values, and structures that mkfs made, have no LSN.
        if lsn != 0 && lsn != u64::MAX && Lsn(lsn) > log.newest {
            let found = format_args!(
                "{}:{} and the journal ends at {}:{}",
                Lsn(lsn).cycle(),
                Lsn(lsn).block(),
                log.newest.cycle(),
                log.newest.block()
            )
            .to_string();
            let fault = Fault::new(name, "not newer than the journal", Consequence::Recovery);
            self.report(fault.at(address).owned(owner).found(found));
        }
    }

    pub(crate) fn owners_unknown(&self) {
        self.owners_known.store(false, Ordering::Relaxed);
    }

    pub(crate) fn names_unknown(&self) {
        self.names_known.store(false, Ordering::Relaxed);
    }

    pub(crate) fn address_of(&self, block: FsBlock) -> Option<DiskAddress> {
        self.geometry.fs_block_address(block)
    }

    /// The disk address of an inode.
    pub(crate) fn inode_address(&self, inode: InodeNumber) -> Option<DiskAddress> {
        let (ag, within) = self.geometry.split_inode(inode)?;
        let block = self.geometry.address(ag, self.geometry.inode_block(within));
        Some(DiskAddress(block.0 + (self.geometry.inode_offset_in_block(within) >> 9) as u64))
    }

    /// Inodes that the superblock names instead of a directory.
    pub(crate) fn special_inodes(&self) -> impl Iterator<Item = SpecialInode> + use<'_> {
        let raw = self.superblock.raw();
        let quota = |name, number: u64, accounted: u16| (name, number, raw.quota_flags.get() & accounted != 0);
        [
            ("realtime bitmap inode", raw.rt_bitmap_inode.get(), true),
            ("realtime summary inode", raw.rt_summary_inode.get(), true),
            quota("user quota inode", raw.user_quota_inode.get(), QUOTA_OF_USERS),
            quota("group quota inode", raw.group_quota_inode.get(), QUOTA_OF_GROUPS),
            quota("project quota inode", raw.project_quota_inode.get(), QUOTA_OF_PROJECTS),
        ]
        .into_iter()
        .filter(|&(_, inode, _)| inode != 0 && inode != u64::MAX)
        .map(|(name, inode, is_used)| SpecialInode { name, number: InodeNumber(inode), is_used })
    }
}
