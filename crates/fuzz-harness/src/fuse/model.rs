//! The expected tree, after the requests that succeeded.

use super::contents::Contents;
use std::collections::BTreeMap;

pub const TYPE: u32 = 0o170_000;
pub const DIR: u32 = 0o040_000;
pub const FILE: u32 = 0o100_000;
pub const SYMLINK: u32 = 0o120_000;
pub const CHAR: u32 = 0o020_000;
pub const BLOCK: u32 = 0o060_000;
/// FUSE's number of the root.
pub const ROOT: u64 = 1;

/// An inode.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Number of names; of a directory none or one.
    pub names: u32,
    /// The references that the kernel would have.
    pub held: u64,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub parent: u64,
    pub contents: Contents,
    /// The contents are not known: a request that found no space may have done a part of its work.
    pub is_uncertain: bool,
    /// The inode has an ACL, so only the server knows its permissions and those of what is made in it.
    pub has_acl: bool,
    pub atime: Option<(i64, u32)>,
    pub mtime: Option<(i64, u32)>,
}

impl Node {
    pub fn is_dir(&self) -> bool {
        self.mode & TYPE == DIR
    }

    pub fn is_file(&self) -> bool {
        self.mode & TYPE == FILE
    }
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub nodes: BTreeMap<u64, Node>,
    /// Numbers that were freed.
    pub freed: Vec<u64>,
    /// The root's number in the image.
    pub root_inode: u64,
}

impl Model {
    pub fn new(root: Node, root_inode: u64) -> Self {
        Self { nodes: BTreeMap::from([(ROOT, root)]), freed: Vec::new(), root_inode }
    }

    /// The root has two numbers.
    pub fn key(&self, number: u64) -> u64 {
        if number == self.root_inode { ROOT } else { number }
    }

    pub fn get(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&self.key(number))
    }

    pub fn get_mut(&mut self, number: u64) -> &mut Node {
        let key = self.key(number);
        self.nodes.get_mut(&key).expect("a node that was asked for before")
    }

    /// The node of a name.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Option<u64> {
        self.get(dir)?.entries.get(name).copied()
    }

    /// The link count that stat shows.
    pub fn links(&self, number: u64) -> u32 {
        let Some(node) = self.get(number) else { return 0 };
        if !node.is_dir() || node.names == 0 {
            return node.names;
        }
        2 + node.entries.values().filter(|child| self.get(**child).is_some_and(Node::is_dir)).count() as u32
    }

    /// Adds a new inode and its name.
    pub fn add(&mut self, dir: u64, name: &[u8], number: u64, node: Node) {
        self.freed.retain(|freed| *freed != number);
        self.nodes.insert(number, node);
        self.enter(dir, name, number);
    }

    pub fn enter(&mut self, dir: u64, name: &[u8], number: u64) {
        let key = self.key(dir);
        let node = self.get_mut(number);
        node.names += 1;
        node.parent = key;
        let dir = self.get_mut(dir);
        dir.entries.insert(name.to_vec(), number);
        dir.mtime = None;
    }

    /// Removes a name, and the inode with it if it has no other name and no reference.
    pub fn leave(&mut self, dir: u64, name: &[u8]) {
        let dir = self.get_mut(dir);
        dir.mtime = None;
        if let Some(number) = dir.entries.remove(name) {
            self.get_mut(number).names -= 1;
            self.end(number);
        }
    }

    /// Frees an inode that nothing refers to.
    pub fn end(&mut self, number: u64) {
        let key = self.key(number);
        if key != ROOT && self.nodes.get(&key).is_some_and(|node| node.names == 0 && node.held == 0) {
            self.nodes.remove(&key);
            self.freed.push(key);
        }
    }

    pub fn forget(&mut self, number: u64, count: u64) {
        let key = self.key(number);
        if let Some(node) = self.nodes.get_mut(&key)
            && key != ROOT
        {
            node.held = node.held.saturating_sub(count);
            self.end(key);
        }
    }

    /// Whether `below` is `above` or lies in it.
    pub fn is_below(&self, below: u64, above: u64) -> bool {
        let (mut at, above) = (self.key(below), self.key(above));
        for _ in 0..self.nodes.len() {
            if at == above {
                return true;
            }
            if at == ROOT {
                return false;
            }
            at = self.nodes.get(&at).map_or(ROOT, |node| node.parent);
        }
        false
    }
}
