//! Inodes as the journal carries them: a format, the core, and the parts of the forks that changed since the last write-back.

use super::{HeldInode, InodeFields};
use crate::cache::{AttrFork, DataFork, ForkMap, Inode, InodeState, MapRoot};
use crate::item::DirtyBits;
use crate::journal::{Batch, RegionEnds, Regions};
use xfskit_ondisk::btree::{BMBT_MAGIC, LONG_HEADER_BYTES};
use xfskit_ondisk::extent::EXTENT_RECORD_BYTES;
use xfskit_ondisk::inode::{INODE_CORE_BYTES, flags2};
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, ForkFormat, Geometry};

/// Logs an inode that changed.
pub(super) fn log_inode(batch: &mut Batch<'_>, held: &mut HeldInode, geometry: &Geometry) {
    let core = &mut held.state.exclusive().core;
    core.change_count = core.change_count.wrapping_add(1);
    if geometry.has_bigtime() {
        // The feature may have been switched on after the inode was made.
        core.flags2 |= flags2::BIGTIME;
    }
    let (inode, state) = (&held.inode, &*held.state);
    batch.log_inode(inode, |inner| {
        inner.dirty.merge(&DirtyBits::of(held.dirty.bits().into()));
        InodeCopy::new(inode, state, InodeFields::from_bits_truncate(inner.dirty.low_word()), geometry)
    });
}

/// Bytes of the first region of an inode's log item.
const FORMAT_BYTES: usize = 56;

/// What the copy of an inode holds.
struct InodeCopy<'a> {
    inode: &'a Inode,
    state: &'a InodeState,
    logged: InodeFields,
    data: Option<ForkRegion<'a>>,
    attr: Option<ForkRegion<'a>>,
    cluster_bytes: usize,
}

impl<'a> InodeCopy<'a> {
    /// The core, and the `fields` of the forks that still exist.
    fn new(inode: &'a Inode, state: &'a InodeState, fields: InodeFields, geometry: &Geometry) -> Self {
        let data = ForkRegion::of_data(&state.data, fields);
        let attr = state.attr.as_ref().and_then(|fork| ForkRegion::of_attrs(fork, fields));
        let field_of =
            |region: &Option<ForkRegion<'_>>| region.as_ref().map_or(InodeFields::empty(), |region| region.field);
        let mut logged = InodeFields::CORE | field_of(&data) | field_of(&attr);
        if fields.contains(InodeFields::DEV) && state.core.data_format == ForkFormat::Dev {
            logged |= InodeFields::DEV;
        }
        Self { inode, state, logged, data, attr, cluster_bytes: geometry.inode_cluster_bytes() }
    }

    /// The first region (the kernel's `struct xfs_inode_log_format`).
    fn fill_format(&self, out: &mut [u8]) {
        let regions = 2 + u16::from(self.data.is_some()) + u16::from(self.attr.is_some());
        let bytes_of = |region: &Option<ForkRegion<'_>>| region.as_ref().map_or(0, |region| region.log_bytes) as u16;
        let device = if let DataFork::Dev(device) = self.state.data { device } else { 0 };
        out.fill(0);
        out[0..2].copy_from_slice(&item_type::INODE.to_le_bytes());
        out[2..4].copy_from_slice(&regions.to_le_bytes());
        out[4..8].copy_from_slice(&self.logged.bits().to_le_bytes());
        out[8..10].copy_from_slice(&bytes_of(&self.attr).to_le_bytes());
        out[10..12].copy_from_slice(&bytes_of(&self.data).to_le_bytes());
        out[16..24].copy_from_slice(&self.state.core.inode.0.to_le_bytes());
        out[24..28].copy_from_slice(&device.to_le_bytes());
        out[40..48].copy_from_slice(&self.inode.cluster().to_le_bytes());
        out[48..52].copy_from_slice(&((self.cluster_bytes / BASIC_BLOCK_BYTES) as u32).to_le_bytes());
        out[52..56].copy_from_slice(&(self.inode.offset_in_cluster() as u32).to_le_bytes());
    }
}

impl Regions for InodeCopy<'_> {
    fn ends(&self) -> RegionEnds {
        let mut ends = RegionEnds::default();
        ends.push(FORMAT_BYTES);
        ends.push(INODE_CORE_BYTES);
        if let Some(region) = &self.data {
            ends.push(region.log_bytes);
        }
        if let Some(region) = &self.attr {
            ends.push(region.log_bytes);
        }
        ends
    }

    fn fill(&self, out: &mut [u8]) {
        let (format, rest) = out.split_at_mut(FORMAT_BYTES);
        self.fill_format(format);
        let (core, rest) = rest.split_at_mut(INODE_CORE_BYTES);
        self.state.core.encode_for_log(core);
        let rest = match &self.data {
            Some(region) => region.fill(rest),
            None => rest,
        };
        if let Some(region) = &self.attr {
            region.fill(rest);
        }
    }
}

/// What a fork contributes to a log item; never nothing.
struct ForkRegion<'a> {
    field: InodeFields,
    contents: Contents<'a>,
    log_bytes: usize,
}

enum Contents<'a> {
    Local(&'a [u8]),
    Mapped(&'a ForkMap),
}

impl<'a> ForkRegion<'a> {
    /// The part of a data fork that changed, if it has contents.
    fn of_data(fork: &'a DataFork, fields: InodeFields) -> Option<Self> {
        let (field, contents) = match fork {
            DataFork::Dev(_) => return None,
            DataFork::Local(bytes) => (InodeFields::DATA_LOCAL, Contents::Local(bytes)),
            DataFork::Mapped(map @ ForkMap::Extents(_)) => (InodeFields::DATA_EXTENTS, Contents::Mapped(map)),
            DataFork::Mapped(map @ ForkMap::Btree(_)) => (InodeFields::DATA_ROOT, Contents::Mapped(map)),
        };
        Self::if_logged(field, contents, fields)
    }

    /// The part of an attr fork that changed, if it has contents.
    fn of_attrs(fork: &'a AttrFork, fields: InodeFields) -> Option<Self> {
        let (field, contents) = match fork {
            AttrFork::Local(bytes) => (InodeFields::ATTR_LOCAL, Contents::Local(bytes)),
            AttrFork::Mapped(map @ ForkMap::Extents(_)) => (InodeFields::ATTR_EXTENTS, Contents::Mapped(map)),
            AttrFork::Mapped(map @ ForkMap::Btree(_)) => (InodeFields::ATTR_ROOT, Contents::Mapped(map)),
        };
        Self::if_logged(field, contents, fields)
    }

    fn if_logged(field: InodeFields, contents: Contents<'a>, fields: InodeFields) -> Option<Self> {
        if !fields.contains(field) {
            return None;
        }
        let log_bytes = match contents {
            Contents::Local(bytes) => bytes.len(),
            Contents::Mapped(ForkMap::Extents(extents)) => extents.len() * EXTENT_RECORD_BYTES,
            Contents::Mapped(ForkMap::Btree(root)) => LONG_HEADER_BYTES + 8 * (root.keys.len() + root.children.len()),
        };
        (log_bytes > 0).then_some(Self { field, contents, log_bytes })
    }

    /// Writes the region and its padding to the start of `out`; returns what is behind it.
    fn fill<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        let (region, behind) = out.split_at_mut(self.log_bytes.next_multiple_of(4));
        // No more than three bytes of padding.
        if let Some(last) = region.last_chunk_mut::<4>() {
            *last = [0; 4];
        }
        self.encode(&mut region[..self.log_bytes]);
        behind
    }

    fn encode(&self, out: &mut [u8]) {
        match self.contents {
            Contents::Local(bytes) => out.copy_from_slice(bytes),
            Contents::Mapped(ForkMap::Extents(extents)) => {
                for (record, extent) in out.chunks_exact_mut(EXTENT_RECORD_BYTES).zip(extents) {
                    record.copy_from_slice(&extent.encode());
                }
            }
            Contents::Mapped(ForkMap::Btree(root)) => encode_root_for_log(root, out),
        }
    }
}

/// A btree root as the journal carries it: with the header of a whole block.
fn encode_root_for_log(root: &MapRoot, out: &mut [u8]) {
    let (header, words) = out.split_at_mut(LONG_HEADER_BYTES);
    header.fill(0);
    header[0..4].copy_from_slice(&BMBT_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&root.level.to_be_bytes());
    header[6..8].copy_from_slice(&(root.keys.len() as u16).to_be_bytes());
    header[8..24].fill(0xff);
    for (place, word) in words.chunks_exact_mut(8).zip(root.keys.iter().chain(&root.children)) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}
