//! How much log space each kind of transaction reserves, and the smallest log with room for the largest of them.
//!
//! A reservation is the worst case of what one transaction of a chain logs: `bytes` for each, and `count` for how
//! many of the chain are reserved ahead. The terms are buffers (with [`BUFFER_OVERHEAD`] each), inodes, and for every
//! extent allocated or freed a split of every level of the free space and rmap trees.
//!
//! The kernel refuses a log that is smaller than its own figure, so these must be equal to the kernel's, its
//! historical overestimates included ([`Reservations::for_minimum_log`]).
//!
//! Facts: the kernel's `xfs_trans_resv.c`, `xfs_trans_space.h` and `xfs_log_rlimit.c`.

use crate::{BASIC_BLOCK_BYTES, Geometry, Limits};

/// Log space that every buffer of a transaction takes on top of its contents, in bytes.
pub const BUFFER_OVERHEAD: u32 = 128;
/// Greatest height of a directory's or attr fork's btree of names.
pub const MAX_NAME_TREE_LEVELS: u32 = 5;
/// Six quota records with their headers. Reserved even without quota.
const QUOTA_BYTES: u32 = 6 * (24 + 104);
/// Size of an op header in the log.
const OP_HEADER_BYTES: u32 = 12;
/// Longest target of a symbolic link.
const SYMLINK_MAX_BYTES: u32 = 1024;
/// Longest name, with its terminator, as the kernel counts it.
const NAME_MAX_BYTES: u32 = 256;
/// The rmapbt's height that the first releases with reflink assumed whatever the size of the AG.
const OLD_REFLINK_RMAP_LEVELS: u32 = 9;
/// Log counts that the first releases with reflink assumed.
const OLD_REFLINK_COUNT: u32 = 8;
/// The log must be this many times the largest transaction.
const MIN_LOG_FACTOR: u64 = 3;
/// An attr intent that names one parent pointer: the intent, the name and its record.
const PARENT_INTENT_BYTES: u32 = 40 + 12 + 256;
/// An attr intent that replaces one parent pointer with another.
const PARENT_REPLACE_INTENT_BYTES: u32 = 40 + 2 * (12 + 256);

/// The log space of one kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Bytes that one transaction of the chain can log.
    pub bytes: u32,
    /// Transactions of the chain that are reserved ahead.
    pub count: u32,
}

impl Reservation {
    const fn new(bytes: u32, count: u32) -> Self {
        Self { bytes, count }
    }

    fn total(self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }
}

/// The reservations of an image, by the kernel's names of the transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields carry the kernel's names of the transactions.
pub struct Reservations {
    pub write: Reservation,
    pub itruncate: Reservation,
    pub rename: Reservation,
    pub link: Reservation,
    pub remove: Reservation,
    pub symlink: Reservation,
    pub create: Reservation,
    pub create_tmpfile: Reservation,
    pub mkdir: Reservation,
    pub ifree: Reservation,
    pub ichange: Reservation,
    pub growdata: Reservation,
    pub addafork: Reservation,
    pub attrinval: Reservation,
    pub attrsetm: Reservation,
    /// To be multiplied by the blocks that the attribute needs and added to `attrsetm`.
    pub attrsetrt: Reservation,
    pub attrrm: Reservation,
    pub clearagi: Reservation,
    pub fsyncts: Reservation,
    pub writeid: Reservation,
    pub growrtalloc: Reservation,
    pub qm_setqlim: Reservation,
    pub qm_dqalloc: Reservation,
    pub sb: Reservation,
}

impl Reservations {
    /// The reservations that transactions on an image of this geometry make.
    pub fn new(geometry: &Geometry) -> Self {
        Sizes::new(geometry, Limits::new(geometry)).reservations()
    }

    /// The reservations that count for the smallest log. Before parent pointers, which no old release knows, they
    /// keep the overestimates of the first releases with reflink: an image must not get a log that those refuse.
    pub fn for_minimum_log(geometry: &Geometry) -> Self {
        let mut limits = Limits::new(geometry);
        if geometry.has_parent() {
            return Sizes::new(geometry, limits).reservations();
        }
        if geometry.has_rmap() && geometry.has_reflink() {
            limits.rmap_levels = OLD_REFLINK_RMAP_LEVELS;
        }
        let sizes = Sizes::new(geometry, limits);
        let mut all = sizes.reservations();
        let count = match (geometry.has_reflink(), geometry.has_rmap()) {
            (true, _) => Some(OLD_REFLINK_COUNT),
            (false, true) => Some(2),
            (false, false) => None,
        };
        for kind in [&mut all.write, &mut all.itruncate, &mut all.qm_dqalloc] {
            kind.count = count.unwrap_or(kind.count);
        }
        all.write.bytes = sizes.write(true);
        all.itruncate.bytes = sizes.itruncate(true);
        all.qm_dqalloc.bytes = sizes.quota_allocation(true);
        all
    }

    /// The largest of all, count included; of equal ones the first in the kernel's order.
    fn largest(&self) -> Reservation {
        let all = [
            self.write,
            self.itruncate,
            self.rename,
            self.link,
            self.remove,
            self.symlink,
            self.create,
            self.create_tmpfile,
            self.mkdir,
            self.ifree,
            self.ichange,
            self.growdata,
            self.addafork,
            self.writeid,
            self.attrinval,
            self.attrsetm,
            self.attrsetrt,
            self.attrrm,
            self.clearagi,
            self.growrtalloc,
            self.qm_setqlim,
            self.qm_dqalloc,
            self.sb,
            self.fsyncts,
        ];
        all.into_iter().reduce(|best, next| if next.total() > best.total() { next } else { best }).expect("not empty")
    }
}

/// Blocks that a new name in a directory or a new attribute can add to a fork.
fn entry_space(limits: &Limits, blocks_each: u32, levels: u32, fork_levels: u32) -> u32 {
    blocks_each * levels + levels * extent_space(limits, blocks_each.into(), fork_levels) as u32
}

/// Blocks that `extents` new extents can add to a fork's extent map.
fn extent_space(limits: &Limits, extents: u64, fork_levels: u32) -> u64 {
    let contiguous = u64::from(limits.alloc.max_leaf - limits.alloc.min_leaf);
    extents.div_ceil(contiguous) * u64::from(fork_levels - 1)
}

/// Blocks that a new name of a directory can take: its own tree and the fork's extent map.
pub fn directory_entry_space(geometry: &Geometry, limits: &Limits) -> u32 {
    entry_space(limits, geometry.dir_block_blocks(), MAX_NAME_TREE_LEVELS + 2, limits.data_levels)
}

/// Blocks that a new attribute can take, its remote value aside.
pub fn attribute_space(limits: &Limits) -> u32 {
    entry_space(limits, 1, MAX_NAME_TREE_LEVELS, limits.attr_levels)
}

/// The terms that the reservations are made of.
struct Sizes<'a> {
    geometry: &'a Geometry,
    limits: Limits,
    block: u32,
    sector: u32,
}

/// Log space of `count` buffers of `bytes` bytes.
fn buffers(count: u32, bytes: u32) -> u32 {
    count * (bytes + BUFFER_OVERHEAD)
}

impl<'a> Sizes<'a> {
    fn new(geometry: &'a Geometry, limits: Limits) -> Self {
        Self { geometry, limits, block: geometry.block_bytes() as u32, sector: geometry.sector_bytes() as u32 }
    }

    fn blocks(&self, count: u32) -> u32 {
        buffers(count, self.block)
    }

    fn sectors(&self, count: u32) -> u32 {
        buffers(count, self.sector)
    }

    /// The cores and forks of `count` inodes, whose map roots are logged with the header of a block.
    fn inodes(&self, count: u32) -> u32 {
        count * (4 * OP_HEADER_BYTES + 56 + self.geometry.inode_bytes() as u32 + 2 * 72)
    }

    /// Splits of the free space and rmap trees by `extents` extents that are allocated or freed.
    fn extents(&self, extents: u32) -> u32 {
        let rmap = if self.geometry.has_rmap() { 2 * self.limits.rmap_levels - 1 } else { 0 };
        self.blocks(extents * (2 * (2 * self.limits.alloc_levels - 1) + rmap))
    }

    fn refcount_splits(&self, count: u32) -> u32 {
        if self.geometry.has_reflink() { self.blocks(count * (2 * self.limits.refcount_levels - 1)) } else { 0 }
    }

    /// A transaction of its own that changes reference counts.
    fn refcounts(&self, count: u32) -> u32 {
        if self.geometry.has_reflink() { self.sectors(count) + self.refcount_splits(count) } else { 0 }
    }

    fn write(&self, for_minimum_log: bool) -> u32 {
        let map = self.inodes(1) + self.blocks(self.limits.data_levels) + self.sectors(3) + self.extents(2);
        let free = self.sectors(5) + self.extents(2);
        if for_minimum_log {
            return QUOTA_BYTES + map.max(free) + self.refcount_splits(2);
        }
        QUOTA_BYTES + map.max(free).max(self.refcounts(1))
    }

    fn itruncate(&self, for_minimum_log: bool) -> u32 {
        let unmap = self.inodes(1) + self.blocks(self.limits.data_levels + 1);
        let free = self.sectors(9) + self.extents(4);
        if for_minimum_log {
            return QUOTA_BYTES + unmap.max(free + self.refcount_splits(4));
        }
        QUOTA_BYTES + unmap.max(free).max(self.refcounts(2))
    }

    fn quota_allocation(&self, for_minimum_log: bool) -> u32 {
        self.write(for_minimum_log) + buffers(1, self.block - 1)
    }

    /// Changes of one directory: its blocks and its extent map.
    fn directory(&self, count: u32) -> u32 {
        self.blocks(count * (directory_entry_space(self.geometry, &self.limits) + 1))
    }

    fn inode_cluster(&self) -> u32 {
        self.geometry.inode_cluster_bytes() as u32
    }

    fn unlinked_add(&self) -> u32 {
        self.sectors(1) + self.inode_cluster()
    }

    fn unlinked_remove(&self) -> u32 {
        self.sectors(1) + 2 * self.inode_cluster()
    }

    fn inobt(&self) -> u32 {
        self.blocks(self.limits.inobt_levels) + self.extents(1)
    }

    fn finobt(&self) -> u32 {
        if self.geometry.has_finobt() { self.inobt() } else { 0 }
    }

    fn inode_chunk_allocation(&self) -> u32 {
        self.sectors(2) + self.sector + self.extents(1) + self.inobt() + self.finobt()
    }

    fn attrsetm(&self) -> u32 {
        QUOTA_BYTES + self.inodes(1) + self.sectors(1) + self.blocks(MAX_NAME_TREE_LEVELS)
    }

    fn attrrm(&self) -> u32 {
        let join = self.inodes(1)
            + self.blocks(MAX_NAME_TREE_LEVELS)
            + self.limits.attr_levels * self.block
            + buffers(self.limits.data_levels, 0);
        QUOTA_BYTES + join.max(self.sectors(5) + self.extents(2))
    }

    /// A change of names: `overhead` in any case, then the larger of the alternatives. With parent pointers each
    /// transaction of the chain may carry the attr intents, and one of them changes an attribute.
    fn names(&self, overhead: u32, alternatives: u32, intents: u32, attribute: u32) -> u32 {
        let quota = QUOTA_BYTES + overhead;
        if self.geometry.has_parent() { quota + intents + alternatives.max(attribute) } else { quota + alternatives }
    }

    fn create(&self) -> u32 {
        let modify = self.inodes(2) + self.sectors(1) + self.block + self.directory(1) + self.finobt();
        self.names(0, self.inode_chunk_allocation().max(modify), PARENT_INTENT_BYTES, self.attrsetm())
    }

    fn rename(&self) -> u32 {
        let change = self.inodes(5) + self.directory(2);
        let free = self.sectors(7) + self.extents(3);
        // One pointer replaced, one removed and one added; or two replaced.
        let intents = (PARENT_REPLACE_INTENT_BYTES + 2 * PARENT_INTENT_BYTES).max(2 * PARENT_REPLACE_INTENT_BYTES);
        self.names(0, change.max(free), intents, self.attrsetm().max(self.attrrm()))
    }

    fn link(&self) -> u32 {
        let change = self.inodes(2) + self.directory(1);
        let free = self.sectors(3) + self.extents(1);
        self.names(self.unlinked_remove(), change.max(free), PARENT_INTENT_BYTES, self.attrsetm())
    }

    fn remove(&self) -> u32 {
        let change = self.inodes(2) + self.directory(1);
        let free = self.sectors(4) + self.extents(2);
        self.names(self.unlinked_add(), change.max(free), PARENT_INTENT_BYTES, self.attrrm())
    }

    fn ifree(&self) -> u32 {
        let chunk = self.extents(1) + buffers(self.chunk_blocks(), 0);
        QUOTA_BYTES + self.inodes(1) + self.sectors(3) + self.unlinked_remove() + chunk + self.inobt() + self.finobt()
    }

    fn chunk_blocks(&self) -> u32 {
        self.geometry.inodes_per_allocation() / self.geometry.inodes_per_block()
    }

    fn addafork(&self) -> u32 {
        let dir_blocks = self.geometry.dir_block_blocks();
        let map = extent_space(&self.limits, dir_blocks.into(), self.limits.data_levels) as u32 + 1;
        QUOTA_BYTES
            + self.inodes(1)
            + self.sectors(2)
            + buffers(1, self.geometry.dir_block_bytes() as u32)
            + self.blocks(map)
            + self.extents(1)
    }

    fn attrinval(&self) -> u32 {
        let unmap = self.inodes(1) + self.blocks(self.limits.attr_levels);
        unmap.max(self.sectors(9) + self.extents(4))
    }

    fn reservations(&self) -> Reservations {
        let geometry = self.geometry;
        let features = u32::from(geometry.has_reflink() || geometry.has_rmap())
            + u32::from(geometry.has_reflink())
            + u32::from(geometry.has_rmap());
        let parent = if geometry.has_parent() { 3 } else { 0 };
        Reservations {
            write: Reservation::new(self.write(false), 2 + features),
            itruncate: Reservation::new(self.itruncate(false), 2 + features),
            rename: Reservation::new(self.rename(), 2 + parent),
            link: Reservation::new(self.link(), 2 + parent),
            remove: Reservation::new(self.remove(), 2 + parent),
            symlink: Reservation::new(self.create() + buffers(1, SYMLINK_MAX_BYTES), 3 + parent),
            create: Reservation::new(self.create(), 2 + parent),
            create_tmpfile: Reservation::new(QUOTA_BYTES + self.inode_chunk_allocation() + self.unlinked_add(), 2),
            mkdir: Reservation::new(self.create(), 3 + parent),
            ifree: Reservation::new(self.ifree(), 2),
            ichange: Reservation::new(QUOTA_BYTES + self.inodes(1) + self.sectors(1), 1),
            growdata: Reservation::new(self.sectors(3) + self.extents(1), 2),
            addafork: Reservation::new(self.addafork(), 2),
            attrinval: Reservation::new(self.attrinval(), 1),
            attrsetm: Reservation::new(self.attrsetm(), 3),
            attrsetrt: Reservation::new(self.sectors(1) + self.blocks(self.limits.attr_levels), 1),
            attrrm: Reservation::new(self.attrrm(), 3),
            clearagi: Reservation::new(self.sectors(1), 1),
            fsyncts: Reservation::new(self.inodes(1), 1),
            writeid: Reservation::new(self.inodes(1), 1),
            growrtalloc: Reservation::new(
                self.sectors(2) + self.blocks(self.limits.data_levels) + self.inodes(1) + self.extents(1),
                2,
            ),
            qm_setqlim: Reservation::new(buffers(1, 104), 1),
            qm_dqalloc: Reservation::new(self.quota_allocation(false), 2 + features),
            sb: Reservation::new(self.sectors(1), 1),
        }
    }
}

/// Bytes that a transaction reserving `bytes` takes in the log at worst: op headers, record headers, and padding of
/// the data and of the commit record, whose records may each be filled up to the log stripe unit.
pub fn log_unit_bytes(geometry: &Geometry, bytes: u32) -> u64 {
    const RECORD_BYTES: u64 = 256 * 1024;
    /// A header describes 32 KiB of a record, so the largest record has eight.
    const RECORD_HEADER_BYTES: u64 = RECORD_BYTES / (32 * 1024) * BASIC_BLOCK_BYTES as u64;
    const RECORD_SPACE: u64 = RECORD_BYTES - RECORD_HEADER_BYTES;
    let op_header = u64::from(OP_HEADER_BYTES);
    // The transaction header with its op header, and the op header of the start.
    let mut total = u64::from(bytes) + 2 * op_header + 16;
    let mut records = total.div_ceil(RECORD_SPACE);
    total += op_header * records;
    while total.div_ceil(RECORD_SPACE) > records {
        total += op_header;
        records += 1;
    }
    // One more record header for the commit record.
    total += RECORD_HEADER_BYTES * (records + 1);
    total + 2 * u64::from(geometry.log_stripe_unit_bytes.max(BASIC_BLOCK_BYTES as u32))
}

/// The largest reservation that setting an attribute can make: the longest value that is stored in a leaf.
fn largest_attribute_set(geometry: &Geometry) -> u64 {
    let (limits, all) = (Limits::new(geometry), Reservations::new(geometry));
    let block = geometry.block_bytes() as u64;
    let bytes = (block / 2 + block / 4).saturating_sub(u64::from(NAME_MAX_BYTES) + 1);
    let value_blocks = bytes.div_ceil(block);
    // The kernel once took bytes for blocks here. Images that old releases read keep that formula.
    let extents = if geometry.has_parent() { value_blocks } else { bytes };
    let blocks =
        u64::from(attribute_space(&limits)) + value_blocks + extent_space(&limits, extents, limits.attr_levels);
    u64::from(all.attrsetm.bytes) + u64::from(all.attrsetrt.bytes) * blocks
}

/// The smallest log that the kernel mounts an image of this geometry with, in blocks.
pub fn minimum_log_blocks(geometry: &Geometry) -> u64 {
    let all = Reservations::for_minimum_log(geometry);
    let mut largest = all.largest();
    let attribute = largest_attribute_set(geometry);
    if attribute > largest.total() {
        largest = Reservation { bytes: attribute as u32, count: all.attrsetm.count };
    }
    let basic_block = BASIC_BLOCK_BYTES as u64;
    let needed = (log_unit_bytes(geometry, largest.bytes) * u64::from(largest.count)).div_ceil(basic_block);
    let unit = u64::from(geometry.log_stripe_unit_bytes) / basic_block;
    // Two units for the padding of a transaction that waits while another one is being written. Without a unit the
    // kernel adds as many basic blocks as a basic block has bytes.
    let padded = if unit > 1 { needed.next_multiple_of(unit) + 2 * unit } else { needed + 2 * basic_block };
    (padded * MIN_LOG_FACTOR).div_ceil(1 << (geometry.block_log - 9))
}
