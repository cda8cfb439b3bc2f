//! Extent maps: the fork of an inode that says where its blocks are.
//!
//! A map is a list of records in the inode, or the root of a btree of them. Records are in order of fork blocks and do
//! not overlap; each lies within one AG. Every block that the map or its btree takes is noted as a [`Usage`].

use crate::context::Context;
use crate::report::{Consequence, Fault, Owner};
use crate::tree::{Child, TreeStart, TreeWalk};
use crate::usage::Usage;
use xfskit_ondisk::btree::{Bmbt, rmap_offset};
use xfskit_ondisk::extent::EXTENT_RECORD_BYTES;
use xfskit_ondisk::inode::INODE_CORE_BYTES;
use xfskit_ondisk::limits::{BMBT_ROOT_HEADER_BYTES, bmbt_root_max_records};
use xfskit_ondisk::{AgNumber, DiskAddress, Extent, FileBlock, ForkFormat, FsBlock, InodeCore, InodeNumber};

/// One of the two forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    Data,
    Attr,
}

/// An inode whose core was decoded.
#[derive(Clone, Copy)]
pub(crate) struct InodeView<'a> {
    pub(crate) number: InodeNumber,
    pub(crate) address: DiskAddress,
    pub(crate) core: &'a InodeCore,
    pub(crate) bytes: &'a [u8],
    /// It was checked before, and the faults of its core and maps were reported then.
    pub(crate) again: bool,
}

impl<'a> InodeView<'a> {
    /// The bytes of a fork in the inode.
    pub(crate) fn fork(&self, context: &Context<'_>, fork: Fork) -> &'a [u8] {
        let literal = &self.bytes[INODE_CORE_BYTES..];
        let data = self.core.data_fork_bytes(&context.geometry);
        match fork {
            Fork::Data => &literal[..data],
            Fork::Attr if self.core.fork_offset == 0 => &[],
            Fork::Attr => &literal[data..],
        }
    }

    fn format(&self, fork: Fork) -> ForkFormat {
        if fork == Fork::Data { self.core.data_format } else { self.core.attr_format }
    }

    fn recorded_extents(&self, fork: Fork) -> u64 {
        if fork == Fork::Data { self.core.data_extents } else { self.core.attr_extents.into() }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::Inode(self.number)
    }

    /// A fault of the inode itself.
    pub(crate) fn fault(&self, context: &Context<'_>, check: &'static str, found: String, what: Consequence) {
        context.report(Fault::new("inode", check, what).at(self.address).inode(self.number).found(found));
    }
}

/// The extents of a fork, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    pub(crate) extents: Vec<Extent>,
}

impl Map {
    /// The filesystem block of a fork block.
    pub(crate) fn block(&self, at: FileBlock) -> Option<FsBlock> {
        let index = self.extents.partition_point(|extent| extent.file_block <= at).checked_sub(1)?;
        let extent = &self.extents[index];
        (at < extent.end()).then(|| FsBlock(extent.block.0 + (at.0 - extent.file_block.0)))
    }

    /// Reads `blocks` fork blocks from `at`; the address is that of the first of them. `None` where one is not mapped
    /// or cannot be read.
    pub(crate) fn read(
        &self,
        context: &Context<'_>,
        at: FileBlock,
        blocks: u32,
        name: &'static str,
        owner: Owner,
    ) -> Option<(DiskAddress, Vec<u8>)> {
        let size = context.geometry.block_bytes();
        let first = self.block(at)?;
        let mut bytes = vec![0; blocks as usize * size];
        let mut done = 0u32;
        while done < blocks {
            let from = self.block(at.add(done.into()))?;
            let mut run = 1;
            while done + run < blocks
                && self.block(at.add((done + run).into())) == Some(FsBlock(from.0 + u64::from(run)))
            {
                run += 1;
            }
            let part = &mut bytes[done as usize * size..(done + run) as usize * size];
            if !context.read(context.address_of(from)?, part, name, owner) {
                return None;
            }
            done += run;
        }
        Some((context.address_of(first)?, bytes))
    }

    /// Blocks mapped in a range of the fork.
    pub(crate) fn blocks_in(&self, range: std::ops::Range<u64>) -> u64 {
        let within = |extent: &Extent| {
            let (start, end) = (extent.file_block.0.max(range.start), extent.end().0.min(range.end));
            end.saturating_sub(start)
        };
        self.extents.iter().map(within).sum()
    }

    /// The first fork block after the last one mapped below `limit`.
    pub(crate) fn end_below(&self, limit: u64) -> u64 {
        let index = self.extents.partition_point(|extent| extent.file_block.0 < limit);
        index.checked_sub(1).map_or(0, |last| self.extents[last].end().0.min(limit))
    }
}

/// The figures of a map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MapFigures {
    pub(crate) extents: u64,
    /// Blocks mapped, and those of the map's btree.
    pub(crate) blocks: u64,
    /// No part of the map was left out.
    pub(crate) whole: bool,
}

/// Reads the map of a fork: calls `take` for each extent, and adds the blocks to `usage`.
pub(crate) fn read_map(
    context: &Context<'_>,
    inode: &InodeView<'_>,
    fork: Fork,
    usage: &mut Vec<Usage>,
    take: &mut dyn FnMut(&Extent),
) -> MapFigures {
    let bytes = inode.fork(context, fork);
    let mut gather =
        Gather { context, inode, fork, usage, take, last: None, figures: MapFigures::default(), sound: true };
    match inode.format(fork) {
        ForkFormat::Extents => {
            let count = inode.recorded_extents(fork) as usize;
            for record in bytes.chunks_exact(EXTENT_RECORD_BYTES).take(count) {
                gather.extent(&Extent::decode(record.try_into().expect("a whole record")), inode.address);
            }
            gather.figures.whole = gather.sound;
        }
        ForkFormat::Btree => gather.btree(bytes),
        ForkFormat::Dev | ForkFormat::Local => gather.figures.whole = true,
    }
    gather.figures
}

struct Gather<'a, 'd> {
    context: &'a Context<'d>,
    inode: &'a InodeView<'a>,
    fork: Fork,
    usage: &'a mut Vec<Usage>,
    take: &'a mut dyn FnMut(&Extent),
    last: Option<Extent>,
    figures: MapFigures,
    sound: bool,
}

impl Gather<'_, '_> {
    fn fault(&mut self, address: DiskAddress, check: &'static str, found: String) {
        if self.inode.again {
            return;
        }
        let name = if self.fork == Fork::Data { "data fork extent" } else { "attr fork extent" };
        let fault = Fault::new(name, check, Consequence::Contents).at(address).inode(self.inode.number);
        self.context.report(fault.found(found));
    }

    fn extent(&mut self, extent: &Extent, address: DiskAddress) {
        if let Err(corruption) = extent.verify(&self.context.geometry) {
            self.fault(address, corruption.check, corruption.found.clone());
            self.sound = false;
            return;
        }
        if self.last.is_some_and(|last| extent.file_block < last.end()) {
            self.fault(address, "extents are in order and do not overlap", format!("{extent:?}"));
            self.sound = false;
            return;
        }
        if extent.unwritten && !(self.fork == Fork::Data && self.inode.core.is_regular()) {
            self.fault(address, "only files have unwritten extents", format!("{extent:?}"));
        }
        let (ag, start) = self.context.geometry.split_fs_block(extent.block).expect("the extent was verified");
        let mut offset = extent.file_block.0;
        if self.fork == Fork::Attr {
            offset |= rmap_offset::ATTR_FORK;
        }
        if extent.unwritten {
            offset |= rmap_offset::UNWRITTEN;
        }
        let count = extent.count as u32;
        let continues = |last: &Extent| {
            last.end() == extent.file_block
                && last.block.0 + last.count == extent.block.0
                && last.unwritten == extent.unwritten
        };
        // An extent record has 21 bits for the length, a reverse mapping more.
        match self.usage.last_mut() {
            Some(usage) if self.last.as_ref().is_some_and(continues) && usage.ag == ag => usage.count += count,
            _ => self.note(ag, start.0, count, offset),
        }
        self.figures.extents += 1;
        self.figures.blocks += extent.count;
        self.last = Some(*extent);
        (self.take)(extent);
    }

    fn note(&mut self, ag: AgNumber, start: u32, count: u32, offset: u64) {
        let may_share = self.fork == Fork::Data
            && offset & rmap_offset::BMBT_BLOCK == 0
            && self.inode.core.flags2 & xfskit_ondisk::inode::flags2::REFLINK != 0;
        self.usage.push(Usage { ag, start, count, may_share, owner: self.inode.number.0, offset });
    }

    fn btree(&mut self, root: &[u8]) {
        let address = self.inode.address;
        let most = bmbt_root_max_records(root.len()) as usize;
        let u16_at = |at: usize| root.get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        let (level, count) = (u16_at(0), u16_at(2));
        let limits = &self.context.limits;
        let most_levels = if self.fork == Fork::Data { limits.data_levels } else { limits.attr_levels };
        if level == 0 || level >= most_levels as usize || count == 0 || count > most {
            self.fault(address, "root of the btree", format!("level {level}, {count} records of at most {most}"));
            return;
        }
        if self.inode.recorded_extents(self.fork) as usize <= root.len() / EXTENT_RECORD_BYTES {
            self.fault(
                address,
                "only maps that do not fit the inode have a btree",
                format!("{} extents", self.inode.recorded_extents(self.fork)),
            );
        }
        let u64_at = |at: usize| u64::from_be_bytes(root[at..at + 8].try_into().expect("eight bytes"));
        let key = |index: usize| u64_at(BMBT_ROOT_HEADER_BYTES + 8 * index);
        let pointer = |index: usize| u64_at(BMBT_ROOT_HEADER_BYTES + 8 * most + 8 * index);
        let place = TreeStart {
            ag: AgNumber(0),
            owner: self.inode.owner(),
            consequence: Consequence::Contents,
            quiet: self.inode.again,
        };
        let mut walk = TreeWalk::<Bmbt>::new(self.context, place);
        for index in 0..count {
            let child = Child {
                from: address,
                pointer: pointer(index),
                level: level as u32 - 1,
                low: Some(key(index)),
                high: None,
            };
            walk.visit(&child, false, &mut |view, address| {
                for record in 0..view.count() {
                    self.extent(&view.record(record), address);
                }
            });
        }
        walk.finish();
        let (blocks, whole) = (std::mem::take(&mut walk.blocks), walk.whole);
        let mut offset = rmap_offset::BMBT_BLOCK;
        if self.fork == Fork::Attr {
            offset |= rmap_offset::ATTR_FORK;
        }
        self.figures.blocks += blocks.len() as u64;
        for block in blocks {
            if let Some((ag, start)) = self.context.geometry.split_fs_block(FsBlock(block)) {
                self.note(ag, start.0, 1, offset);
            }
        }
        self.figures.whole = whole && self.sound;
    }
}
