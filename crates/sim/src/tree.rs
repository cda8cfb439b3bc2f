//! One way to describe a tree, for the model and for what recovery left, so that they can be compared line by line.

use crate::times::{Shown, Times};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use xfskit_ondisk::Timestamp;
use xfskit_ondisk::inode::{MODE_CHAR, MODE_TYPE};

/// What is compared of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was read and changed. They are compared apart from the tree, but those of a whiteout.
    pub times: Times,
    /// When it was made.
    pub birth_time: Timestamp,
    /// Flags, project and hints.
    pub settings: Settings,
    /// Number of names; for a directory, of directories that refer to it.
    pub links: u32,
    /// Device number.
    pub device: u32,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Attributes in the order of their names.
    pub xattrs: Vec<(Vec<u8>, Digested)>,
    /// A directory's entries in the order of their names, with a number that is another for each inode.
    pub entries: Vec<(Vec<u8>, u64)>,
}

impl Described {
    /// Whether it stands for a name that a layer below has. The model does not know the number of such an inode.
    pub fn is_whiteout(&self) -> bool {
        self.mode & MODE_TYPE == MODE_CHAR && self.device == 0
    }
}

/// What chattr and `xfs_io` set, as the inode stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Flags, without the one that says that space was allocated.
    pub flags: u16,
    /// Further flags, without those of the format.
    pub flags2: u64,
    /// Project.
    pub project: u32,
    /// Extent size hint, in blocks.
    pub extent_blocks: u32,
    /// The same hint for copy on write, in blocks.
    pub cow_extent_blocks: u32,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, flags2, project, extent_blocks, cow_extent_blocks } = self;
        write!(f, "flags {flags:#x}:{flags2:#x} project {project} hints {extent_blocks}:{cow_extent_blocks}")
    }
}

/// A value by length and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digested {
    /// Bytes.
    pub length: usize,
    /// Hash of the bytes.
    pub hash: u64,
}

impl Digested {
    /// The digest of a value.
    pub fn of(value: &[u8]) -> Self {
        let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        let words = value.chunks_exact(8);
        let rest = words.remainder().iter().fold(1, |sum, byte| mix(sum, u64::from(*byte)));
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let hash = words.fold(rest, |sum, bytes| mix(sum, word(bytes)));
        Self { length: value.len(), hash }
    }
}

/// Something that has a tree.
pub trait Tree {
    /// Why a node cannot be read.
    type Error;

    /// The number of the root.
    fn root(&self) -> u64;

    /// An inode.
    ///
    /// # Errors
    /// The error of the tree's owner.
    fn node(&self, number: u64) -> Result<Described, Self::Error>;
}

/// One line for each name, in the order of paths; hard links show by the number of the line that has the inode's first
/// name.
///
/// # Errors
/// The tree's.
pub fn describe<T: Tree>(tree: &T) -> Result<Vec<String>, T::Error> {
    let mut lines = Vec::new();
    let mut seen = HashMap::new();
    let mut stack = vec![(String::new(), tree.root())];
    while let Some((path, number)) = stack.pop() {
        if let Some(first) = seen.get(&number) {
            lines.push(format!("{path} = line {first}"));
            continue;
        }
        seen.insert(number, lines.len());
        let node = tree.node(number)?;
        let mut line = format!("{path} {:o} {}:{} {} {}", node.mode, node.uid, node.gid, node.links, node.device);
        line += &format!(" {} b {}", node.settings, Shown(node.birth_time));
        if node.is_whiteout() {
            line += &format!(" {}", node.times);
        }
        if !node.target.is_empty() {
            line += &format!(" -> {}", node.target.escape_ascii());
        }
        for (name, value) in &node.xattrs {
            line += &format!(" {}:{}:{:x}", name.escape_ascii(), value.length, value.hash);
        }
        lines.push(line);
        for (name, child) in node.entries.iter().rev() {
            stack.push((format!("{path}/{}", name.escape_ascii()), *child));
        }
    }
    Ok(lines)
}

/// A number that stands for the lines.
pub fn digest(lines: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    hasher.finish()
}
