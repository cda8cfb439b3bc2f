//! The superblock's fields that its decoder does not check, the copies in the other AGs, and the counters.

use crate::context::Context;
use crate::report::{Consequence, Fault, Owner};
use std::mem::offset_of;
use xfskit_ondisk::features::{Incompat, VersionFlags};
use xfskit_ondisk::superblock::{RawSuperblock, SUPERBLOCK_CRC_OFFSET, SUPERBLOCK_MAGIC};
use xfskit_ondisk::{AgNumber, DiskAddress, checksum_matches};
use zerocopy::{FromBytes, IntoBytes};

const NAME: &str = "superblock";
const COPY_NAME: &str = "secondary superblock";

/// Fields that never change, or that change in all copies together: name, offset, size.
macro_rules! fields {
    ($($field:ident),+ $(,)?) => {
        &[$((stringify!($field), offset_of!(RawSuperblock, $field), size_of_field(|raw| &raw.$field))),+]
    };
}

const fn size_of_field<T>(_: fn(&RawSuperblock) -> &T) -> usize {
    size_of::<T>()
}

const COPIED: &[(&str, usize, usize)] = fields![
    magic,
    block_size,
    data_blocks,
    rt_blocks,
    rt_extents,
    uuid,
    log_start,
    rt_extent_blocks,
    ag_blocks,
    ag_count,
    rt_bitmap_blocks,
    log_blocks,
    sector_size,
    inode_size,
    inodes_per_block,
    block_log,
    sector_log,
    inode_log,
    inodes_per_block_log,
    ag_blocks_log,
    rt_extents_log,
    shared_version,
    inode_alignment,
    dir_block_log,
    log_sector_log,
    log_sector_size,
    log_stripe_unit,
    ro_compat,
    sparse_inode_alignment,
];

/// Flags that every superblock of version 5 has, whatever its features.
const VERSION_FLAGS_OF_ALL: VersionFlags = VersionFlags::NLINK
    .union(VersionFlags::LOGV2)
    .union(VersionFlags::EXTFLAG)
    .union(VersionFlags::DIRV2)
    .union(VersionFlags::MOREBITS);
/// Bits that are set in the first superblock alone, when an image is used.
const VERSION_FLAGS_OF_USE: u16 = VersionFlags::ATTR.bits() | VersionFlags::QUOTA.bits();
/// Quota flags that only version 4 has, where groups and projects share one file.
const QUOTA_FLAGS_OF_VERSION_4: u16 = 0x10 | 0x20;
const MAX_INODE_PERCENT: u8 = 100;

/// Checks rules for the first superblock and for each copy that the decoder does not check.
fn check_any(raw: &RawSuperblock, sector: &[u8], fault: &dyn Fn(&'static str, String)) {
    let flags = raw.version.get();
    if !VersionFlags::from_bits_truncate(flags).contains(VERSION_FLAGS_OF_ALL) {
        fault("version flags of version 5", format!("{flags:#x}"));
    }
    let aligned = flags & VersionFlags::DALIGN.bits() != 0;
    let (unit, width) = (raw.stripe_unit.get(), raw.stripe_width.get());
    if (unit != 0) != aligned || (width != 0) != aligned {
        fault("stripe unit, width and their flag", format!("{unit}, {width}, {aligned}"));
    }
    if raw.inode_alignment.get() != 0 && flags & VersionFlags::ALIGN.bits() == 0 {
        fault("alignment of inodes and its flag", format!("{} and {flags:#x}", raw.inode_alignment));
    }
    if raw.inode_max_percent > MAX_INODE_PERCENT {
        fault("share of inodes in percent", raw.inode_max_percent.to_string());
    }
    if raw.flags != 0 {
        fault("no flags", format!("{:#x}", raw.flags));
    }
    if raw.quota_flags.get() & QUOTA_FLAGS_OF_VERSION_4 != 0 {
        fault("no quota flags of version 4", format!("{:#x}", raw.quota_flags));
    }
    if raw.rt_extents.get() != 0 || raw.free_rt_extents.get() != 0 || raw.rt_bitmap_blocks.get() != 0 {
        let found = format!("{}, {} free, {} blocks", raw.rt_extents, raw.free_rt_extents, raw.rt_bitmap_blocks);
        fault("no realtime extents without a realtime section", found);
    }
    let has_meta_uuid = Incompat::from_bits_retain(raw.incompat.get()).contains(Incompat::META_UUID);
    if !has_meta_uuid && raw.meta_uuid != [0; 16] {
        fault("no UUID of metadata without its feature", String::new());
    }
    if sector[size_of::<RawSuperblock>()..].iter().any(|&byte| byte != 0) {
        fault("the rest of the sector is zero", String::new());
    }
}

/// Checks rules for the first superblock that its decoder does not check.
pub(crate) fn check_primary(context: &Context<'_>) {
    let raw = context.superblock.raw();
    let fault = |check, found: String| {
        context.report(Fault::new(NAME, check, Consequence::Image).at(DiskAddress(0)).found(found));
    };
    if raw.bad_features2 != raw.features2 && raw.bad_features2.get() != 0 {
        fault("both copies of the second feature word", format!("{:#x}, {:#x}", raw.features2, raw.bad_features2));
    }
    if raw.shared_version != 0 {
        fault("no shared version", raw.shared_version.to_string());
    }
    if raw.free_inodes > raw.inode_count {
        fault("free inodes exist", format!("{} of {}", raw.free_inodes, raw.inode_count));
    }
    let root = raw.root_inode.get();
    if raw.rt_bitmap_inode.get() != root + 1 || raw.rt_summary_inode.get() != root + 2 {
        let found = format!("{root}, {}, {}", raw.rt_bitmap_inode, raw.rt_summary_inode);
        fault("the realtime inodes follow the root inode", found);
    }
    let mut sector = vec![0; context.geometry.sector_bytes()];
    if context.read(DiskAddress(0), &mut sector, NAME, Owner::Ag(AgNumber(0))) {
        check_any(raw, &sector, &fault);
    }
    context.check_lsn(raw.lsn.get(), NAME, DiskAddress(0), Owner::Ag(AgNumber(0)));
}

/// Checks the copy in an AG.
pub(crate) fn check_copy(context: &Context<'_>, ag: AgNumber) {
    let geometry = &context.geometry;
    let address = geometry.ag_header(ag, 0);
    let mut sector = vec![0; geometry.sector_bytes()];
    if !context.read(address, &mut sector, COPY_NAME, Owner::Ag(ag)) {
        return;
    }
    let fault = |check, found: String| {
        context.report(Fault::new(COPY_NAME, check, Consequence::Copy).at(address).ag(ag).found(found));
    };
    let Ok((copy, _)) = RawSuperblock::read_from_prefix(&sector) else { return };
    if copy.magic.get() != SUPERBLOCK_MAGIC {
        return fault("magic number", format!("{:#010x}", copy.magic));
    }
    if !checksum_matches(&sector, SUPERBLOCK_CRC_OFFSET) {
        return fault("checksum", String::new());
    }
    check_any(&copy, &sector, &fault);
    let primary = context.superblock.raw();
    let (ours, theirs) = (primary.as_bytes(), copy.as_bytes());
    for &(name, offset, size) in COPIED {
        if ours[offset..offset + size] != theirs[offset..offset + size] {
            let found = format!(
                "{name} is {:02x?} instead of {:02x?}",
                &theirs[offset..offset + size],
                &ours[offset..offset + size]
            );
            fault("agrees with the first superblock", found);
        }
    }
    let version = |raw: &RawSuperblock| raw.version.get() & !VERSION_FLAGS_OF_USE;
    if version(primary) != version(&copy) || primary.features2 != copy.features2 {
        let found = format!("version is {:#x}, the second feature word {:#x}", copy.version, copy.features2);
        fault("agrees with the first superblock", found);
    }
    // A log feature is announced in the first superblock alone, and taken back when the log is clean.
    if copy.log_incompat.get() != 0 && copy.log_incompat != primary.log_incompat {
        fault("agrees with the first superblock", format!("the log's features are {:#x}", copy.log_incompat));
    }
    // Repair marks the first superblock only.
    let bits = |raw: &RawSuperblock| Incompat::from_bits_retain(raw.incompat.get()).difference(Incompat::NEEDSREPAIR);
    if bits(primary) != bits(&copy) {
        fault("agrees with the first superblock", format!("incompat is {:#x}", copy.incompat));
    }
    if bits(primary).contains(Incompat::META_UUID) && primary.meta_uuid != copy.meta_uuid {
        fault("agrees with the first superblock", "meta_uuid differs".into());
    }
}

/// Notes if attributes were found but the superblock does not announce them. Only the kernel's scrub complains about
/// this, so it is no fault; the next change of an inode with attributes sets the bit.
pub(crate) fn check_attr_bit(context: &Context<'_>, attributes: u64) {
    let announced = context.superblock.raw().version.get() & VersionFlags::ATTR.bits() != 0;
    if attributes > 0 && !announced {
        context.faults.note("the superblock does not say that there are attributes; the kernel's scrub minds".into());
    }
}

/// The counters of the superblock, added up over the AGs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) free_blocks: u64,
}

/// Compares the counters, which are right on disk only while the log is clean.
pub(crate) fn check_counters(context: &Context<'_>, counted: Counters) {
    if !context.log.is_some_and(|log| log.clean) {
        return;
    }
    let raw = context.superblock.raw();
    for (check, stored, counted) in [
        ("number of inodes", raw.inode_count.get(), counted.inodes),
        ("number of free inodes", raw.free_inodes.get(), counted.free_inodes),
        ("number of free blocks", raw.free_blocks.get(), counted.free_blocks),
    ] {
        if stored != counted {
            let fault = Fault::new(NAME, check, Consequence::Count).at(DiskAddress(0));
            context.report(fault.found(format_args!("{stored} instead of {counted}")));
        }
    }
}
