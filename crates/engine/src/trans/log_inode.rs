//! Inodes as the journal carries them: a format, the core, and the parts of the forks that changed since the last
//! write-back.

use crate::incore::{AttrFork, DataFork, ForkMap, Inode, InodeState};
use crate::item::DirtyBits;
use crate::journal::{Batch, RegionEnds, Regions};
use std::sync::Arc;
use xfskit_ondisk::extent::EXTENT_RECORD_BYTES;
use xfskit_ondisk::inode::{INODE_CORE_BYTES, flags2};
use xfskit_ondisk::logged::inode::{FORMAT_BYTES, InodeFields, InodeFormat, encode_root, root_bytes};
use xfskit_ondisk::{DiskAddress, ForkFormat, Geometry};

/// Logs an inode of which the fields `changed` were changed.
#[inline]
pub(super) fn log_inode(
    batch: &mut Batch<'_>,
    inode: &Arc<Inode>,
    state: &mut InodeState,
    changed: InodeFields,
    geometry: &Geometry,
) {
    let core = &mut state.core;
    core.change_count = core.change_count.wrapping_add(1);
    if geometry.has_bigtime() {
        // The feature may have been switched on after the inode was made.
        core.flags2 |= flags2::BIGTIME;
    }
    state.times_wait = false;
    let state = &*state;
    batch.log_inode(inode, |inner| {
        inner.dirty.merge(&DirtyBits::of(changed.bits().into()));
        InodeCopy::new(inode, state, InodeFields::from_bits_truncate(inner.dirty.low_word()), geometry)
    });
}

/// The contents of the copy of an inode.
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
    #[inline]
    fn new(inode: &'a Inode, state: &'a InodeState, fields: InodeFields, geometry: &Geometry) -> Self {
        let data = ForkRegion::of_data(&state.data, fields);
        let attr = state.attr.as_ref().and_then(|fork| ForkRegion::of_attrs(fork, fields));
        let field_of =
            |region: &Option<ForkRegion<'_>>| region.as_ref().map_or(InodeFields::empty(), |region| region.field);
        let mut logged = InodeFields::CORE | field_of(&data) | field_of(&attr);
        if fields.contains(InodeFields::DEVICE) && state.core.data_format == ForkFormat::Dev {
            logged |= InodeFields::DEVICE;
        }
        Self { inode, state, logged, data, attr, cluster_bytes: geometry.inode_cluster_bytes() }
    }

    fn format(&self) -> InodeFormat {
        let bytes_of = |region: &Option<ForkRegion<'_>>| region.as_ref().map_or(0, |region| region.log_bytes);
        InodeFormat {
            inode: self.state.core.inode,
            fields: self.logged,
            data_bytes: bytes_of(&self.data),
            attr_bytes: bytes_of(&self.attr),
            device: if let DataFork::Dev(device) = self.state.data { device } else { 0 },
            address: DiskAddress(self.inode.cluster()),
            cluster_bytes: self.cluster_bytes,
            offset: self.inode.offset_in_cluster(),
        }
    }
}

impl Regions for InodeCopy<'_> {
    #[inline]
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
        self.format().encode(format);
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

/// The region of a fork in a log item; never empty.
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
            Contents::Mapped(ForkMap::Btree(root)) => root_bytes(root.keys.len()),
        };
        (log_bytes > 0).then_some(Self { field, contents, log_bytes })
    }

    /// Writes the region and its padding to the start of `out`. Returns the bytes behind it.
    fn fill<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        let (region, behind) = out.split_at_mut(self.log_bytes.next_multiple_of(4));
        // The padding is at most three bytes, so they are in these four.
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
            Contents::Mapped(ForkMap::Btree(root)) => encode_root(root.level, &root.keys, &root.children, out),
        }
    }
}
