//! Directories: the address space that their blocks share, and names, types and hashes of entries.
//!
//! ```text
//! form       the data fork contains
//! shortform  the entries themselves, in the inode
//! block      one directory block: entries, and the hash index at its end            (XDB3)
//! leaf       data blocks (XDD3), and at 32 GiB one block of hash index and free index (0x3df1)
//! node       data blocks, at 32 GiB a btree of hash index blocks (nodes, 0x3dff), at 64 GiB free index blocks (XDF3)
//! ```
//! An entry's *data pointer* is its byte offset in the data space divided by 8: it names the entry in the hash index
//! and is its cookie for readers of the directory. A shortform entry remembers the offset that it would have in a
//! block, so that cookies survive the conversion.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Directories"; the kernel's `xfs_da_format.h`.

pub mod data;
pub mod free;
pub mod leaf;
pub mod shortform;

use crate::da::prefix;
use crate::inode::{MODE_BLOCK, MODE_CHAR, MODE_DIR, MODE_FIFO, MODE_REGULAR, MODE_SOCKET, MODE_SYMLINK, MODE_TYPE};
use crate::{DiskAddress, FileBlock, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest name in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Entries and unused space start at multiples of this.
pub const DATA_ALIGNMENT: usize = 8;
/// Logarithm of the size of each of the three parts of a directory's address space.
const SPACE_LOG: u8 = 35;
/// The data pointer of a removed entry in a hash index.
pub const STALE_POINTER: u32 = 0;
/// The free index value of a data block that does not exist.
pub const NO_DATA_BLOCK: u16 = 0xffff;

/// The type of file that an entry names, as stored in the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names say it.
pub enum FileType {
    Unknown = 0,
    Regular = 1,
    Directory = 2,
    CharDevice = 3,
    BlockDevice = 4,
    Fifo = 5,
    Socket = 6,
    Symlink = 7,
    Whiteout = 8,
}

impl FileType {
    /// The type that a stored number stands for, if there is one.
    pub fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Unknown,
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            8 => Self::Whiteout,
            _ => return None,
        })
    }

    /// The type in the bits of a mode.
    pub fn from_mode(mode: u16) -> Self {
        match mode & MODE_TYPE {
            MODE_REGULAR => Self::Regular,
            MODE_DIR => Self::Directory,
            MODE_CHAR => Self::CharDevice,
            MODE_BLOCK => Self::BlockDevice,
            MODE_FIFO => Self::Fifo,
            MODE_SOCKET => Self::Socket,
            MODE_SYMLINK => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// Sizes and positions that follow from the size of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirLayout {
    /// Logarithm of the filesystem block size.
    pub fs_block_log: u8,
    /// Logarithm of the directory block size.
    pub block_log: u8,
}

impl DirLayout {
    /// The layout of an image's directories.
    pub fn new(geometry: &Geometry) -> Self {
        Self { fs_block_log: geometry.block_log, block_log: geometry.dir_block_log }
    }

    /// Size of a directory block in bytes.
    pub fn block_bytes(self) -> usize {
        1 << self.block_log
    }

    /// Filesystem blocks of a directory block.
    pub fn fs_blocks(self) -> u32 {
        1 << (self.block_log - self.fs_block_log)
    }

    /// Offset of the first entry after `.` and `..`.
    pub fn first_offset(self) -> usize {
        data::DATA_HEADER_BYTES + entry_bytes(1) + entry_bytes(2)
    }

    /// Fork block of the root of the hash index.
    pub fn index_root(self) -> FileBlock {
        FileBlock(1 << (SPACE_LOG - self.fs_block_log))
    }

    /// Fork block of the first block of the free index.
    pub fn free_start(self) -> FileBlock {
        FileBlock(2 << (SPACE_LOG - self.fs_block_log))
    }

    /// Fork block of a data block.
    pub fn data_block(self, number: u32) -> FileBlock {
        FileBlock(u64::from(number) << (self.block_log - self.fs_block_log))
    }

    /// Fork block of free index block `number`, counted from 0.
    pub fn free_block(self, number: u32) -> FileBlock {
        self.free_start().add(u64::from(number) << (self.block_log - self.fs_block_log))
    }

    /// Data blocks that the data space has room for.
    pub fn max_data_blocks(self) -> u32 {
        1 << (SPACE_LOG - self.block_log)
    }

    /// The data pointer of `offset` within data block `number`.
    pub fn pointer(self, number: u32, offset: usize) -> u32 {
        (((u64::from(number) << self.block_log) + offset as u64) >> 3) as u32
    }

    /// The data block and the offset within it that a data pointer names.
    pub fn split_pointer(self, pointer: u32) -> (u32, usize) {
        let bytes = u64::from(pointer) << 3;
        ((bytes >> self.block_log) as u32, (bytes & ((1 << self.block_log) - 1)) as usize)
    }

    /// Most values of a free index block.
    pub fn free_capacity(self) -> usize {
        (self.block_bytes() - free::FREE_HEADER_BYTES) / 2
    }

    /// The free index block that contains the value of a data block, and the index of the value in it.
    pub fn free_place(self, data_block: u32) -> (u32, usize) {
        let capacity = self.free_capacity() as u32;
        (data_block / capacity, (data_block % capacity) as usize)
    }
}

/// Bytes that an entry of a data block takes: inode, length, name, type and tag, rounded up to 8.
pub const fn entry_bytes(name_bytes: usize) -> usize {
    (8 + 1 + name_bytes + 1 + 2).next_multiple_of(DATA_ALIGNMENT)
}

/// Whether `name` may stand in a directory: one to 255 bytes, neither `/` nor NUL.
pub fn is_valid_name(name: &[u8]) -> bool {
    // Without an early exit, so that the compiler can make it compare many bytes at once.
    let has_bad_byte = name.iter().fold(false, |found, &byte| found | (byte == b'/') | (byte == 0));
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !has_bad_byte
}

/// The front of data and free index blocks (`struct xfs_dir3_blk_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct DirBlockHeader {
    /// Which kind of block this is.
    pub magic: U32,
    /// Checksum.
    pub crc: [u8; 4],
    /// The block's own disk address.
    pub address: U64,
    /// Last change.
    pub lsn: U64,
    /// The filesystem.
    pub uuid: [u8; 16],
    /// The directory.
    pub owner: U64,
}

/// Where the checksum stands in blocks with a [`DirBlockHeader`].
pub const DIR_CRC_OFFSET: usize = 4;
/// Where the LSN stands in blocks with a [`DirBlockHeader`].
pub const DIR_LSN_OFFSET: usize = 16;

impl DirBlockHeader {
    /// The header of a new block.
    pub fn new(geometry: &Geometry, magic: u32, owner: u64, address: DiskAddress) -> Self {
        Self {
            magic: U32::new(magic),
            crc: [0; 4],
            address: U64::new(address.0),
            lsn: U64::ZERO,
            uuid: geometry.meta_uuid,
            owner: U64::new(owner),
        }
    }

    fn verify(geometry: &Geometry, address: DiskAddress, bytes: &[u8], magic: u32, name: &'static str) -> Verdict {
        ensure!(bytes.len() == geometry.dir_block_bytes(), name, "whole block", "{} bytes", bytes.len());
        let header: &Self = prefix(bytes);
        ensure!(header.magic.get() == magic, name, "magic number", "{:#010x}", header.magic);
        ensure!(header.uuid == geometry.meta_uuid, name, "uuid");
        ensure!(header.address.get() == address.0, name, "own address", "{}", header.address);
        Ok(())
    }
}

/// Whether an inode number from an entry can be one.
fn is_possible_inode(geometry: &Geometry, inode: u64) -> bool {
    geometry.split_inode(crate::InodeNumber(inode)).is_some()
}
