//! Ioctls about the whole filesystem, of fstrim, xfs_io and xfs_info.
//!
//! | ioctl | who may | answer |
//! |---|---|---|
//! | `FITRIM` | root, the server's user (1) | the bytes that were given back |
//! | `FS_IOC_GETFSLABEL` | all | the label |
//! | `FS_IOC_SETFSLABEL` | root, the server's user (1) | – |
//! | `FS_IOC_GETVERSION` | all | the generation of the file, 32 bits as XFS answers it |
//! | `XFS_IOC_FSGEOMETRY`, `_V4`, `_V1` | all | sizes and features |
//! | `XFS_IOC_FSCOUNTS` | all | free blocks and inodes |
//!
//! (1) In the kernel it takes `CAP_SYS_ADMIN`, which the server cannot ask for.
//!
//! The kernel copies as many bytes as the number of an ioctl says, and less where the answer is shorter. Source of
//! facts: `include/uapi/linux/fs.h`, `fs/xfs/libxfs/xfs_fs.h`, `xfs_fs_geometry` in `fs/xfs/libxfs/xfs_sb.c` of Linux
//! 6.18.

use crate::virtual_xattrs::is_owner;
use xfskit_engine::{Error, Result, TrimBy, Volume};
use xfskit_fuse_session::Requester;
use xfskit_ondisk::features::{Features2, Incompat, RoCompat, VersionFlags};
use xfskit_ondisk::{InodeNumber, RawSuperblock};

const FITRIM: u32 = 0xc018_5879;
const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const GET_VERSION: u32 = 0x8008_7601;
const GEOMETRY: u32 = 0x8100_587e;
const GEOMETRY_V4: u32 = 0x8070_587c;
const GEOMETRY_V1: u32 = 0x8070_5864;
const COUNTS: u32 = 0x8020_5871;

/// Sizes of the kernel's structures.
const LABEL_BYTES: usize = 256;
const GEOMETRY_BYTES: usize = 256;
const OLD_GEOMETRY_BYTES: usize = 112;
/// Place of the features in it.
const FLAGS_AT: usize = 92;

/// Whether an ioctl is one of these.
pub(crate) fn is_known(command: u32) -> bool {
    matches!(command, FITRIM | GET_LABEL | SET_LABEL | GET_VERSION | GEOMETRY | GEOMETRY_V4 | GEOMETRY_V1 | COUNTS)
}

/// Whether one of these waits for the device.
pub(crate) fn may_wait(command: u32) -> bool {
    matches!(command, FITRIM | SET_LABEL)
}

/// Carries out one of these and returns its reply.
///
/// # Errors
/// `NotPermitted`; `Invalid`; those of [`Volume::trim_within`], [`Volume::set_label`] and [`Volume::stat`].
pub(crate) fn ioctl(
    fs: &Volume,
    inode: InodeNumber,
    (command, data): (u32, &[u8]),
    requester: &Requester,
) -> Result<Vec<u8>> {
    if matches!(command, FITRIM | SET_LABEL) && !is_owner(requester.uid) {
        return Err(Error::NotPermitted);
    }
    match command {
        FITRIM => trim(fs, data),
        GET_LABEL => {
            let mut label = fs.label();
            label.resize(LABEL_BYTES, 0);
            Ok(label)
        }
        SET_LABEL => {
            let label = data.split(|byte| *byte == 0).next().unwrap_or_default();
            fs.set_label(label).map(|()| Vec::new())
        }
        GET_VERSION => Ok(fs.stat(inode)?.generation.to_ne_bytes().to_vec()),
        GEOMETRY => Ok(geometry(fs, 5, GEOMETRY_BYTES)),
        GEOMETRY_V4 => Ok(geometry(fs, 0, OLD_GEOMETRY_BYTES)),
        GEOMETRY_V1 => {
            // It knows no log with a stripe unit: neither the bit nor the last word.
            let mut bytes = geometry(fs, 0, OLD_GEOMETRY_BYTES);
            bytes[FLAGS_AT + 1] &= !1;
            bytes[OLD_GEOMETRY_BYTES - 4..].fill(0);
            Ok(bytes)
        }
        COUNTS => {
            let space = fs.statfs();
            let raw = fs.superblock();
            let words = [space.free_blocks, 0, raw.free_inodes.get(), raw.inode_count.get()];
            Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
        }
        _ => Err(Error::NotSupported("this ioctl")),
    }
}

/// Start, length and the least length of what is given back, in bytes; the answer has what was given back as its
/// length.
fn trim(fs: &Volume, data: &[u8]) -> Result<Vec<u8>> {
    let word = |at: usize| {
        let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_ne_bytes).ok_or(Error::Invalid("the request is too short"))
    };
    let (start, length, least) = (word(0)?, word(8)?, word(16)?);
    let trimmed = fs.trim_within(start..start.saturating_add(length), least, TrimBy::Discard)?;
    Ok([start, trimmed.bytes, least].iter().flat_map(|word| word.to_ne_bytes()).collect())
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
