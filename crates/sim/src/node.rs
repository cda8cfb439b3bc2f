//! What operations and the model name: inodes, names, values.

use xfskit_ondisk::inode::{MODE_DIR, MODE_TYPE};

/// An inode of the model.
pub type NodeId = usize;
/// The root.
pub const ROOT: NodeId = 0;

/// The name of an inode or of an attribute.
pub type Name = Vec<u8>;

/// An attribute value: `length` bytes that depend on a seed, so that values of one length differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Bytes.
    pub length: usize,
    /// Makes it differ from other values of its length.
    pub seed: u8,
}

impl Value {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        (0..self.length).map(|at| self.seed.wrapping_add((at / 7) as u8)).collect()
    }
}

/// Whether a mode is a directory's.
pub fn is_dir(mode: u16) -> bool {
    mode & MODE_TYPE == MODE_DIR
}
