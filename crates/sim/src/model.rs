//! The tree as it should be, in memory: names, links, attributes, contents. Knows nothing of XFS.

use crate::contents::Contents;
use crate::operation::{Name, Value, is_dir};
use crate::tree::{Described, Digested, Tree};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use xfskit::RenameFlags;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::{MODE_REGULAR, MODE_TYPE};

/// An inode of the model.
pub type NodeId = usize;
/// The root.
pub const ROOT: NodeId = 0;

/// An inode.
#[derive(Clone, Debug)]
struct Node {
    number: InodeNumber,
    mode: u16,
    uid: u32,
    device: u32,
    target: Vec<u8>,
    /// Names that it has now.
    names: u32,
    held: i32,
    xattrs: BTreeMap<Name, (usize, Digested)>,
    entries: BTreeMap<Name, NodeId>,
    parent: NodeId,
    /// It had a name once.
    named: bool,
    contents: Contents,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: Vec<Node>,
}

impl Model {
    /// A root directory as mkfs made it: without entries, but with an attribute or two.
    pub fn new(number: InodeNumber, root: &Described) -> Self {
        let mut model = Self { nodes: Vec::new() };
        model.make(number, root.mode, 0, Vec::new());
        let node = &mut model.nodes[ROOT];
        node.names = 1;
        node.xattrs = root.xattrs.iter().map(|(name, value)| (name.clone(), (value.length, *value))).collect();
        model
    }

    /// The tree that is there.
    ///
    /// # Errors
    /// The tree's.
    pub fn of<T: Tree>(tree: &T) -> Result<Self, T::Error> {
        let mut model = Self { nodes: Vec::new() };
        let mut found = HashMap::from([(tree.root(), ROOT)]);
        let mut stack = vec![tree.root()];
        let root = tree.node(tree.root())?;
        model.make(InodeNumber(tree.root()), root.mode, root.device, root.target);
        model.nodes[ROOT].names = 1;
        while let Some(number) = stack.pop() {
            let described = tree.node(number)?;
            let dir = found[&number];
            model.nodes[dir].uid = described.uid;
            model.nodes[dir].xattrs =
                described.xattrs.into_iter().map(|(name, value)| (name, (value.length, value))).collect();
            for (name, child) in described.entries {
                let node = match found.get(&child) {
                    Some(node) => *node,
                    None => {
                        let described = tree.node(child)?;
                        stack.push(child);
                        found.insert(child, model.nodes.len());
                        model.make(InodeNumber(child), described.mode, described.device, described.target)
                    }
                };
                model.enter(dir, &name, node);
            }
        }
        Ok(model)
    }

    /// The filesystem's number of a node.
    pub fn number(&self, node: NodeId) -> InodeNumber {
        self.nodes[node].number
    }

    /// An inode without a name.
    pub fn make(&mut self, number: InodeNumber, mode: u16, device: u32, target: Vec<u8>) -> NodeId {
        self.nodes.push(Node {
            number,
            mode,
            uid: 0,
            device,
            target,
            names: 0,
            held: 0,
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            parent: ROOT,
            named: false,
            contents: Contents::default(),
        });
        self.nodes.len() - 1
    }

    /// Number of nodes, whether they still exist or not.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The newest node.
    pub fn newest(&self) -> NodeId {
        self.nodes.len() - 1
    }

    fn is_dir(&self, node: NodeId) -> bool {
        is_dir(self.nodes[node].mode)
    }

    /// A name appears.
    pub fn enter(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        let is_dir = self.is_dir(node);
        let entered = &mut self.nodes[node];
        entered.names += 1;
        entered.named = true;
        if is_dir {
            entered.parent = dir;
        }
        self.nodes[dir].entries.insert(name.to_vec(), node);
    }

    /// A name goes.
    pub fn leave(&mut self, dir: NodeId, name: &[u8]) {
        if let Some(node) = self.nodes[dir].entries.remove(name) {
            self.nodes[node].names -= 1;
        }
    }

    /// A name moves.
    pub fn rename(&mut self, from: &(NodeId, Name), to: &(NodeId, Name), flags: RenameFlags) {
        let Some(node) = self.lookup(from.0, &from.1) else { return };
        let victim = self.lookup(to.0, &to.1);
        if victim == Some(node) {
            return;
        }
        self.leave(from.0, &from.1);
        self.leave(to.0, &to.1);
        self.enter(to.0, &to.1, node);
        if flags.exchange {
            if let Some(victim) = victim {
                self.enter(from.0, &from.1, victim);
            }
        } else if flags.whiteout {
            let whiteout = self.make(InodeNumber(0), 0o020_000, 0, Vec::new());
            self.enter(from.0, &from.1, whiteout);
        }
    }

    /// An attribute changes or goes.
    pub fn set(&mut self, node: NodeId, name: &[u8], value: Option<Value>) {
        match value {
            Some(value) => {
                let digested = Digested::of(&value.bytes());
                self.nodes[node].xattrs.insert(name.to_vec(), (value.length, digested));
            }
            None => drop(self.nodes[node].xattrs.remove(name)),
        }
    }

    /// Permissions and owner change.
    pub fn change(&mut self, node: NodeId, mode: u16, uid: u32) {
        let node = &mut self.nodes[node];
        node.mode = node.mode & !0o7777 | mode & 0o7777;
        node.uid = uid;
    }

    /// An inode is held or let go.
    pub fn hold(&mut self, node: NodeId, count: i32) {
        self.nodes[node].held += count;
    }

    /// What a name stands for.
    pub fn lookup(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.nodes[dir].entries.get(name).copied()
    }

    /// The names in a directory.
    pub fn names(&self, dir: NodeId) -> Vec<Name> {
        self.nodes[dir].entries.keys().cloned().collect()
    }

    /// The attributes of a node with the lengths of their values.
    pub fn xattrs(&self, node: NodeId) -> Vec<(Name, usize)> {
        self.nodes[node].xattrs.iter().map(|(name, (length, _))| (name.clone(), *length)).collect()
    }

    /// All directories that have a name.
    pub fn directories(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).filter(|&node| self.is_dir(node) && self.nodes[node].names > 0).collect()
    }

    /// All inodes that exist, named or held, whose numbers are known.
    pub fn alive(&self) -> Vec<NodeId> {
        let alive = |node: &NodeId| {
            let found = &self.nodes[*node];
            (found.names > 0 || found.held > 0) && found.number != InodeNumber(0)
        };
        (0..self.nodes.len()).filter(alive).collect()
    }

    /// All regular files that exist and whose numbers are known.
    pub fn files(&self) -> Vec<NodeId> {
        self.alive().into_iter().filter(|node| self.nodes[*node].mode & MODE_TYPE == MODE_REGULAR).collect()
    }

    /// What a file contains.
    pub fn contents(&self, node: NodeId) -> &Contents {
        &self.nodes[node].contents
    }

    /// What a file contains, to be changed.
    pub fn contents_mut(&mut self, node: NodeId) -> &mut Contents {
        &mut self.nodes[node].contents
    }

    /// All inodes that are held.
    pub fn held(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].held > 0).collect()
    }

    /// Whether a file was made without a name and has got none yet.
    pub fn is_new_tmpfile(&self, node: NodeId) -> bool {
        !self.nodes[node].named
    }

    /// Names of an inode.
    pub fn names_of(&self, node: NodeId) -> u32 {
        self.nodes[node].names
    }

    /// The link count: names, or for a directory the directories that refer to it, itself included.
    fn links(&self, node: NodeId) -> u32 {
        if !self.is_dir(node) {
            return self.nodes[node].names;
        }
        2 + self.nodes[node].entries.values().filter(|child| self.is_dir(**child)).count() as u32
    }

    /// The type and permissions of an inode.
    pub fn mode(&self, node: NodeId) -> u16 {
        self.nodes[node].mode
    }

    /// Whether `node` is `dir` or one of the directories above it.
    pub fn is_above(&self, node: NodeId, mut dir: NodeId) -> bool {
        while dir != ROOT {
            if dir == node {
                return true;
            }
            dir = self.nodes[dir].parent;
        }
        node == ROOT
    }

    /// Nobody holds anything any more: the filesystem was closed.
    pub fn release_all(&mut self) {
        for node in &mut self.nodes {
            node.held = 0;
        }
    }
}

impl Tree for Model {
    type Error = Infallible;

    fn root(&self) -> u64 {
        ROOT as u64
    }

    fn node(&self, number: u64) -> Result<Described, Infallible> {
        let node = &self.nodes[number as usize];
        Ok(Described {
            mode: node.mode,
            uid: node.uid,
            links: self.links(number as usize),
            device: node.device,
            target: node.target.clone(),
            xattrs: node.xattrs.iter().map(|(name, (_, value))| (name.clone(), *value)).collect(),
            entries: node.entries.iter().map(|(name, node)| (name.clone(), *node as u64)).collect(),
        })
    }
}
