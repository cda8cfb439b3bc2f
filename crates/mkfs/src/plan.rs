//! From options and device sizes to the superblock of the image: everything is computed here, and nothing is written.

use crate::MakeError;
use crate::ag_layout::{Ags, min_data_bytes};
use crate::log_size::{Log, LogRoom};
use crate::options::{Autofsck, LogLocation, Options};
use crate::sizes::Sizes;
use xfskit_ondisk::features::{Features2, Incompat, RoCompat, VersionFlags};
use xfskit_ondisk::new_ag::TreeRoots;
use xfskit_ondisk::superblock::{RawSuperblock, SUPERBLOCK_CRC_OFFSET, SUPERBLOCK_MAGIC};
use xfskit_ondisk::{Geometry, INODES_PER_CHUNK, Superblock, set_checksum};
use zerocopy::{FromZeros, IntoBytes};

/// Inodes that are in use from the start: the root directory, the realtime bitmap and the realtime summary.
pub(crate) const FIRST_INODES: u32 = 3;
const DEFAULT_MAX_PERCENT: u8 = 25;

/// All numbers of a new image.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The superblock, without its counters of free space.
    pub superblock: RawSuperblock,
    pub geometry: Geometry,
    pub roots: TreeRoots,
    pub log: Log,
    pub autofsck: Option<Autofsck>,
}

/// The devices for the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    pub data_bytes: u64,
    pub data_sector: usize,
    pub log_bytes: Option<u64>,
}

impl Plan {
    pub(crate) fn new(options: &Options, devices: Devices) -> Result<Self, MakeError> {
        match (options.log_place, devices.log_bytes) {
            (LogLocation::External, None) => return Err(MakeError::conflict("-l logdev", "no log device was opened")),
            (LogLocation::External, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(MakeError::conflict("-l logdev", "a log device needs this option")),
        }
        let sizes = Sizes::new(options, devices.data_sector)?;
        let ags = Ags::new(options, &sizes, data_blocks(options, &sizes, devices.data_bytes)?)?;
        let autofsck = match options.autofsck {
            Some(value) => Some(value),
            None => (options.rmapbt && options.parent).then_some(Autofsck::Repair),
        };
        let mut superblock = describe(options, &sizes, &ags, autofsck.is_some())?;
        // The size of the log follows from the geometry, so the geometry is first computed with a provisional log.
        superblock.log_blocks.set(1 << 20 >> 10);
        let draft = geometry(&mut superblock)?;
        let roots = TreeRoots::new(&draft);
        let room = LogRoom {
            options,
            sizes: &sizes,
            ags: &ags,
            geometry: &draft,
            reserved: roots.end.into(),
            external: devices.log_bytes,
        };
        let log = room.choose()?;
        superblock.log_blocks.set(log.blocks as u32);
        superblock.log_start.set(log.start.map_or(0, |(ag, block)| ag << draft.ag_block_bits | block));
        let geometry = geometry(&mut superblock)?;
        Ok(Self { superblock, geometry, roots, log, autofsck })
    }
}

fn data_blocks(options: &Options, sizes: &Sizes, device_bytes: u64) -> Result<u64, MakeError> {
    let room = device_bytes / sizes.block;
    let blocks = match options.data_size {
        Some(size) => sizes.blocks("-d size", size)?,
        None => room,
    };
    if blocks > room {
        return Err(MakeError::value("-d size", format!("{blocks}b"), format!("the device has {room} blocks")));
    }
    if blocks < min_data_bytes(options) / sizes.block {
        let mib = min_data_bytes(options) >> 20;
        let hint = if options.allow_small {
            ""
        } else {
            "; smaller ones are for those who ask: mkfs --small, mkfs.xfs --unsupported, MkfsOptions::small"
        };
        return Err(MakeError::Size(format!("the image would be too small: it needs at least {mib} MiB{hint}")));
    }
    Ok(blocks)
}

/// The geometry of a superblock whose counters are not known yet.
fn geometry(superblock: &mut RawSuperblock) -> Result<Geometry, MakeError> {
    Ok(Geometry::new(&Superblock::decode(&encode(superblock))?))
}

/// The sector of a superblock.
pub(crate) fn encode(superblock: &RawSuperblock) -> Vec<u8> {
    let mut sector = vec![0; superblock.sector_size.get().into()];
    sector[..size_of::<RawSuperblock>()].copy_from_slice(superblock.as_bytes());
    set_checksum(&mut sector, SUPERBLOCK_CRC_OFFSET);
    sector
}

/// The superblock without log, counters and inodes, but with a provisional root inode.
fn describe(options: &Options, sizes: &Sizes, ags: &Ags, has_attr: bool) -> Result<RawSuperblock, MakeError> {
    let mut raw = RawSuperblock::new_zeroed();
    let log = |size: u64| size.trailing_zeros() as u8;
    raw.magic.set(SUPERBLOCK_MAGIC);
    raw.block_size.set(sizes.block as u32);
    raw.block_log = log(sizes.block);
    raw.sector_size.set(sizes.sector as u16);
    raw.sector_log = log(sizes.sector);
    raw.inode_size.set(sizes.inode as u16);
    raw.inode_log = log(sizes.inode);
    raw.inodes_per_block.set((sizes.block / sizes.inode) as u16);
    raw.inodes_per_block_log = raw.block_log - raw.inode_log;
    raw.dir_block_log = log(sizes.dir_block) - raw.block_log;
    raw.data_blocks.set(ags.data_blocks);
    raw.ag_blocks.set(ags.blocks as u32);
    raw.ag_blocks_log = ags.blocks.next_power_of_two().trailing_zeros() as u8;
    raw.ag_count.set(ags.count as u32);
    // Without a realtime section no file uses a realtime extent, but the superblock records its size: at least 4 KiB.
    let extent_bytes = sizes.block.max(4096);
    let asked = options.realtime_extent.map(|size| size.bytes(sizes.block, sizes.sector));
    if asked.is_some_and(|bytes| bytes != Some(extent_bytes)) {
        return Err(MakeError::Unsupported { option: "-r extsize".into(), what: "realtime sections" });
    }
    raw.rt_extent_blocks.set((extent_bytes / sizes.block) as u32);
    raw.root_inode.set(INODES_PER_CHUNK.into());
    raw.inode_max_percent = inode_max_percent(options, sizes, ags);
    raw.stripe_unit.set(sizes.stripe_unit as u32);
    raw.stripe_width.set(sizes.stripe_width as u32);
    raw.log_stripe_unit.set(if sizes.log_stripe_unit == 0 { 1 } else { (sizes.log_stripe_unit * sizes.block) as u32 });
    raw.uuid = options.uuid.unwrap_or_default();
    if options.label.len() > raw.label.len() {
        return Err(MakeError::value("-L", &options.label, "a label has at most 12 bytes"));
    }
    raw.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    set_inode_alignment(&mut raw, options, sizes);
    set_features(&mut raw, options, sizes, has_attr)?;
    Ok(raw)
}

fn inode_max_percent(options: &Options, sizes: &Sizes, ags: &Ags) -> u8 {
    let tib_blocks = (1 << 40) / sizes.block;
    match options.inode_max_percent {
        Some(percent) => percent,
        _ if ags.data_blocks < tib_blocks => DEFAULT_MAX_PERCENT,
        _ if ags.data_blocks < 50 * tib_blocks => 5,
        _ => 1,
    }
}

/// Chunks are aligned to the inode cluster, 8 KiB for inodes of 256 bytes. With sparse inodes, whole chunks are aligned
/// to their own size and their parts are aligned to the cluster.
fn set_inode_alignment(raw: &mut RawSuperblock, options: &Options, sizes: &Sizes) {
    let cluster = 8192 * (sizes.inode / 256) / sizes.block;
    raw.inode_alignment.set(cluster as u32);
    if options.sparse_inodes {
        raw.sparse_inode_alignment.set(cluster as u32);
        raw.inode_alignment.set((u64::from(INODES_PER_CHUNK) * sizes.inode / sizes.block) as u32);
    }
}

fn set_features(raw: &mut RawSuperblock, options: &Options, sizes: &Sizes, has_attr: bool) -> Result<(), MakeError> {
    let mut version = VersionFlags::NLINK
        | VersionFlags::EXTFLAG
        | VersionFlags::DIRV2
        | VersionFlags::ALIGN
        | VersionFlags::LOGV2
        | VersionFlags::MOREBITS;
    version.set(VersionFlags::ATTR, has_attr || options.parent);
    version.set(VersionFlags::DALIGN, sizes.stripe_unit != 0);
    if sizes.sector > 512 || sizes.log_sector > 512 {
        version |= VersionFlags::SECTOR;
        raw.log_sector_size.set(sizes.log_sector as u16);
        raw.log_sector_log = sizes.log_sector.trailing_zeros() as u8;
    }
    raw.version.set(version.bits() | 5);
    let features2 = Features2::LAZYSBCOUNT | Features2::ATTR2 | Features2::PROJID32 | Features2::CRC;
    raw.features2.set(features2.bits());
    raw.bad_features2.set(features2.bits());

    let inobt_counts = options.inobt_counts.unwrap_or(options.finobt);
    if inobt_counts && !options.finobt {
        return Err(MakeError::conflict("-m inobtcount", "it needs finobt"));
    }
    let mut ro_compat = RoCompat::empty();
    ro_compat.set(RoCompat::FINOBT, options.finobt);
    ro_compat.set(RoCompat::RMAPBT, options.rmapbt);
    ro_compat.set(RoCompat::REFLINK, options.reflink);
    ro_compat.set(RoCompat::INOBTCNT, inobt_counts);
    raw.ro_compat.set(ro_compat.bits());
    let mut incompat = Incompat::FTYPE;
    incompat.set(Incompat::SPINODES, options.sparse_inodes);
    incompat.set(Incompat::BIGTIME, options.bigtime);
    incompat.set(Incompat::NREXT64, options.large_extent_counts);
    incompat.set(Incompat::EXCHRANGE, options.exchange_range);
    incompat.set(Incompat::PARENT, options.parent);
    raw.incompat.set(incompat.bits());
    Ok(())
}
