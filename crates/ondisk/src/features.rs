//! The feature words of the superblock, decoded.

use bitflags::bitflags;

bitflags! {
    /// `sb_versionnum`: the low four bits are the version, the rest are feature bits from before version 5.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct VersionFlags: u16 {
        /// Extended attributes are in use.
        const ATTR = 0x0010;
        /// Inodes carry 32-bit link counts.
        const NLINK = 0x0020;
        /// Quota is in use.
        const QUOTA = 0x0040;
        /// Inode chunks are aligned to `sb_inoalignmt`.
        const ALIGN = 0x0080;
        /// A stripe unit and width are recorded.
        const DALIGN = 0x0100;
        /// Reserved word of the earliest releases.
        const SHARED = 0x0200;
        /// Version 2 log.
        const LOGV2 = 0x0400;
        /// Sectors larger than 512 bytes.
        const SECTOR = 0x0800;
        /// Unwritten extents.
        const EXTFLAG = 0x1000;
        /// Version 2 directories.
        const DIRV2 = 0x2000;
        /// Case-insensitive ASCII names.
        const BORG = 0x4000;
        /// `sb_features2` is valid.
        const MOREBITS = 0x8000;
    }

    /// `sb_features2`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features2: u32 {
        /// Free space and inode counters are kept in memory and summed up from the AGs after a crash.
        const LAZYSBCOUNT = 0x02;
        /// Version 2 attributes.
        const ATTR2 = 0x08;
        /// 32-bit project identifiers.
        const PROJID32 = 0x80;
        /// Checksums, which version 5 implies.
        const CRC = 0x100;
        /// File types in directories of version 4.
        const FTYPE = 0x200;
    }

    /// Features that a reader may ignore but a writer must know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// A btree of inode chunks with free inodes.
        const FINOBT = 1 << 0;
        /// A btree of the owners of all space.
        const RMAPBT = 1 << 1;
        /// Shared blocks, counted in a btree.
        const REFLINK = 1 << 2;
        /// The AGI counts the blocks of the inode btrees.
        const INOBTCNT = 1 << 3;
    }

    /// Features that readers and writers must know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Directory entries carry the file type.
        const FTYPE = 1 << 0;
        /// Inode chunks may be only partly allocated.
        const SPINODES = 1 << 1;
        /// Metadata carries `sb_meta_uuid`, not `sb_uuid`.
        const META_UUID = 1 << 2;
        /// Timestamps to the year 2486.
        const BIGTIME = 1 << 3;
        /// xfs_repair must run before a mount.
        const NEEDSREPAIR = 1 << 4;
        /// 64-bit extent counters.
        const NREXT64 = 1 << 5;
        /// Logged exchange of file contents.
        const EXCHRANGE = 1 << 6;
        /// Parent pointers in the attributes of every file.
        const PARENT = 1 << 7;
        /// A tree of metadata inodes.
        const METADIR = 1 << 8;
        /// A zoned realtime device.
        const ZONED = 1 << 9;
        /// A zoned realtime device with gaps.
        const ZONE_GAPS = 1 << 10;
    }

    /// Features of the log, set while it may contain items that older kernels do not know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LogIncompat: u32 {
        /// Attribute intents.
        const XATTRS = 1 << 0;
    }
}

/// The features that xfskit writes.
pub const SUPPORTED_RO_COMPAT: RoCompat = RoCompat::all();

/// The features that xfskit reads and writes.
pub const SUPPORTED_INCOMPAT: Incompat = Incompat::FTYPE
    .union(Incompat::SPINODES)
    .union(Incompat::META_UUID)
    .union(Incompat::BIGTIME)
    .union(Incompat::NREXT64)
    .union(Incompat::EXCHRANGE)
    .union(Incompat::PARENT);
