//! The inode core: the first 176 bytes of an inode, before its two forks.
//!
//! ```text
//!   0 "IN"  2 mode  4 version 3  5 data format    8 uid  12 gid  16 links  20 project  24 data extents (64 bit)
//!  32 atime  40 mtime  48 ctime  56 size  64 blocks  72 extent size  76 extents  82 fork offset / 8
//!  83 attr format  90 flags  92 generation | 96 next unlinked  100 checksum | 104 change count  112 LSN
//! 120 flags2  128 cow extent size  144 birth time  152 inode number  160 uuid | 176 data fork ... attr fork
//! ```
//! The journal carries the same layout in the byte order of the machine that wrote it (little-endian for us) and
//! without the checksum; [`InodeCore::encode`] and [`InodeCore::encode_for_log`] share one description of the fields.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Inodes"; the kernel's `struct xfs_dinode` and
//! `struct xfs_log_dinode`.

use crate::Timestamp;
pub use crate::geometry::INODE_CORE_BYTES;

use crate::extent::MAX_EXTENT_BLOCKS;
use crate::time::{decode_bigtime, decode_legacy, encode_bigtime, encode_legacy};
use crate::{AgInode, Geometry, InodeNumber, Lsn, Verdict, checksum_matches, ensure, set_checksum};

/// `"IN"`.
pub const INODE_MAGIC: u16 = 0x494e;
/// Where the checksum of an inode stands.
pub const INODE_CRC_OFFSET: usize = 100;
/// Where an inode's link to the next one of an unlinked list stands.
pub const INODE_NEXT_UNLINKED_OFFSET: usize = 96;
/// Where the LSN of an inode stands.
pub const INODE_LSN_OFFSET: usize = 112;

pub use xfskit_vfs::mode::{
    MODE_BLOCK, MODE_CHAR, MODE_DIR, MODE_FIFO, MODE_REGULAR, MODE_SOCKET, MODE_SYMLINK, MODE_TYPE,
};

/// Type and permissions of an inode; the type is one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(u16);

impl FileMode {
    /// A mode. One without type bits is a regular file's, as for mknod(2). `None` if the type does not exist.
    pub fn new(mode: u16) -> Option<Self> {
        match mode & MODE_TYPE {
            0 => Some(Self(mode | MODE_REGULAR)),
            MODE_REGULAR | MODE_DIR | MODE_SYMLINK | MODE_CHAR | MODE_BLOCK | MODE_FIFO | MODE_SOCKET => {
                Some(Self(mode))
            }
            _ => None,
        }
    }

    /// The bits, as the inode has them.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The type's bits.
    pub fn file_type(self) -> u16 {
        self.0 & MODE_TYPE
    }

    /// The same type with the permissions of `permissions`, whose other bits are ignored.
    #[must_use]
    pub fn with_permissions(self, permissions: u16) -> Self {
        Self(self.file_type() | permissions & !MODE_TYPE)
    }
}

/// Bits of the inode's `flags`.
pub mod flags {
    /// The contents lie on the realtime device.
    pub const REALTIME: u16 = 1 << 0;
    /// Blocks are preallocated.
    pub const PREALLOC: u16 = 1 << 1;
    /// The file must not change.
    pub const IMMUTABLE: u16 = 1 << 3;
    /// The file may only grow.
    pub const APPEND: u16 = 1 << 4;
    /// Writes are synchronous.
    pub const SYNC: u16 = 1 << 5;
    /// Reads do not update the access time.
    pub const NOATIME: u16 = 1 << 6;
    /// Dumps leave the file out.
    pub const NODUMP: u16 = 1 << 7;
    /// New files inherit the project.
    pub const PROJINHERIT: u16 = 1 << 9;
    /// New directories inherit this flag, new files get [`REALTIME`].
    pub const RTINHERIT: u16 = 1 << 8;
    /// Symbolic links must not be made here.
    pub const NOSYMLINKS: u16 = 1 << 10;
    /// The data fork is allocated in units of the extent size.
    pub const EXTSIZE: u16 = 1 << 11;
    /// New files inherit the extent size.
    pub const EXTSZINHERIT: u16 = 1 << 12;
    /// The defragmenter leaves the file alone.
    pub const NODEFRAG: u16 = 1 << 13;
    /// The files of a directory are allocated beside each other, away from those of others.
    pub const FILESTREAM: u16 = 1 << 14;
}

/// Bits of the inode's `flags2`.
pub mod flags2 {
    /// Direct access.
    pub const DAX: u64 = 1 << 0;
    /// The file may share blocks.
    pub const REFLINK: u64 = 1 << 1;
    /// A copy-on-write extent size is set.
    pub const COWEXTSIZE: u64 = 1 << 2;
    /// Timestamps count nanoseconds since 1901.
    pub const BIGTIME: u64 = 1 << 3;
    /// Extent counters have 64 and 32 bits.
    pub const NREXT64: u64 = 1 << 4;
    /// A metadata file.
    pub const METADATA: u64 = 1 << 5;
}

/// How a fork stores its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ForkFormat {
    /// A device number.
    Dev = 0,
    /// The contents themselves.
    Local = 1,
    /// A list of extent records.
    Extents = 2,
    /// The root of a btree of extent records.
    Btree = 3,
}

impl ForkFormat {
    fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Dev,
            1 => Self::Local,
            2 => Self::Extents,
            3 => Self::Btree,
            _ => return None,
        })
    }
}

/// The core of an inode, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct InodeCore {
    pub mode: u16,
    pub data_format: ForkFormat,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub project: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub birth_time: Timestamp,
    pub size: u64,
    /// Filesystem blocks that the forks and their btrees take.
    pub blocks: u64,
    pub extent_size: u32,
    pub data_extents: u64,
    pub attr_extents: u32,
    /// Start of the attr fork within the literal area, in units of 8 bytes; 0 without an attr fork.
    pub fork_offset: u8,
    pub attr_format: ForkFormat,
    pub flags: u16,
    pub generation: u32,
    pub next_unlinked: AgInode,
    pub change_count: u64,
    pub lsn: Lsn,
    pub flags2: u64,
    pub cow_extent_size: u32,
    pub inode: InodeNumber,
    pub uuid: [u8; 16],
    /// dmevmask and dmstate, which xfskit preserves and does not use.
    pub reserved: (u32, u16),
}

const NAME: &str = "inode";

/// One description of the field layout for both byte orders.
macro_rules! put {
    ($out:ident, $order:ident, $($offset:literal => $value:expr),+ $(,)?) => {
        $({ let bytes = $value.$order(); $out[$offset..$offset + bytes.len()].copy_from_slice(&bytes); })+
    };
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) << 32 | u64::from(u32_at(b, at + 4))
}

impl InodeCore {
    /// Decodes an inode of `geometry.inode_bytes()` bytes and verifies everything that can be known without looking
    /// at another block: checksum, identity, formats, sizes. A free inode (mode 0) is valid.
    ///
    /// # Errors
    /// A [`Corruption`](crate::Corruption) that names the check; the caller adds the disk address.
    pub fn decode(geometry: &Geometry, inode: InodeNumber, bytes: &[u8]) -> Verdict<Self> {
        ensure!(bytes.len() == geometry.inode_bytes(), NAME, "whole inode", "{} bytes", bytes.len());
        ensure!(u16_at(bytes, 0) == INODE_MAGIC, NAME, "magic number", "{:#06x}", u16_at(bytes, 0));
        ensure!(bytes[4] == 3, NAME, "version 3", "version {}", bytes[4]);
        ensure!(u16_at(bytes, 6) == 0, NAME, "no link count of version 1", "{}", u16_at(bytes, 6));
        ensure!(checksum_matches(bytes, INODE_CRC_OFFSET), NAME, "checksum");
        let core = Self::decode_unverified(bytes)?;
        core.verify(geometry, inode).map_err(|e| e.of(inode.0))?;
        Ok(core)
    }

    fn decode_unverified(bytes: &[u8]) -> Verdict<Self> {
        let flags2 = u64_at(bytes, 120);
        let time = |at| {
            let raw = u64_at(bytes, at);
            if flags2 & flags2::BIGTIME != 0 { decode_bigtime(raw) } else { decode_legacy(raw) }
        };
        let (data_extents, attr_extents) = if flags2 & flags2::NREXT64 != 0 {
            (u64_at(bytes, 24), u32_at(bytes, 76))
        } else {
            (u32_at(bytes, 76).into(), u16_at(bytes, 80).into())
        };
        let (Some(data_format), Some(attr_format)) = (ForkFormat::decode(bytes[5]), ForkFormat::decode(bytes[83]))
        else {
            return Err(crate::Corruption::new(NAME, "known fork formats")
                .found(format_args!("{} and {}", bytes[5], bytes[83])));
        };
        Ok(Self {
            mode: u16_at(bytes, 2),
            data_format,
            uid: u32_at(bytes, 8),
            gid: u32_at(bytes, 12),
            links: u32_at(bytes, 16),
            project: u32::from(u16_at(bytes, 22)) << 16 | u32::from(u16_at(bytes, 20)),
            atime: time(32),
            mtime: time(40),
            ctime: time(48),
            birth_time: time(144),
            size: u64_at(bytes, 56),
            blocks: u64_at(bytes, 64),
            extent_size: u32_at(bytes, 72),
            data_extents,
            attr_extents,
            fork_offset: bytes[82],
            attr_format,
            flags: u16_at(bytes, 90),
            generation: u32_at(bytes, 92),
            next_unlinked: AgInode(u32_at(bytes, 96)),
            change_count: u64_at(bytes, 104),
            lsn: Lsn(u64_at(bytes, 112)),
            flags2,
            cow_extent_size: u32_at(bytes, 128),
            inode: InodeNumber(u64_at(bytes, 152)),
            uuid: {
                let mut uuid = [0; 16];
                uuid.copy_from_slice(&bytes[160..176]);
                uuid
            },
            reserved: (u32_at(bytes, 84), u16_at(bytes, 88)),
        })
    }

    fn verify(&self, geometry: &Geometry, inode: InodeNumber) -> Verdict {
        ensure!(self.inode == inode, NAME, "own inode number", "{} instead of {inode}", self.inode);
        ensure!(self.uuid == geometry.meta_uuid, NAME, "uuid");
        ensure!(self.size >> 63 == 0, NAME, "size is below 8 EiB", "{:#x}", self.size);
        if self.mode == 0 {
            return Ok(());
        }
        // A file cannot map more, its btrees included. Fewer blocks fit 64 bits when counted in bytes.
        ensure!(
            self.blocks >> (62 - geometry.block_log) < 3,
            NAME,
            "blocks take less than 12 EiB",
            "{:#x}",
            self.blocks
        );
        let kind = self.mode & MODE_TYPE;
        let data_format_fits = match kind {
            MODE_DIR | MODE_SYMLINK => self.data_format != ForkFormat::Dev,
            MODE_REGULAR => matches!(self.data_format, ForkFormat::Extents | ForkFormat::Btree),
            MODE_CHAR | MODE_BLOCK | MODE_FIFO | MODE_SOCKET => self.data_format == ForkFormat::Dev,
            _ => false,
        };
        ensure!(
            data_format_fits,
            NAME,
            "data fork format fits the mode",
            "{:?} and mode {:o}",
            self.data_format,
            self.mode
        );
        ensure!(
            // A symbolic link that is being removed loses its target before its inode is freed.
            !matches!(kind, MODE_DIR | MODE_SYMLINK) || self.size > 0 || self.links == 0,
            NAME,
            "directories and symlinks have a size"
        );
        self.verify_attr_fork(geometry)?;
        ensure!(self.data_extents < 1 << 48, NAME, "data extent counter", "{}", self.data_extents);
        let extents = self.data_extents + u64::from(self.attr_extents);
        ensure!(extents <= self.blocks, NAME, "as many blocks as extents", "{} and {extents}", self.blocks);
        self.verify_fork_sizes(geometry)?;
        self.verify_hints(geometry)
    }

    fn verify_attr_fork(&self, geometry: &Geometry) -> Verdict {
        ensure!(
            usize::from(self.fork_offset) * 8 < geometry.literal_area_bytes(),
            NAME,
            "attr fork starts within the inode",
            "offset {} times 8",
            self.fork_offset
        );
        if self.fork_offset != 0 {
            ensure!(self.attr_format != ForkFormat::Dev, NAME, "attr fork format", "a device number");
            let is_local = self.attr_format == ForkFormat::Local;
            ensure!(
                !is_local || self.attr_extents == 0,
                NAME,
                "no extents of local attributes",
                "{}",
                self.attr_extents
            );
        } else {
            // `Dev` (0) is the format of a new inode, `Extents` that of all others without an attr fork.
            let is_none = matches!(self.attr_format, ForkFormat::Dev | ForkFormat::Extents);
            ensure!(is_none, NAME, "no attr fork format without an attr fork", "{:?}", self.attr_format);
            ensure!(self.attr_extents == 0, NAME, "no attr extents without an attr fork", "{}", self.attr_extents);
        }
        Ok(())
    }

    /// Verifies the extent size hints, the units in which space is to be allocated.
    fn verify_hints(&self, geometry: &Geometry) -> Verdict {
        let most = (geometry.ag_blocks / 2).min(MAX_EXTENT_BLOCKS as u32);
        if self.flags & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0 {
            let size = self.extent_size;
            ensure!((1..=most).contains(&size), NAME, "extent size hint fits an AG", "{size} of {most} blocks");
        }
        if self.flags2 & flags2::COWEXTSIZE != 0 {
            let size = self.cow_extent_size;
            ensure!((1..=most).contains(&size), NAME, "copy-on-write size hint fits an AG", "{size} of {most} blocks");
        }
        Ok(())
    }

    fn verify_fork_sizes(&self, geometry: &Geometry) -> Verdict {
        let (data_bytes, attr_bytes) = (self.data_fork_bytes(geometry), self.attr_fork_bytes(geometry));
        if self.data_format == ForkFormat::Local {
            ensure!(self.data_extents == 0, NAME, "no extents of local contents", "{}", self.data_extents);
            ensure!(
                self.size <= data_bytes as u64,
                NAME,
                "local contents fit the data fork",
                "{} bytes in {data_bytes}",
                self.size
            );
        }
        if self.data_format == ForkFormat::Extents {
            ensure!(
                self.data_extents <= data_bytes as u64 / 16,
                NAME,
                "extents fit the data fork",
                "{} in {data_bytes} bytes",
                self.data_extents
            );
        }
        if self.fork_offset != 0 && self.attr_format == ForkFormat::Extents {
            ensure!(
                self.attr_extents as usize <= attr_bytes / 16,
                NAME,
                "extents fit the attr fork",
                "{} in {attr_bytes} bytes",
                self.attr_extents
            );
        }
        Ok(())
    }

    /// Bytes of the inode that the data fork has.
    pub fn data_fork_bytes(&self, geometry: &Geometry) -> usize {
        if self.fork_offset == 0 { geometry.literal_area_bytes() } else { usize::from(self.fork_offset) * 8 }
    }

    /// Bytes of the inode that the attr fork has.
    pub fn attr_fork_bytes(&self, geometry: &Geometry) -> usize {
        if self.fork_offset == 0 { 0 } else { geometry.literal_area_bytes() - usize::from(self.fork_offset) * 8 }
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & MODE_TYPE == MODE_DIR
    }

    /// Whether this is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & MODE_TYPE == MODE_REGULAR
    }

    /// Whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode & MODE_TYPE == MODE_SYMLINK
    }

    fn time_bits(&self, time: Timestamp) -> u64 {
        if self.flags2 & flags2::BIGTIME != 0 { encode_bigtime(time) } else { encode_legacy(time) }
    }

    /// The three words of the two extent counters, in either of their layouts: at 24, 76 and 80.
    fn extent_words(&self) -> (u64, u32, u16) {
        if self.flags2 & flags2::NREXT64 != 0 {
            (self.data_extents, self.attr_extents, 0)
        } else {
            (0, self.data_extents as u32, self.attr_extents as u16)
        }
    }

    /// Writes the core to the first 176 bytes of `out`, the checksum left as zero (see [`stamp_inode`]).
    pub fn encode(&self, out: &mut [u8]) {
        let (word24, word76, word80) = self.extent_words();
        out[..INODE_CORE_BYTES].fill(0);
        put!(out, to_be_bytes,
            0 => INODE_MAGIC, 2 => self.mode, 4 => 3u8, 5 => self.data_format as u8, 8 => self.uid, 12 => self.gid,
            16 => self.links, 20 => self.project as u16, 22 => (self.project >> 16) as u16, 24 => word24,
            32 => self.time_bits(self.atime), 40 => self.time_bits(self.mtime), 48 => self.time_bits(self.ctime),
            56 => self.size, 64 => self.blocks, 72 => self.extent_size, 76 => word76, 80 => word80,
            82 => self.fork_offset, 83 => self.attr_format as u8, 84 => self.reserved.0, 88 => self.reserved.1,
            90 => self.flags, 92 => self.generation, 96 => self.next_unlinked.0,
            104 => self.change_count, 112 => self.lsn.0, 120 => self.flags2, 128 => self.cow_extent_size,
            144 => self.time_bits(self.birth_time), 152 => self.inode.0,
        );
        out[160..176].copy_from_slice(&self.uuid);
    }

    /// Writes the core as the journal carries it, little-endian, to the first 176 bytes of `out`. Legacy timestamps
    /// are two 32-bit numbers, so their halves change places with the byte order.
    pub fn encode_for_log(&self, out: &mut [u8]) {
        let (word24, word76, word80) = self.extent_words();
        let bigtime = self.flags2 & flags2::BIGTIME != 0;
        let time = |t: Timestamp| if bigtime { encode_bigtime(t) } else { encode_legacy(t).rotate_left(32) };
        out[..INODE_CORE_BYTES].fill(0);
        put!(out, to_le_bytes,
            0 => INODE_MAGIC, 2 => self.mode, 4 => 3u8, 5 => self.data_format as u8, 8 => self.uid, 12 => self.gid,
            16 => self.links, 20 => self.project as u16, 22 => (self.project >> 16) as u16, 24 => word24,
            32 => time(self.atime), 40 => time(self.mtime), 48 => time(self.ctime),
            56 => self.size, 64 => self.blocks, 72 => self.extent_size, 76 => word76, 80 => word80,
            82 => self.fork_offset, 83 => self.attr_format as u8, 84 => self.reserved.0, 88 => self.reserved.1,
            90 => self.flags, 92 => self.generation, 96 => self.next_unlinked.0,
            104 => self.change_count, 112 => self.lsn.0, 120 => self.flags2, 128 => self.cow_extent_size,
            144 => time(self.birth_time), 152 => self.inode.0,
        );
        out[160..176].copy_from_slice(&self.uuid);
    }
}

/// Writes a free inode as it is when its chunk is new, checksum included, to `slot`, the whole inode.
pub fn encode_free_inode(geometry: &Geometry, inode: InodeNumber, generation: u32, slot: &mut [u8]) {
    slot.fill(0);
    put!(slot, to_be_bytes,
        0 => INODE_MAGIC, 4 => 3u8, 92 => generation, 96 => crate::NULL_AG_INODE.0, 152 => inode.0);
    slot[160..176].copy_from_slice(&geometry.meta_uuid);
    stamp_inode(slot);
}

/// Stores the checksum of an inode, core and forks, in it.
pub fn stamp_inode(inode: &mut [u8]) {
    set_checksum(inode, INODE_CRC_OFFSET);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgNumber;

    /// Callers convert the number of blocks to bytes, which must not overflow.
    #[test]
    fn blocks_fit_64_bits_in_bytes() {
        let geometry = Geometry::of_tests();
        let number = geometry.inode_number(AgNumber(1), AgInode(64 * 8));
        let mut slot = [0; 512];
        encode_free_inode(&geometry, number, 7, &mut slot);
        let mut core = InodeCore::decode(&geometry, number, &slot).unwrap();
        (core.mode, core.data_format) = (MODE_REGULAR | 0o644, ForkFormat::Extents);
        let limit = 3 << (62 - geometry.block_log);
        for (blocks, fits) in [(0, true), (limit - 1, true), (limit, false), (1 << 62, false), (u64::MAX, false)] {
            core.blocks = blocks;
            core.encode(&mut slot);
            stamp_inode(&mut slot);
            match InodeCore::decode(&geometry, number, &slot) {
                Ok(decoded) => assert!(fits && decoded.blocks.checked_mul(geometry.block_bytes() as u64).is_some()),
                Err(error) => assert!(!fits && error.check == "blocks take less than 12 EiB", "{error}"),
            }
        }
    }
}
