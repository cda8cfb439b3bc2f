//! A logged inode.
//!
//! ```text
//! format   0 type  2 regions  4 fields  8 attr bytes  10 data bytes  16 inode  24 device
//!         40 address of the cluster  48 its length in basic blocks  52 offset there      56
//!          (an older writer's has no gap before the inode number: 52 bytes)
//! regions  the core in the writer's order, then the data fork, then the attr fork, where they are logged
//! ```
//! Facts: the kernel's `struct xfs_inode_log_format`, `struct xfs_log_dinode`, `XFS_ILOG_…`.

use super::Fields;
use crate::btree::{BMBT_MAGIC, LONG_HEADER_BYTES};
use crate::inode::{INODE_CORE_BYTES, INODE_LSN_OFFSET, INODE_MAGIC, flags2};
use crate::log_record::item_type;
use crate::{BASIC_BLOCK_BYTES, DiskAddress, Geometry, InodeNumber, Lsn, Verdict};
use bitflags::bitflags;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const NAME: &str = "logged inode";

bitflags! {
    /// Parts of an inode that an item carries (`XFS_ILOG_…`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFields: u32 {
        /// The core.
        const CORE = 0x001;
        /// Local contents of the data fork.
        const DATA_LOCAL = 0x002;
        /// Extent records of the data fork.
        const DATA_EXTENTS = 0x004;
        /// Btree root of the data fork.
        const DATA_ROOT = 0x008;
        /// The device number.
        const DEVICE = 0x010;
        /// Local contents of the attr fork.
        const ATTR_LOCAL = 0x040;
        /// Extent records of the attr fork.
        const ATTR_EXTENTS = 0x080;
        /// Btree root of the attr fork.
        const ATTR_ROOT = 0x100;
        /// The blocks of the data fork's btree have a new owner.
        const DATA_OWNER = 0x200;
        /// The blocks of the attr fork's btree have a new owner.
        const ATTR_OWNER = 0x400;

        /// All forms of the data fork.
        const DATA = Self::DATA_LOCAL.bits() | Self::DATA_EXTENTS.bits() | Self::DATA_ROOT.bits();
        /// All forms of the attr fork.
        const ATTR = Self::ATTR_LOCAL.bits() | Self::ATTR_EXTENTS.bits() | Self::ATTR_ROOT.bits();
    }
}

/// The first region of an inode item (`struct xfs_inode_log_format`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFormat {
    item_type: U16,
    regions: U16,
    fields: U32,
    attr_bytes: U16,
    data_bytes: U16,
    gap: U32,
    inode: U64,
    device: U32,
    unused: [u8; 12],
    address: U64,
    basic_blocks: U32,
    offset: U32,
}

/// Bytes of the first region of an inode item.
pub const FORMAT_BYTES: usize = size_of::<RawFormat>();
const _: () = assert!(FORMAT_BYTES == 56 && offset_of!(RawFormat, inode) == 16 && offset_of!(RawFormat, address) == 40);

/// The contents of the first region of an inode item.
#[derive(Clone, Copy, Debug)]
pub struct InodeFormat {
    /// The inode's number.
    pub inode: InodeNumber,
    /// The parts of the inode that the item carries.
    pub fields: InodeFields,
    /// Bytes of the data fork's region; none if 0.
    pub data_bytes: usize,
    /// Bytes of the attr fork's region; none if 0.
    pub attr_bytes: usize,
    /// The device number, of a device.
    pub device: u32,
    /// Where the cluster lies.
    pub address: DiskAddress,
    /// Length of the cluster in bytes.
    pub cluster_bytes: usize,
    /// The inode's offset there in bytes.
    pub offset: usize,
}

impl InodeFormat {
    /// Fills the first region of an inode item, [`FORMAT_BYTES`] long.
    pub fn encode(&self, out: &mut [u8]) {
        let regions = 2 + u16::from(self.data_bytes > 0) + u16::from(self.attr_bytes > 0);
        let format = RawFormat {
            item_type: item_type::INODE.into(),
            regions: regions.into(),
            fields: self.fields.bits().into(),
            attr_bytes: (self.attr_bytes as u16).into(),
            data_bytes: (self.data_bytes as u16).into(),
            gap: 0.into(),
            inode: self.inode.0.into(),
            device: self.device.into(),
            unused: [0; 12],
            address: self.address.0.into(),
            basic_blocks: ((self.cluster_bytes / BASIC_BLOCK_BYTES) as u32).into(),
            offset: (self.offset as u32).into(),
        };
        out.copy_from_slice(format.as_bytes());
    }
}

/// Bytes of a btree root as an item carries it.
pub fn root_bytes(records: usize) -> usize {
    LONG_HEADER_BYTES + 16 * records
}

/// Encodes a btree root as an item carries it, [`root_bytes`] long: with the header of a whole block.
pub fn encode_root(level: u16, keys: &[u64], children: &[u64], out: &mut [u8]) {
    let (header, words) = out.split_at_mut(LONG_HEADER_BYTES);
    header.fill(0);
    header[0..4].copy_from_slice(&BMBT_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&level.to_be_bytes());
    header[6..8].copy_from_slice(&(keys.len() as u16).to_be_bytes());
    // No siblings.
    header[8..24].fill(0xff);
    for (place, word) in words.chunks_exact_mut(8).zip(keys.iter().chain(children)) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// A logged inode.
#[derive(Clone, Copy, Debug)]
pub struct LoggedInode<'a> {
    /// Its number.
    pub inode: InodeNumber,
    /// The parts of the inode that the item carries.
    pub fields: InodeFields,
    /// Where its cluster lies.
    pub address: DiskAddress,
    /// Length of the cluster.
    pub basic_blocks: u16,
    /// Its offset there in bytes.
    pub offset: usize,
    device: u32,
    core: &'a [u8],
    data: Option<&'a [u8]>,
    attr: Option<&'a [u8]>,
}

impl<'a> LoggedInode<'a> {
    /// Decodes the first region alone: which inode it is, and where.
    ///
    /// # Errors
    /// A corruption of the "logged inode".
    pub fn decode_format(geometry: &Geometry, region: &[u8]) -> Verdict<Self> {
        let fields = Fields::new(NAME, region, 52)?;
        let gap = if region.len() >= 56 { 4 } else { 0 };
        let inode = InodeNumber(fields.u64(12 + gap)?);
        let (address, length) = (fields.u64(36 + gap)?, fields.u32(44 + gap)?);
        let offset = fields.u32(48 + gap)? as usize;
        let place = geometry.split_inode(inode).map(|(ag, within)| {
            let block = geometry.address(ag, geometry.inode_block(within));
            block.bytes() + geometry.inode_offset_in_block(within) as u64
        });
        let Some(place) = place else {
            return Err(crate::Corruption::new(NAME, "inode lies on the device").of(inode.0));
        };
        let fits = (1..=256).contains(&length)
            && offset + geometry.inode_bytes() <= length as usize * BASIC_BLOCK_BYTES
            && address < 1 << 54
            && DiskAddress(address).bytes() + offset as u64 == place;
        if !fits {
            return Err(crate::Corruption::new(NAME, "its place is the inode's")
                .of(inode.0)
                .found(format_args!("{length} sectors at {address}, offset {offset}")));
        }
        Ok(Self {
            inode,
            fields: InodeFields::from_bits_retain(fields.u32(4)?),
            address: DiskAddress(address),
            basic_blocks: length as u16,
            offset,
            device: fields.u32(20 + gap)?,
            core: &[],
            data: None,
            attr: None,
        })
    }

    /// Decodes an inode item.
    ///
    /// # Errors
    /// A corruption of the "logged inode".
    pub fn decode(geometry: &Geometry, regions: &[&'a [u8]]) -> Verdict<Self> {
        let first = regions.first().copied().unwrap_or_default();
        let mut item = Self::decode_format(geometry, first)?;
        let fields = Fields::new(NAME, first, 52)?;
        let (attr_bytes, data_bytes) = (usize::from(fields.u16(8)?), usize::from(fields.u16(10)?));
        let mut rest = regions[1..].iter().copied();
        item.core = rest.next().unwrap_or_default();
        let check = |holds: bool, check: &'static str| {
            if holds { Ok(()) } else { Err(crate::Corruption::new(NAME, check).of(item.inode.0)) }
        };
        check(item.core.len() == INODE_CORE_BYTES, "its core is whole")?;
        check(item.core[..2] == INODE_MAGIC.to_le_bytes() && item.core[4] == 3, "magic number and version 3")?;
        let one_form = |set: InodeFields| (item.fields & set).bits().count_ones() <= 1;
        check(one_form(InodeFields::DATA) && one_form(InodeFields::ATTR), "one form of each fork")?;
        let mut fork = |set: InodeFields, bytes: usize| -> Verdict<Option<&'a [u8]>> {
            if !item.fields.intersects(set) || bytes == 0 {
                return Ok(None);
            }
            let region = rest.next().unwrap_or_default();
            check(region.len() >= bytes && region.len() < bytes + 4, "its forks are whole")?;
            Ok(Some(&region[..bytes]))
        };
        let (data, attr) = (fork(InodeFields::DATA, data_bytes)?, fork(InodeFields::ATTR, attr_bytes)?);
        check(rest.next().is_none(), "no region is left over")?;
        Ok(Self { data, attr, ..item })
    }

    /// Writes what was logged into `slot`, the inode in its cluster. The link of the unlinked list stays as it is: the
    /// cluster's own items carry it. The checksum is left to the caller.
    ///
    /// # Errors
    /// A corruption when a fork does not fit the inode.
    pub fn apply(&self, geometry: &Geometry, lsn: Lsn, slot: &mut [u8]) -> Verdict {
        let has_large_counts = self.word64(120) & flags2::NREXT64 != 0;
        let ensure = |holds: bool, check: &'static str| {
            if holds { Ok(()) } else { Err(crate::Corruption::new(NAME, check).of(self.inode.0)) }
        };
        ensure(!has_large_counts || geometry.has_large_extent_counts(), "large extent counters are a feature")?;
        let literal = geometry.literal_area_bytes();
        let fork_start = usize::from(self.core[82]) * 8;
        ensure(fork_start < literal, "attr fork starts within the inode")?;
        self.core_to_disk(lsn, slot);
        let data_bytes = if fork_start == 0 { literal } else { fork_start };
        let (_, forks) = slot.split_at_mut(INODE_CORE_BYTES);
        let (data, attr) = forks.split_at_mut(data_bytes);
        if self.fields.contains(InodeFields::DEVICE) {
            data[..4].copy_from_slice(&self.device.to_be_bytes());
        }
        if let Some(region) = self.data {
            ensure(put_fork(region, self.fields.contains(InodeFields::DATA_ROOT), data), "data fork fits the inode")?;
        }
        if let Some(region) = self.attr {
            ensure(put_fork(region, self.fields.contains(InodeFields::ATTR_ROOT), attr), "attr fork fits the inode")?;
        }
        Ok(())
    }

    fn word64(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.core[at..at + 8]);
        u64::from_le_bytes(word)
    }

    /// Converts every field of the core to the disk's byte order; a legacy timestamp is two words.
    fn core_to_disk(&self, lsn: Lsn, slot: &mut [u8]) {
        let bigtime = self.word64(120) & flags2::BIGTIME != 0;
        let mut swap = |at: usize, bytes: usize| {
            for index in 0..bytes {
                slot[at + index] = self.core[at + bytes - 1 - index];
            }
        };
        for at in [0, 2, 20, 22, 80, 88, 90] {
            swap(at, 2);
        }
        for at in [4, 5, 82, 83] {
            swap(at, 1);
        }
        for at in [8, 12, 16, 72, 76, 84, 92, 128] {
            swap(at, 4);
        }
        for at in [24, 56, 64, 104, 120, 152] {
            swap(at, 8);
        }
        for at in [32, 40, 48, 144] {
            if bigtime {
                swap(at, 8);
            } else {
                swap(at, 4);
                swap(at + 4, 4);
            }
        }
        slot[6..8].fill(0);
        slot[132..144].fill(0);
        slot[160..176].copy_from_slice(&self.core[160..176]);
        slot[INODE_LSN_OFFSET..INODE_LSN_OFFSET + 8].copy_from_slice(&lsn.0.to_be_bytes());
    }
}

/// Copies a logged fork into the inode; false when it does not fit.
fn put_fork(region: &[u8], is_root: bool, fork: &mut [u8]) -> bool {
    if is_root {
        return put_root(region, fork).is_some();
    }
    let Some(place) = fork.get_mut(..region.len()) else { return false };
    place.copy_from_slice(region);
    true
}

/// A btree root is logged with the header of a whole block, and its pointers start after room for as many keys as fit
/// the region. In the inode it has a header of 4 bytes, and its pointers start after room for as many keys as fit the
/// fork.
fn put_root(region: &[u8], fork: &mut [u8]) -> Option<()> {
    let header = region.get(..LONG_HEADER_BYTES)?;
    let records = usize::from(u16::from_be_bytes([header[6], header[7]]));
    let (logged_room, room) = ((region.len() - LONG_HEADER_BYTES) / 16, fork.len().checked_sub(4)? / 16);
    let is_root = header[..4] == BMBT_MAGIC.to_be_bytes() && header[4..6] != [0, 0];
    if !is_root || records == 0 || records > logged_room || records > room {
        return None;
    }
    fork[..4].copy_from_slice(&header[4..8]);
    let keys = &region[LONG_HEADER_BYTES..];
    fork[4..4 + 8 * records].copy_from_slice(&keys[..8 * records]);
    let (from, to) = (8 * logged_room, 4 + 8 * room);
    fork[to..to + 8 * records].copy_from_slice(&keys[from..from + 8 * records]);
    Some(())
}
