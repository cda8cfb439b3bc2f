//! The superblock: the first sector of every AG; the one of AG 0 counts, the others are copies for repair.
//!
//! ```text
//!   0 magic "XFSB"   4 block size      8 data blocks    32 uuid            48 log start
//!  56 root inode   84 AG blocks       88 AG count      100 version        108 label
//! 128 inode and free space counters  208 feature words 224 checksum       248 metadata uuid
//! ```
//! Two types: [`RawSuperblock`] is the sector as it lies on disk; [`Superblock`] is one whose numbers agree with
//! each other, so that the arithmetic of [`Geometry`](crate::Geometry) cannot overflow or divide by zero.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Superblocks"; the kernel's `struct xfs_dsb`.

use crate::features::{
    Features2, Incompat, LogIncompat, RoCompat, SUPPORTED_INCOMPAT, SUPPORTED_RO_COMPAT, VersionFlags,
};
use crate::{Corruption, DiskAddress, InodeNumber, Verdict, checksum_matches, ensure};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `"XFSB"`.
pub const SUPERBLOCK_MAGIC: u32 = 0x5846_5342;
/// Where the checksum of a superblock stands.
pub const SUPERBLOCK_CRC_OFFSET: usize = 224;

/// Most AGs: 1 EiB in AGs of the greatest size. Memory is allocated for each AG, so a small file that claims to be a
/// huge image must not choose their number.
const MAX_AGS: u32 = 1 << 20;

/// The superblock as it lies on disk, not yet verified (the kernel's `struct xfs_dsb`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct RawSuperblock {
    pub magic: U32,
    pub block_size: U32,
    pub data_blocks: U64,
    pub rt_blocks: U64,
    pub rt_extents: U64,
    pub uuid: [u8; 16],
    pub log_start: U64,
    pub root_inode: U64,
    pub rt_bitmap_inode: U64,
    pub rt_summary_inode: U64,
    pub rt_extent_blocks: U32,
    pub ag_blocks: U32,
    pub ag_count: U32,
    pub rt_bitmap_blocks: U32,
    pub log_blocks: U32,
    pub version: U16,
    pub sector_size: U16,
    pub inode_size: U16,
    pub inodes_per_block: U16,
    pub label: [u8; 12],
    pub block_log: u8,
    pub sector_log: u8,
    pub inode_log: u8,
    pub inodes_per_block_log: u8,
    pub ag_blocks_log: u8,
    pub rt_extents_log: u8,
    pub in_progress: u8,
    pub inode_max_percent: u8,
    pub inode_count: U64,
    pub free_inodes: U64,
    pub free_blocks: U64,
    pub free_rt_extents: U64,
    pub user_quota_inode: U64,
    pub group_quota_inode: U64,
    pub quota_flags: U16,
    pub flags: u8,
    pub shared_version: u8,
    pub inode_alignment: U32,
    pub stripe_unit: U32,
    pub stripe_width: U32,
    pub dir_block_log: u8,
    pub log_sector_log: u8,
    pub log_sector_size: U16,
    pub log_stripe_unit: U32,
    pub features2: U32,
    pub bad_features2: U32,
    pub compat: U32,
    pub ro_compat: U32,
    pub incompat: U32,
    pub log_incompat: U32,
    pub crc: [u8; 4],
    pub sparse_inode_alignment: U32,
    pub project_quota_inode: U64,
    pub lsn: U64,
    pub meta_uuid: [u8; 16],
    pub metadir_inode: U64,
    pub rt_group_count: U32,
    pub rt_group_extents: U32,
    pub rt_group_blocks_log: u8,
    pub pad: [u8; 7],
    pub rt_start: U64,
    pub rt_reserved: U64,
}

/// Why a superblock cannot be used although nothing is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// A version before 5, which has no checksums.
    #[error(
        "XFS version {0} is not supported: xfskit works on version 5 (made by mkfs.xfs with -m crc=1, its \
         default since 2015)"
    )]
    Version(u16),
    /// A feature that xfskit refuses by name.
    #[error("the feature {0} is not supported by xfskit; see docs/compatibility.md")]
    Feature(&'static str),
    /// Feature bits that have no name yet.
    #[error("the superblock has unknown {word} feature bits {bits:#x}: this image needs a newer xfskit")]
    UnknownBits {
        /// Which feature word.
        word: &'static str,
        /// The unknown bits.
        bits: u32,
    },
    /// A feature that a reader may ignore but a writer may not.
    #[error(
        "the superblock has unknown read-only compatible feature bits {0:#x}: the image can only be opened read-only"
    )]
    ReadOnly(u32),
    /// More AGs than memory should be spent on.
    #[error("the image has {0} AGs; xfskit works with up to {MAX_AGS}")]
    TooManyAgs(u32),
    /// A log item of an unknown type.
    #[error(
        "the journal holds items of the unknown type {0:#06x}: a newer kernel wrote it; mount the image there once, \
         or look at it without what only the journal holds (norecovery)"
    )]
    LogItem(u16),
    /// Repair was begun and not finished.
    #[error("the image is marked as needing repair: run xfs_repair on it first")]
    NeedsRepair,
    /// mkfs or growfs was interrupted.
    #[error("mkfs was cut off here, and the image is not complete (sb_inprogress is set): make it again")]
    InProgress,
}

/// What has other bytes than those of XFS at its beginning.
fn other_than_xfs(found: u32) -> String {
    let disk = match &found.to_be_bytes() {
        b"QFI\xfb" => "qcow2",
        b"KDMV" => "vmdk",
        b"vhdx" => "vhdx",
        b"cone" => "vhd",
        b"<<< " => "vdi",
        _ => {
            return format!("its first four bytes are {found:#010x} instead of {SUPERBLOCK_MAGIC:#010x} (\"XFSB\")");
        }
    };
    format!(
        "it is a virtual disk ({disk}), which has the image in it: open that by the crate xfskit-disk or the command \
         xfskit, or convert it (qemu-img convert -O raw)"
    )
}

/// Why a superblock is refused.
#[derive(Debug, thiserror::Error)]
pub enum SuperblockError {
    /// Not an XFS image at all.
    #[error("this is not an XFS image: {}", other_than_xfs(*found))]
    NotXfs {
        /// The first four bytes.
        found: u32,
    },
    /// Too short to begin with a superblock.
    #[error("this is not an XFS image, or all but its start is gone: it has {bytes} bytes")]
    TooShort {
        /// Bytes that there are.
        bytes: usize,
    },
    /// Damaged.
    #[error(transparent)]
    Corrupt(#[from] Box<Corruption>),
    /// Beyond what xfskit does.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// As the floor above all filesystems has it.
impl From<Unsupported> for xfskit_vfs::Error {
    fn from(error: Unsupported) -> Self {
        Self::Unsupported(error.to_string())
    }
}

/// As the floor above all filesystems has it.
impl From<SuperblockError> for xfskit_vfs::Error {
    fn from(error: SuperblockError) -> Self {
        use xfskit_vfs::SuperblockFault;
        let fault = match error {
            SuperblockError::NotXfs { .. } | SuperblockError::TooShort { .. } => SuperblockFault::OtherFormat,
            SuperblockError::Corrupt(_) => SuperblockFault::Damaged,
            SuperblockError::Unsupported(_) => SuperblockFault::Unsupported,
        };
        Self::Superblock { fault, why: error.to_string() }
    }
}

/// A superblock whose fields have been verified against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    raw: RawSuperblock,
}

const NAME: &str = "superblock";
impl RawSuperblock {
    /// Whether the inode belongs to the filesystem itself: the superblock names it, and no directory may.
    pub fn owns_inode(&self, inode: InodeNumber) -> bool {
        let realtime = [&self.rt_bitmap_inode, &self.rt_summary_inode];
        let quota = [&self.user_quota_inode, &self.group_quota_inode, &self.project_quota_inode];
        realtime.iter().chain(&quota).any(|number| number.get() == inode.0)
    }
}

/// Bit of the quota flags: usage is counted for users.
pub const QUOTA_OF_USERS: u16 = 0x01;
/// Bit of the quota flags: usage is counted for projects.
pub const QUOTA_OF_PROJECTS: u16 = 0x08;
/// Bit of the quota flags: usage is counted for groups.
pub const QUOTA_OF_GROUPS: u16 = 0x40;
const QUOTA_ACCOUNTING: u16 = QUOTA_OF_USERS | QUOTA_OF_PROJECTS | QUOTA_OF_GROUPS;
/// Bits of the quota flags: the usage on disk is complete and has been kept up to date, for users, groups and projects.
pub const QUOTA_COUNTED: u16 = 0x04 | 0x100 | 0x400;

impl Superblock {
    /// Decodes and verifies the sector at the start of the device. `sector` has at least 512 bytes; the checksum
    /// covers the whole sector, whose size the superblock itself names.
    ///
    /// # Errors
    /// [`SuperblockError::NotXfs`] and `TooShort` for what is no image, `Corrupt` for damage, `Unsupported` for what is
    /// named in `docs/compatibility.md`. Unknown read-only compatible bits are not an error here: see
    /// [`Self::check_writable`].
    pub fn decode(sector: &[u8]) -> Result<Self, SuperblockError> {
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(sector) else {
            return Err(SuperblockError::TooShort { bytes: sector.len() });
        };
        if raw.magic.get() != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::NotXfs { found: raw.magic.get() });
        }
        let version = raw.version.get() & 0xf;
        if version != 5 {
            return Err(Unsupported::Version(version).into());
        }
        verify_sizes(&raw).map_err(|e| e.at(DiskAddress(0)))?;
        let bytes = sector
            .get(..usize::from(raw.sector_size.get()))
            .ok_or_else(|| Corruption::new(NAME, "a whole sector").found(format_args!("{} bytes", sector.len())))?;
        if !checksum_matches(bytes, SUPERBLOCK_CRC_OFFSET) {
            return Err(Corruption::new(NAME, "checksum").at(DiskAddress(0)).into());
        }
        check_features(&raw)?;
        verify_geometry(&raw).map_err(|e| e.at(DiskAddress(0)))?;
        if raw.ag_count.get() > MAX_AGS {
            return Err(Unsupported::TooManyAgs(raw.ag_count.get()).into());
        }
        verify_log(&raw).map_err(|e| e.at(DiskAddress(0)))?;
        Ok(Self { raw })
    }

    /// Fails unless all features that a change may touch are known, so that xfskit may write to this image.
    ///
    /// # Errors
    /// [`Unsupported::ReadOnly`] names the unknown read-only compatible bits.
    pub fn check_writable(&self) -> Result<(), Unsupported> {
        let unknown = self.raw.ro_compat.get() & !SUPPORTED_RO_COMPAT.bits();
        if unknown != 0 { Err(Unsupported::ReadOnly(unknown)) } else { Ok(()) }
    }

    /// Whether usage is counted for any quota.
    pub fn has_quota(&self) -> bool {
        self.raw.quota_flags.get() & QUOTA_ACCOUNTING != 0
    }

    /// The fields as they lie on disk.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The read-only compatible features.
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_truncate(self.raw.ro_compat.get())
    }

    /// The incompatible features.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_truncate(self.raw.incompat.get())
    }

    /// The log features that are switched on now.
    pub fn log_incompat(&self) -> LogIncompat {
        LogIncompat::from_bits_truncate(self.raw.log_incompat.get())
    }

    /// The older feature words.
    pub fn version_flags(&self) -> (VersionFlags, Features2) {
        (
            VersionFlags::from_bits_truncate(self.raw.version.get() & !0xf),
            Features2::from_bits_truncate(self.raw.features2.get()),
        )
    }

    /// The UUID that metadata carries.
    pub fn meta_uuid(&self) -> [u8; 16] {
        if self.incompat().contains(Incompat::META_UUID) { self.raw.meta_uuid } else { self.raw.uuid }
    }

    /// The inode of the root directory.
    pub fn root_inode(&self) -> InodeNumber {
        InodeNumber(self.raw.root_inode.get())
    }

    /// The label, without its padding, as text.
    pub fn label(&self) -> String {
        let end = self.raw.label.iter().position(|&b| b == 0).unwrap_or(self.raw.label.len());
        String::from_utf8_lossy(&self.raw.label[..end]).into_owned()
    }

    /// Whether the log lies on a device of its own.
    pub fn has_external_log(&self) -> bool {
        self.raw.log_start.get() == 0
    }
}

fn verify_sizes(raw: &RawSuperblock) -> Verdict {
    let power = |size: u32, log: u8| log < 32 && size == 1u32 << log;
    ensure!(
        power(raw.block_size.get(), raw.block_log) && (10..=16).contains(&raw.block_log),
        NAME,
        "block size is a power of two from 1024 to 65536",
        "{} and log {}",
        raw.block_size,
        raw.block_log
    );
    ensure!(
        power(raw.sector_size.get().into(), raw.sector_log)
            && (9..=15).contains(&raw.sector_log)
            && raw.sector_log <= raw.block_log,
        NAME,
        "sector size is a power of two from 512 to the block size",
        "{} and log {}",
        raw.sector_size,
        raw.sector_log
    );
    ensure!(
        power(raw.inode_size.get().into(), raw.inode_log)
            && (8..=11).contains(&raw.inode_log)
            && raw.inode_log <= raw.block_log,
        NAME,
        "inode size is a power of two from 256 to 2048",
        "{} and log {}",
        raw.inode_size,
        raw.inode_log
    );
    ensure!(
        raw.inodes_per_block_log == raw.block_log - raw.inode_log
            && u32::from(raw.inodes_per_block.get()) == 1 << raw.inodes_per_block_log,
        NAME,
        "inodes per block",
        "{} and log {}",
        raw.inodes_per_block,
        raw.inodes_per_block_log
    );
    let dir_block_log = u32::from(raw.block_log) + u32::from(raw.dir_block_log);
    ensure!(dir_block_log <= 16, NAME, "directory block size is at most 65536", "log {dir_block_log}");
    Ok(())
}

fn verify_geometry(raw: &RawSuperblock) -> Verdict {
    let (ag_blocks, ag_count) = (u64::from(raw.ag_blocks.get()), u64::from(raw.ag_count.get()));
    let ag_bytes = ag_blocks << raw.block_log;
    ensure!((1 << 24..=1 << 40).contains(&ag_bytes), NAME, "AG size is from 16 MiB to 1 TiB", "{ag_bytes} bytes");
    ensure!(
        (1..32).contains(&raw.ag_blocks_log)
            && ag_blocks <= 1 << raw.ag_blocks_log
            && ag_blocks > 1 << (raw.ag_blocks_log - 1),
        NAME,
        "AG size matches its logarithm",
        "{ag_blocks} blocks and log {}",
        raw.ag_blocks_log
    );
    let data_blocks = raw.data_blocks.get();
    ensure!(ag_count > 0, NAME, "at least one AG");
    ensure!(
        data_blocks > (ag_count - 1) * ag_blocks && data_blocks <= ag_count * ag_blocks,
        NAME,
        "AGs cover the device",
        "{data_blocks} blocks in {ag_count} AGs of {ag_blocks}"
    );
    let last_ag = data_blocks - (ag_count - 1) * ag_blocks;
    ensure!(last_ag >= 64, NAME, "the last AG has at least 64 blocks", "{last_ag} blocks");
    ensure!(
        ag_count.checked_shl(raw.ag_blocks_log.into()).is_some_and(|end| end <= 1 << 52),
        NAME,
        "block numbers fit extent records",
        "{ag_count} AGs"
    );
    ensure!(raw.inode_max_percent <= 100, NAME, "inode space is a percentage", "{}", raw.inode_max_percent);
    let root = raw.root_inode.get();
    let inode_bits = u32::from(raw.ag_blocks_log) + u32::from(raw.inodes_per_block_log);
    ensure!(inode_bits <= 32, NAME, "an inode number within an AG fits 32 bits", "{inode_bits} bits");
    ensure!(root != 0 && root >> inode_bits < ag_count, NAME, "root inode lies in an AG", "{root}");
    ensure!(
        raw.inode_alignment.get() <= raw.ag_blocks.get() && raw.sparse_inode_alignment.get() <= raw.ag_blocks.get(),
        NAME,
        "inode alignment is within an AG",
        "{} and {}",
        raw.inode_alignment,
        raw.sparse_inode_alignment
    );
    let (unit, width) = (raw.stripe_unit.get(), raw.stripe_width.get());
    ensure!(unit == 0 || width % unit == 0, NAME, "stripe width is a multiple of the unit", "{unit} and {width}");
    Ok(())
}

fn verify_log(raw: &RawSuperblock) -> Verdict {
    let log_blocks = u64::from(raw.log_blocks.get());
    ensure!(
        (512..=1 << 20).contains(&log_blocks) || log_blocks << raw.block_log >= 1 << 21,
        NAME,
        "log size is within the format's limits",
        "{log_blocks} blocks"
    );
    ensure!(log_blocks << raw.block_log <= 1 << 31, NAME, "log size is at most 2 GiB", "{log_blocks} blocks");
    let start = raw.log_start.get();
    if start != 0 {
        let ag = start >> raw.ag_blocks_log;
        let block = start & ((1 << raw.ag_blocks_log) - 1);
        let (ag_count, ag_blocks) = (u64::from(raw.ag_count.get()), u64::from(raw.ag_blocks.get()));
        // The last AG may be shorter than the others.
        let blocks_in_ag = raw.data_blocks.get().saturating_sub(ag.saturating_mul(ag_blocks)).min(ag_blocks);
        ensure!(
            ag < ag_count && block + log_blocks <= blocks_in_ag,
            NAME,
            "the log lies within one AG",
            "block {block} of AG {ag}, {log_blocks} blocks"
        );
    }
    let unit = raw.log_stripe_unit.get();
    ensure!(unit <= 256 * 1024, NAME, "log stripe unit is at most 256 KiB", "{unit} bytes");
    ensure!(unit <= 1 || unit.is_multiple_of(512), NAME, "log stripe unit is whole sectors", "{unit} bytes");
    let sector = raw.log_sector_size.get();
    ensure!(
        raw.log_sector_log == 0 && sector == 0
            || (9..=15).contains(&raw.log_sector_log) && u32::from(sector) == 1 << raw.log_sector_log,
        NAME,
        "log sector size",
        "{sector} and log {}",
        raw.log_sector_log
    );
    Ok(())
}

fn check_features(raw: &RawSuperblock) -> Result<(), Unsupported> {
    let incompat = raw.incompat.get();
    let known = Incompat::from_bits_truncate(incompat);
    if known.contains(Incompat::NEEDSREPAIR) {
        return Err(Unsupported::NeedsRepair);
    }
    for (bit, name) in [
        (Incompat::METADIR, "metadir (a metadata directory tree)"),
        (Incompat::ZONED, "zoned (a zoned realtime device)"),
        (Incompat::ZONE_GAPS, "zone_gaps (a zoned realtime device)"),
    ] {
        if known.contains(bit) {
            return Err(Unsupported::Feature(name));
        }
    }
    let unknown = incompat & !SUPPORTED_INCOMPAT.bits();
    if unknown != 0 {
        return Err(Unsupported::UnknownBits { word: "incompatible", bits: unknown });
    }
    if !known.contains(Incompat::FTYPE) {
        return Err(Unsupported::Feature("ftype=0 (directories without file types)"));
    }
    let unknown = raw.log_incompat.get() & !LogIncompat::all().bits();
    if unknown != 0 {
        return Err(Unsupported::UnknownBits { word: "log", bits: unknown });
    }
    if raw.rt_blocks.get() != 0 {
        return Err(Unsupported::Feature("realtime (a realtime section)"));
    }
    if raw.version.get() & VersionFlags::BORG.bits() != 0 {
        return Err(Unsupported::Feature("ascii-ci (case-insensitive names)"));
    }
    if raw.in_progress != 0 {
        return Err(Unsupported::InProgress);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_has_the_documents_size_and_offsets() {
        assert_eq!(size_of::<RawSuperblock>(), 304);
        assert_eq!(core::mem::offset_of!(RawSuperblock, crc), SUPERBLOCK_CRC_OFFSET);
        assert_eq!(core::mem::offset_of!(RawSuperblock, inode_count), 128);
        assert_eq!(core::mem::offset_of!(RawSuperblock, meta_uuid), 248);
    }

    #[test]
    fn another_format_is_named_as_such() {
        let error = Superblock::decode(&[0x41; 512]).unwrap_err();
        assert!(matches!(error, SuperblockError::NotXfs { found: 0x4141_4141 }));
        assert!(error.to_string().contains("0x41414141 instead of"), "{error}");
        let disk = SuperblockError::NotXfs { found: u32::from_be_bytes(*b"QFI\xfb") }.to_string();
        assert!(disk.contains("a virtual disk (qcow2)"), "{disk}");
    }
}
