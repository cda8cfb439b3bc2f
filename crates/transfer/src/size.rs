//! How large an image must be for a tree: [`Needs`] estimates it (`--size auto`), [`LeastNeeds`] is a bound below it.
//!
//! The estimate should be enough and not much more. It depends on nothing but the tree and the sizes in the image, so
//! that images of the same tree have the same size. A caller that finds an image too small tries a larger one.

use crate::event::{Contents, Kind, Node, split};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Bytes of an inode before its forks.
const CORE_BYTES: u64 = 176;
/// Bytes of an extent record.
const EXTENT_BYTES: u64 = 16;
/// Bytes that a directory entry takes besides the name, hash entry included.
const NAME_BYTES: u64 = 24;
/// Bytes that an attribute takes besides its name and value.
const ATTRIBUTE_BYTES: u64 = 16;
/// Header of a remote value's or symbolic link's block.
const REMOTE_HEADER_BYTES: u64 = 56;
const INODES_PER_CHUNK: u64 = 64;
/// The smallest image that mkfs.xfs makes, and the smallest one with the option to be small.
const MIN_BYTES: u64 = 300 << 20;
const SMALL_BYTES: u64 = 16 << 20;
const MIN_LOG_BYTES: u64 = 64 << 20;
const SMALL_LOG_BYTES: u64 = 8 << 20;
/// The engine reserves a twentieth of the blocks, at most this many.
const MAX_RESERVED_BLOCKS: u64 = 8192;
const ROUND_TO_BYTES: u64 = 1 << 20;

/// The sizes of an image that matter here.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of an inode.
    pub inode_bytes: u64,
    /// Bytes of a directory block.
    pub dir_block_bytes: u64,
    /// Whether it may be smaller than mkfs.xfs allows.
    pub small: bool,
}

/// Adds up what contents and inodes of a tree take, of files that [`survey_sizes`](crate::survey_sizes) finds.
#[derive(Debug)]
pub struct LeastNeeds {
    shape: Shape,
    contents_blocks: u64,
    inodes: u64,
}

impl LeastNeeds {
    /// Nothing yet.
    pub fn new(shape: Shape) -> Self {
        Self { shape, contents_blocks: 0, inodes: 0 }
    }

    /// The size of contents and inodes alone. An image that is not larger has no room for the tree.
    pub fn image_bytes(&self) -> u64 {
        self.contents_blocks * self.shape.block_bytes + self.inodes * self.shape.inode_bytes
    }

    /// Adds a file.
    pub fn count(&mut self, node: &Node) {
        self.inodes += u64::from(!matches!(node.kind, Kind::Link(_)));
        let block_bytes = self.shape.block_bytes;
        match &node.kind {
            Kind::File { contents: Contents::Whole(bytes), .. } => {
                self.contents_blocks += (bytes.len() as u64).div_ceil(block_bytes);
            }
            Kind::File { contents: Contents::Parts(parts), .. } => {
                let mut last_end = 0;
                for (start, length) in parts {
                    let (first, end) = (start / block_bytes, (start + length).div_ceil(block_bytes));
                    // A block may contain the end of one part and the start of the next.
                    self.contents_blocks += end.saturating_sub(first.max(last_end));
                    last_end = end;
                }
            }
            _ => {}
        }
    }
}

/// Adds up what a tree needs, of files that [`survey`](crate::survey) finds.
#[derive(Debug)]
pub struct Needs {
    shape: Shape,
    least: LeastNeeds,
    blocks: u64,
    extents: u64,
    /// Bytes of the names in each directory, by a hash of its path: the paths of deep trees take much memory, and a sum
    /// that is wrong once in 2^64 pairs is no less an estimate.
    names: HashMap<u64, u64>,
    hashes: RandomState,
}

impl Needs {
    /// Nothing yet.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            least: LeastNeeds::new(shape),
            blocks: 0,
            extents: 0,
            names: HashMap::new(),
            hashes: RandomState::new(),
        }
    }

    /// The size of an image that should have room for the tree.
    pub fn image_bytes(&self) -> u64 {
        let Shape { block_bytes, inode_bytes, dir_block_bytes, small } = self.shape;
        let inline_names = (inode_bytes - CORE_BYTES) / 2;
        let dirs = self.names.values().filter(|&&bytes| bytes > inline_names);
        // Splits leave blocks half empty.
        let dir_bytes: u64 =
            dirs.map(|bytes| (bytes * 8 / 5).next_multiple_of(dir_block_bytes) + dir_block_bytes).sum();
        let inodes = self.least.inodes;
        let inode_bytes = (inodes.next_multiple_of(INODES_PER_CHUNK) + 8 * INODES_PER_CHUNK) * inode_bytes;
        // Each extent and each inode chunk has a record in the reverse mapping tree, whose blocks are half full, and
        // one in the free space trees.
        let tree_bytes = (self.extents + inodes / INODES_PER_CHUNK + 64) * 64;
        let used = self.blocks * block_bytes + dir_bytes + inode_bytes + tree_bytes;
        let (smallest, log) = if small { (SMALL_BYTES, SMALL_LOG_BYTES) } else { (MIN_BYTES, MIN_LOG_BYTES) };
        let with_log = used + log.max(used / 2048);
        // Headers, and what the trees of every AG may still need, take about 3 %.
        let with_trees = with_log + with_log / 24 + (2 << 20);
        let reserved = (with_trees / 18).min(MAX_RESERVED_BLOCKS * block_bytes);
        (with_trees + reserved).max(smallest).next_multiple_of(ROUND_TO_BYTES)
    }

    /// A size that is too small in any case: [`LeastNeeds::image_bytes`].
    pub fn least_bytes(&self) -> u64 {
        self.least.image_bytes()
    }

    /// Adds a file.
    pub fn count(&mut self, node: &Node) {
        self.least.count(node);
        self.count_name(&node.path);
        if let Kind::Link(_) = node.kind {
            // A further parent pointer, which may push all attributes out of the inode.
            self.blocks += self.block_count(2 * (node.path.len() as u64 + ATTRIBUTE_BYTES));
            return;
        }
        self.count_contents(&node.kind);
        self.count_attributes(node);
    }

    fn block_count(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.shape.block_bytes)
    }

    fn count_name(&mut self, path: &[u8]) {
        let (dir, name) = split(path);
        let bytes = name.len() as u64 + NAME_BYTES;
        *self.names.entry(self.hashes.hash_one(dir)).or_default() += bytes;
    }

    fn count_contents(&mut self, kind: &Kind) {
        match kind {
            Kind::File { contents: Contents::Whole(bytes), .. } => {
                self.blocks += self.block_count(bytes.len() as u64);
                self.extents += 1;
            }
            Kind::File { contents: Contents::Parts(parts), .. } => {
                let block_bytes = self.shape.block_bytes;
                for (start, length) in parts {
                    self.blocks += (start + length).div_ceil(block_bytes) - start / block_bytes;
                    // A large part may consist of several extents.
                    self.extents += 1 + length / (64 << 20);
                }
                self.blocks += 2 * self.block_count(parts.len() as u64 * EXTENT_BYTES) * u64::from(parts.len() > 8);
            }
            Kind::Symlink(target) => self.count_remote(target.len() as u64, (self.shape.inode_bytes - CORE_BYTES) / 2),
            _ => {}
        }
    }

    fn count_remote(&mut self, bytes: u64, inline: u64) {
        if bytes > inline {
            self.blocks += bytes.div_ceil(self.shape.block_bytes - REMOTE_HEADER_BYTES);
            self.extents += 1;
        }
    }

    fn count_attributes(&mut self, node: &Node) {
        let (_, name) = split(&node.path);
        // The parent pointer counts as an attribute.
        let mut bytes = name.len() as u64 + 12 + ATTRIBUTE_BYTES;
        for (name, value) in &node.meta.xattrs {
            let (name, value) = (name.len() as u64, value.len() as u64);
            let in_leaf = value < self.shape.block_bytes * 3 / 4;
            bytes += name + ATTRIBUTE_BYTES + if in_leaf { value } else { 0 };
            if !in_leaf {
                self.count_remote(value, 0);
            }
        }
        let inline = (self.shape.inode_bytes - CORE_BYTES) * 2 / 3;
        if bytes > inline {
            self.blocks += self.block_count(bytes * 2) + u64::from(bytes > self.shape.block_bytes);
            self.extents += 1;
        }
    }
}
