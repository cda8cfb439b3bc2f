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
use crate::{BASIC_BLOCK_BYTES, DiskAddress, Geometry, InodeNumber, Lsn, Verdict};

const NAME: &str = "logged inode";

/// Parts of an inode that an item carries.
pub mod inode_fields {
    /// Local contents of the data fork.
    pub const DATA_LOCAL: u32 = 0x002;
    /// Extent records of the data fork.
    pub const DATA_EXTENTS: u32 = 0x004;
    /// Btree root of the data fork.
    pub const DATA_ROOT: u32 = 0x008;
    /// The device number.
    pub const DEVICE: u32 = 0x010;
    /// Local contents of the attr fork.
    pub const ATTR_LOCAL: u32 = 0x040;
    /// Extent records of the attr fork.
    pub const ATTR_EXTENTS: u32 = 0x080;
    /// Btree root of the attr fork.
    pub const ATTR_ROOT: u32 = 0x100;
    /// The blocks of the data fork's btree have a new owner.
    pub const DATA_OWNER: u32 = 0x200;
    /// The blocks of the attr fork's btree have a new owner.
    pub const ATTR_OWNER: u32 = 0x400;

    /// All forms of the data fork.
    pub const DATA: u32 = DATA_LOCAL | DATA_EXTENTS | DATA_ROOT;
    /// All forms of the attr fork.
    pub const ATTR: u32 = ATTR_LOCAL | ATTR_EXTENTS | ATTR_ROOT;
}

/// A logged inode.
#[derive(Clone, Copy, Debug)]
pub struct LoggedInode<'a> {
    /// Its number.
    pub inode: InodeNumber,
    /// Bits of [`inode_fields`].
    pub fields: u32,
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
            fields: fields.u32(4)?,
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
        let one_form = |set: u32| (item.fields & set).count_ones() <= 1;
        check(one_form(inode_fields::DATA) && one_form(inode_fields::ATTR), "one form of each fork")?;
        let mut fork = |set: u32, bytes: usize| -> Verdict<Option<&'a [u8]>> {
            if item.fields & set == 0 || bytes == 0 {
                return Ok(None);
            }
            let region = rest.next().unwrap_or_default();
            check(region.len() >= bytes && region.len() < bytes + 4, "its forks are whole")?;
            Ok(Some(&region[..bytes]))
        };
        let (data, attr) = (fork(inode_fields::DATA, data_bytes)?, fork(inode_fields::ATTR, attr_bytes)?);
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
        if self.fields & inode_fields::DEVICE != 0 {
            data[..4].copy_from_slice(&self.device.to_be_bytes());
        }
        if let Some(region) = self.data {
            ensure(put_fork(region, self.fields & inode_fields::DATA_ROOT != 0, data), "data fork fits the inode")?;
        }
        if let Some(region) = self.attr {
            ensure(put_fork(region, self.fields & inode_fields::ATTR_ROOT != 0, attr), "attr fork fits the inode")?;
        }
        Ok(())
    }

    fn word64(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.core[at..at + 8]);
        u64::from_le_bytes(word)
    }

    /// Every field of the core changes its byte order; timestamps of the older kind are two words.
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

/// Puts a logged fork into its place; false when it does not fit.
fn put_fork(region: &[u8], is_root: bool, fork: &mut [u8]) -> bool {
    if is_root {
        return put_root(region, fork).is_some();
    }
    let Some(place) = fork.get_mut(..region.len()) else { return false };
    place.copy_from_slice(region);
    true
}

/// A btree root is logged with the header of a whole block, and with its pointers behind room for as many keys as the
/// region has. In the inode it has a header of 4 bytes, and its pointers come behind room for as many keys as the
/// fork has.
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
