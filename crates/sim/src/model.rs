//! The expected tree, in memory: names, links, attributes, times, contents. It knows nothing of XFS except which flags
//! a directory passes on.

use crate::contents::Contents;
use crate::node::{Name, NodeId, ROOT, Value, is_dir};
use crate::times::Times;
use crate::tree::{Described, Digested, Settings, Tree};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use xfskit_engine::RenameFlags;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_SYMLINK, MODE_TYPE, flags, flags2};
use xfskit_ondisk::{InodeNumber, Timestamp};

/// Set-group-id of a directory: inodes made in it get its group.
const SET_GROUP_ID: u16 = 0o2000;

/// An inode.
#[derive(Clone, Debug)]
struct Node {
    number: InodeNumber,
    mode: u16,
    uid: u32,
    gid: u32,
    times: Times,
    birth_time: Timestamp,
    settings: Settings,
    device: u32,
    target: Vec<u8>,
    /// Names that it has now.
    names: u32,
    held: i32,
    xattrs: BTreeMap<Name, (usize, Digested)>,
    entries: BTreeMap<Name, NodeId>,
    parent: NodeId,
    /// It has or had a name.
    named: bool,
    contents: Contents,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: Vec<Node>,
    /// The time of the current operation.
    pub now: Timestamp,
    /// The filesystem has parent pointers.
    pub has_parents: bool,
}

impl Model {
    /// A root directory as mkfs made it: without entries, but perhaps with attributes.
    pub fn new(number: InodeNumber, root: &Described) -> Self {
        let mut model = Self { nodes: Vec::new(), now: Timestamp::default(), has_parents: false };
        model.adopt(number, root);
        model.nodes[ROOT].names = 1;
        model
    }

    /// Reads a tree into a model.
    ///
    /// # Errors
    /// The tree's.
    pub fn of<T: Tree>(tree: &T) -> Result<Self, T::Error> {
        let root = tree.node(tree.root())?;
        let mut model = Self::new(InodeNumber(tree.root()), &root);
        let mut found = HashMap::from([(tree.root(), ROOT)]);
        let mut stack = vec![(ROOT, root)];
        while let Some((dir, described)) = stack.pop() {
            for (name, child) in described.entries {
                let node = match found.get(&child) {
                    Some(node) => *node,
                    None => {
                        let described = tree.node(child)?;
                        let node = model.adopt(InodeNumber(child), &described);
                        found.insert(child, node);
                        stack.push((node, described));
                        node
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

    /// Adds an inode as it was found, without its names.
    fn adopt(&mut self, number: InodeNumber, found: &Described) -> NodeId {
        self.nodes.push(Node {
            number,
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            times: found.times,
            birth_time: found.birth_time,
            settings: found.settings,
            device: found.device,
            target: found.target.clone(),
            names: 0,
            held: 0,
            xattrs: found.xattrs.iter().map(|(name, value)| (name.clone(), (value.length, *value))).collect(),
            entries: BTreeMap::new(),
            parent: ROOT,
            named: false,
            contents: Contents::default(),
        });
        self.nodes.len() - 1
    }

    /// Adds a new inode without a name; it inherits from `dir`.
    pub fn make(&mut self, dir: NodeId, number: InodeNumber, mode: u16, device: u32, target: Vec<u8>) -> NodeId {
        let parent = &self.nodes[dir];
        let mut new = Described { mode, device, target, ..Described::default() };
        (new.birth_time, new.times) = (self.now, Times::at(self.now));
        new.settings = inherited(parent.settings, mode);
        if parent.mode & SET_GROUP_ID != 0 {
            new.gid = parent.gid;
            new.mode |= if is_dir(mode) { SET_GROUP_ID } else { 0 };
        }
        self.adopt(number, &new)
    }

    /// Number of nodes, including those that no longer exist.
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

    /// Adds a name.
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

    /// Removes a name.
    pub fn leave(&mut self, dir: NodeId, name: &[u8]) {
        if let Some(node) = self.nodes[dir].entries.remove(name) {
            self.nodes[node].names -= 1;
        }
    }

    /// Moves a name.
    pub fn rename(&mut self, from: &(NodeId, Name), to: &(NodeId, Name), flags: RenameFlags) {
        let Some(node) = self.lookup(from.0, &from.1) else { return };
        let victim = self.lookup(to.0, &to.1);
        if victim == Some(node) {
            return;
        }
        self.leave(from.0, &from.1);
        self.leave(to.0, &to.1);
        self.enter(to.0, &to.1, node);
        [from.0, to.0].into_iter().for_each(|dir| self.touch_contents(dir));
        if let (true, Some(victim)) = (flags.exchange, victim) {
            let moves = from.0 != to.0;
            self.touch_exchanged(node, moves.then_some(victim));
            self.touch_exchanged(victim, moves.then_some(node));
        } else {
            victim.into_iter().chain([node]).for_each(|node| self.touch(node));
        }
        if flags.exchange {
            if let Some(victim) = victim {
                self.enter(from.0, &from.1, victim);
            }
        } else if flags.whiteout {
            let whiteout = self.make(from.0, InodeNumber(0), 0o020_000, 0, Vec::new());
            self.enter(from.0, &from.1, whiteout);
        }
    }

    /// Sets the times of an inode that was exchanged. `other` is the one it was exchanged with, if the two changed
    /// directories.
    fn touch_exchanged(&mut self, node: NodeId, other: Option<NodeId>) {
        match other {
            Some(_) if self.is_dir(node) => self.touch_contents(node),
            Some(other) if self.is_dir(other) => self.touch(node),
            _ if self.has_parents => self.touch(node),
            _ => {}
        }
    }

    /// Whether a directory refuses a name for an inode, because it passes on its project and the inode has another.
    pub fn refuses_project(&self, dir: NodeId, node: NodeId) -> bool {
        let (dir, node) = (&self.nodes[dir], &self.nodes[node]);
        let is_special = !matches!(node.mode & MODE_TYPE, MODE_REGULAR | MODE_DIR | MODE_SYMLINK);
        dir.settings.flags & flags::PROJINHERIT != 0
            && dir.settings.project != node.settings.project
            && !(is_special && node.settings.project == 0)
    }

    /// Sets or removes an attribute.
    pub fn set(&mut self, node: NodeId, name: &[u8], value: Option<Value>) {
        match value {
            Some(value) => {
                let digested = Digested::of(&value.bytes());
                self.nodes[node].xattrs.insert(name.to_vec(), (value.length, digested));
            }
            None => drop(self.nodes[node].xattrs.remove(name)),
        }
        self.touch(node);
    }

    /// Notes the time of a change of an inode.
    pub fn touch(&mut self, node: NodeId) {
        self.nodes[node].times.ctime = self.now;
    }

    /// Notes the time of a change of the contents of a file or a directory.
    pub fn touch_contents(&mut self, node: NodeId) {
        let times = &mut self.nodes[node].times;
        (times.mtime, times.ctime) = (self.now, self.now);
    }

    /// The times of an inode.
    pub fn times(&self, node: NodeId) -> Times {
        self.nodes[node].times
    }

    /// When anything was changed last.
    pub fn latest_change(&self) -> Timestamp {
        self.nodes.iter().map(|node| node.times.ctime).max().unwrap_or_default()
    }

    /// Takes over the times of an inode, as found on the filesystem.
    pub fn adopt_times(&mut self, node: NodeId, times: Times) {
        self.nodes[node].times = times;
    }

    /// Sets times.
    pub fn set_times(&mut self, node: NodeId, atime: Option<Timestamp>, mtime: Option<Timestamp>) {
        let times = &mut self.nodes[node].times;
        times.atime = atime.unwrap_or(times.atime);
        times.mtime = mtime.unwrap_or(times.mtime);
        self.touch(node);
    }

    /// Sets the group.
    pub fn set_group(&mut self, node: NodeId, gid: u32) {
        self.nodes[node].gid = gid;
        self.touch(node);
    }

    /// Flags, project and hints.
    pub fn settings(&self, node: NodeId) -> Settings {
        self.nodes[node].settings
    }

    /// Sets flags, project and hints.
    pub fn set_settings(&mut self, node: NodeId, settings: Settings) {
        self.nodes[node].settings = settings;
        self.touch(node);
    }

    /// Sets permissions and owner.
    pub fn change(&mut self, node: NodeId, mode: u16, uid: u32) {
        let node = &mut self.nodes[node];
        node.mode = node.mode & !0o7777 | mode & 0o7777;
        node.uid = uid;
        node.times.ctime = self.now;
    }

    /// Takes references to an inode, or releases them if `count` is negative.
    pub fn hold(&mut self, node: NodeId, count: i32) {
        self.nodes[node].held += count;
    }

    /// The inode that a name refers to.
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

    /// All inodes that exist, because they have a name or a reference, and whose numbers are known.
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

    /// What a file contains, for a change.
    pub fn contents_mut(&mut self, node: NodeId) -> &mut Contents {
        &mut self.nodes[node].contents
    }

    /// All inodes that are referenced.
    pub fn held(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].held > 0).collect()
    }

    /// Whether a file was made without a name and has got none yet.
    pub fn is_new_tmpfile(&self, node: NodeId) -> bool {
        !self.nodes[node].named
    }

    /// Number of names of an inode.
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

    /// Releases all references: the filesystem was closed.
    pub fn release_all(&mut self) {
        for node in &mut self.nodes {
            node.held = 0;
        }
    }
}

/// What a new inode inherits from its directory: every inode the project, files and directories also flags and hints.
fn inherited(parent: Settings, mode: u16) -> Settings {
    const TO_FILES: u16 = flags::SYNC | flags::NOATIME | flags::NODUMP | flags::NODEFRAG | flags::FILESTREAM;
    let mut settings = Settings::default();
    if parent.flags & flags::PROJINHERIT != 0 {
        settings.project = parent.project;
    }
    let kind = mode & MODE_TYPE;
    if kind != MODE_DIR && kind != MODE_REGULAR {
        return settings;
    }
    let is_dir = kind == MODE_DIR;
    settings.flags = parent.flags & if is_dir { TO_FILES | flags::PROJINHERIT } else { TO_FILES };
    if parent.flags & flags::EXTSZINHERIT != 0 {
        settings.flags |= if is_dir { flags::EXTSZINHERIT } else { flags::EXTSIZE };
        settings.extent_blocks = parent.extent_blocks;
    }
    settings.flags2 = parent.flags2 & (flags2::DAX | flags2::COWEXTSIZE);
    settings.cow_extent_blocks = parent.cow_extent_blocks;
    settings
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
            gid: node.gid,
            times: node.times,
            birth_time: node.birth_time,
            settings: node.settings,
            links: self.links(number as usize),
            device: node.device,
            target: node.target.clone(),
            xattrs: node.xattrs.iter().map(|(name, (_, value))| (name.clone(), *value)).collect(),
            entries: node.entries.iter().map(|(name, node)| (name.clone(), *node as u64)).collect(),
        })
    }
}
