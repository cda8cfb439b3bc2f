//! XFS's own ioctls about the whole filesystem, of xfs_io and xfs_info.
//!
//! | ioctl | answer |
//! |---|---|
//! | `XFS_IOC_FSGEOMETRY`, `_V4`, `_V1` | sizes and features |
//! | `XFS_IOC_FSCOUNTS` | free blocks and inodes |
//!
//! Source of facts: `fs/xfs/libxfs/xfs_fs.h`, `xfs_fs_geometry` in `fs/xfs/libxfs/xfs_sb.c` of Linux 6.18.

use crate::ops::Volume;
use xfskit_ondisk::RawSuperblock;
use xfskit_ondisk::features::{Features2, Incompat, RoCompat, VersionFlags};

const GEOMETRY: u32 = 0x8100_587e;
const GEOMETRY_V4: u32 = 0x8070_587c;
const GEOMETRY_V1: u32 = 0x8070_5864;
const COUNTS: u32 = 0x8020_5871;

/// Sizes of the kernel's structures.
const GEOMETRY_BYTES: usize = 256;
const OLD_GEOMETRY_BYTES: usize = 112;
/// Place of the features in it.
const FLAGS_AT: usize = 92;

/// The answer to one of these.
pub(super) fn ioctl(fs: &Volume, command: u32) -> Option<Vec<u8>> {
    Some(match command {
        GEOMETRY => geometry(fs, 5, GEOMETRY_BYTES),
        GEOMETRY_V4 => geometry(fs, 0, OLD_GEOMETRY_BYTES),
        GEOMETRY_V1 => {
            // It knows no log with a stripe unit: neither the bit nor the last word.
            let mut bytes = geometry(fs, 0, OLD_GEOMETRY_BYTES);
            bytes[FLAGS_AT + 1] &= !1;
            bytes[OLD_GEOMETRY_BYTES - 4..].fill(0);
            bytes
        }
        COUNTS => {
            let space = fs.statfs();
            let raw = fs.superblock();
            let words = [space.free_blocks, 0, raw.free_inodes.get(), raw.inode_count.get()];
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }
        _ => return None,
    })
}

/// The kernel's `xfs_fsop_geom` in its first `length` bytes.
fn geometry(fs: &Volume, version: u32, length: usize) -> Vec<u8> {
    let raw = fs.superblock();
    let block_bytes = raw.block_size.get();
    let log_sector_bytes = if raw.log_sector_size.get() > 0 { raw.log_sector_size } else { raw.sector_size };
    let mut bytes = Vec::with_capacity(GEOMETRY_BYTES);
    let mut put = |words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    put(&[block_bytes, raw.rt_extent_blocks.get(), raw.ag_blocks.get(), raw.ag_count.get(), raw.log_blocks.get()]);
    put(&[raw.sector_size.get().into(), raw.inode_size.get().into(), raw.inode_max_percent.into()]);
    let large = [raw.data_blocks, raw.rt_blocks, raw.rt_extents, raw.log_start];
    bytes.extend(large.iter().flat_map(|word| word.get().to_ne_bytes()));
    bytes.extend(raw.uuid);
    let mut put = |words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    put(&[raw.stripe_unit.get(), raw.stripe_width.get(), version, features(&raw), log_sector_bytes.get().into()]);
    // The sectors of a realtime section are blocks; the log's stripe unit is at least a byte.
    put(&[block_bytes, block_bytes << raw.dir_block_log, raw.log_stripe_unit.get().max(1)]);
    bytes.resize(length, 0);
    bytes
}

/// The features, each with its bit here.
fn features(raw: &RawSuperblock) -> u32 {
    let version = VersionFlags::from_bits_truncate(raw.version.get());
    let more = Features2::from_bits_truncate(raw.features2.get());
    let (ro_compat, incompat) = (raw.ro_compat.get(), raw.incompat.get());
    let (ro_compat, incompat) = (RoCompat::from_bits_truncate(ro_compat), Incompat::from_bits_truncate(incompat));
    // Link counts of 32 bits, marks of unwritten extents, directories and superblocks of the newest version.
    let always = [1, 6, 7, 15].map(|bit| (true, bit));
    let some = [
        (version.contains(VersionFlags::ATTR), 0),
        (version.contains(VersionFlags::QUOTA), 2),
        (version.contains(VersionFlags::ALIGN), 3),
        (version.contains(VersionFlags::DALIGN), 4),
        (version.contains(VersionFlags::LOGV2), 8),
        (version.contains(VersionFlags::SECTOR), 9),
        (more.contains(Features2::ATTR2), 10),
        (more.contains(Features2::PROJID32), 11),
        (more.contains(Features2::LAZYSBCOUNT), 14),
        (incompat.contains(Incompat::FTYPE), 16),
        (ro_compat.contains(RoCompat::FINOBT), 17),
        (incompat.contains(Incompat::SPINODES), 18),
        (ro_compat.contains(RoCompat::RMAPBT), 19),
        (ro_compat.contains(RoCompat::REFLINK), 20),
        (incompat.contains(Incompat::BIGTIME), 21),
        (ro_compat.contains(RoCompat::INOBTCNT), 22),
        (incompat.contains(Incompat::NREXT64), 23),
        (incompat.contains(Incompat::EXCHRANGE), 24),
        (incompat.contains(Incompat::PARENT), 25),
    ];
    always.into_iter().chain(some).filter(|(has, _)| *has).fold(0, |all, (_, bit)| all | 1 << bit)
}
