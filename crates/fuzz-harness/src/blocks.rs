//! Finds the metadata of an image by its magic numbers and checksums.

use std::collections::BTreeMap;
use xfskit_ondisk::{Superblock, checksum_matches, set_checksum};

/// A kind of metadata block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The names of the format.
pub enum Kind {
    Superblock,
    Agf,
    Agi,
    Agfl,
    Bnobt,
    Cntbt,
    Inobt,
    Finobt,
    Rmapbt,
    Refcountbt,
    Bmbt,
    DaNode,
    DirBlock,
    DirData,
    DirLeaf1,
    DirLeafN,
    DirFree,
    AttrLeaf,
    AttrRemote,
    Symlink,
    Inode,
}

/// Which sizes a block of a kind may have.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    Sector,
    Block,
    Inode,
}

struct Form {
    kind: Kind,
    magic_at: usize,
    magic: &'static [u8],
    crc: usize,
    size: Size,
}

const fn form(kind: Kind, magic_at: usize, magic: &'static [u8], crc: usize, size: Size) -> Form {
    Form { kind, magic_at, magic, crc, size }
}

const FORMS: &[Form] = &[
    form(Kind::Superblock, 0, b"XFSB", 224, Size::Sector),
    form(Kind::Agf, 0, b"XAGF", 216, Size::Sector),
    form(Kind::Agi, 0, b"XAGI", 312, Size::Sector),
    form(Kind::Agfl, 0, b"XAFL", 32, Size::Sector),
    form(Kind::Bnobt, 0, b"AB3B", 52, Size::Block),
    form(Kind::Cntbt, 0, b"AB3C", 52, Size::Block),
    form(Kind::Inobt, 0, b"IAB3", 52, Size::Block),
    form(Kind::Finobt, 0, b"FIB3", 52, Size::Block),
    form(Kind::Rmapbt, 0, b"RMB3", 52, Size::Block),
    form(Kind::Refcountbt, 0, b"R3FC", 52, Size::Block),
    form(Kind::Bmbt, 0, b"BMA3", 64, Size::Block),
    form(Kind::DirBlock, 0, b"XDB3", 4, Size::Block),
    form(Kind::DirData, 0, b"XDD3", 4, Size::Block),
    form(Kind::DirFree, 0, b"XDF3", 4, Size::Block),
    form(Kind::DaNode, 8, &[0x3e, 0xbe], 12, Size::Block),
    form(Kind::AttrLeaf, 8, &[0x3b, 0xee], 12, Size::Block),
    form(Kind::DirLeaf1, 8, &[0x3d, 0xf1], 12, Size::Block),
    form(Kind::DirLeafN, 8, &[0x3d, 0xff], 12, Size::Block),
    form(Kind::AttrRemote, 0, b"XARM", 12, Size::Block),
    form(Kind::Symlink, 0, b"XSLM", 12, Size::Block),
    form(Kind::Inode, 0, b"IN", 100, Size::Inode),
];

/// A metadata block of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is.
    pub kind: Kind,
    /// Where it starts, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Offset of its checksum in the block.
    pub crc: usize,
}

impl Block {
    /// Sets the checksum in `bytes`, the block's contents.
    pub fn mend(&self, bytes: &mut [u8]) {
        set_checksum(bytes, self.crc);
    }

    /// The block's contents in an image.
    pub fn of<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        &image[self.offset..self.offset + self.bytes]
    }
}

/// The metadata of an image, and the sizes that its superblock names.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// All blocks, by kind.
    pub blocks: BTreeMap<Kind, Vec<Block>>,
    /// The log: where it starts and its length, in bytes.
    pub log: (usize, usize),
    /// Block size in bytes.
    pub block_bytes: usize,
    /// Blocks of an AG.
    pub ag_blocks: usize,
    /// Logarithm of the AG's size in blocks, rounded up.
    pub ag_block_bits: u8,
    /// Logarithm of inodes in a block.
    pub inode_bits: u8,
}

impl Metadata {
    /// The blocks of one kind.
    pub fn of(&self, kind: Kind) -> &[Block] {
        self.blocks.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// The packed number of the filesystem block at a byte offset, and its number within the AG.
    pub fn block_numbers(&self, offset: usize) -> (u64, u32) {
        let block = offset / self.block_bytes;
        let (ag, within) = (block / self.ag_blocks, block % self.ag_blocks);
        ((ag as u64) << self.ag_block_bits | within as u64, within as u32)
    }
}

/// Finds the metadata of a sound image.
///
/// # Panics
/// If the superblock is not one.
pub fn blocks(image: &[u8]) -> Metadata {
    let superblock = Superblock::decode(image).expect("a sound image");
    let raw = superblock.raw();
    let block_bytes = 1usize << raw.block_log;
    let inode_bytes = usize::from(raw.inode_size.get());
    let start = raw.log_start.get();
    let log_block = (start >> raw.ag_blocks_log) as usize * raw.ag_blocks.get() as usize
        + (start & ((1 << raw.ag_blocks_log) - 1)) as usize;
    let log = (log_block * block_bytes, raw.log_blocks.get() as usize * block_bytes);
    let mut found: BTreeMap<Kind, Vec<Block>> = BTreeMap::new();
    let step = inode_bytes.min(512);
    let mut at = 0;
    while at < image.len() {
        if (log.0..log.0 + log.1).contains(&at) {
            at = log.0 + log.1;
            continue;
        }
        for form in FORMS {
            let magic = image.get(at + form.magic_at..at + form.magic_at + form.magic.len());
            if magic != Some(form.magic) || form.kind == Kind::Superblock && at != 0 {
                continue;
            }
            let sizes = match form.size {
                Size::Sector => vec![usize::from(raw.sector_size.get())],
                Size::Inode => vec![inode_bytes],
                Size::Block => vec![block_bytes, block_bytes << raw.dir_block_log, 2 * block_bytes],
            };
            let fits = |size: &usize| image.get(at..at + size).is_some_and(|bytes| checksum_matches(bytes, form.crc));
            if let Some(bytes) = sizes.into_iter().find(fits) {
                found.entry(form.kind).or_default().push(Block { kind: form.kind, offset: at, bytes, crc: form.crc });
            }
        }
        at += step;
    }
    Metadata {
        blocks: found,
        log,
        block_bytes,
        ag_blocks: raw.ag_blocks.get() as usize,
        ag_block_bits: raw.ag_blocks_log,
        inode_bits: raw.inodes_per_block_log,
    }
}
