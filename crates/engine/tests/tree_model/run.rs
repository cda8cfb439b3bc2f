//! The model beside the filesystem: its inodes, names that are used more than once, and what both must agree on.

use crate::node::Node;
use crate::stress::{Random, colliding};
use crate::view::{brief, entry};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use xfskit_engine::{Caller, Error, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::TreeEntry;

/// A filesystem and what must be in it.
pub struct Run {
    pub fs: Option<Volume>,
    pub random: Random,
    pub nodes: BTreeMap<usize, Node>,
    pub next: usize,
    pub names: usize,
    pub me: Caller,
    pub log: Vec<String>,
}

impl Run {
    pub fn new(fs: Volume, seed: u64, names: usize) -> Self {
        let root = fs.stat(fs.root()).unwrap();
        let me = Caller::root();
        let mut run = Self {
            fs: Some(fs),
            random: Random::new(seed),
            nodes: BTreeMap::new(),
            next: 0,
            names,
            me,
            log: Vec::new(),
        };
        run.adopt(&root, 0);
        for name in run.fs().list_xattrs(root.inode).unwrap() {
            let value = run.fs().get_xattr(root.inode, &name).unwrap();
            run.node(0).xattrs.insert(name, value);
        }
        run
    }

    pub fn fs(&self) -> &Volume {
        self.fs.as_ref().unwrap()
    }

    /// Takes an inode that exists into the model.
    pub fn adopt(&mut self, stat: &xfskit_engine::Stat, parent: usize) -> usize {
        let id = self.next;
        self.next += 1;
        let node = Node {
            inode: stat.inode,
            mode: stat.mode(),
            uid: stat.uid,
            gid: stat.gid,
            links: stat.links,
            rdev: stat.device,
            target: Vec::new(),
            atime: stat.atime,
            mtime: stat.mtime,
            xattrs: BTreeMap::new(),
            children: BTreeMap::new(),
            parent,
            held: 0,
        };
        self.nodes.insert(id, node);
        id
    }

    pub fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<usize> {
        let ids: Vec<_> = self.nodes.iter().filter(|(_, node)| wanted(node)).map(|(id, _)| *id).collect();
        self.random.pick(&ids).copied()
    }

    pub fn dir(&mut self) -> usize {
        self.any(|node| node.is_dir() && node.links > 0).unwrap()
    }

    pub fn name(&mut self) -> Vec<u8> {
        let number = self.random.below(self.names);
        match number % 4 {
            0 => colliding(number as u32),
            1 => vec![b'n'; 1 + number * 7 % 255],
            _ => format!("{number}").into_bytes(),
        }
    }

    /// A name of the directory, mostly one that exists.
    pub fn known_name(&mut self, dir: usize) -> Vec<u8> {
        let names: Vec<_> = self.nodes[&dir].children.keys().cloned().collect();
        if self.random.one_in(10) {
            self.name()
        } else {
            self.random.pick(&names).cloned().unwrap_or_else(|| self.name())
        }
    }

    pub fn child(&self, dir: usize, name: &[u8]) -> Option<usize> {
        self.nodes[&dir].children.get(name).copied()
    }

    pub fn node(&mut self, id: usize) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    pub fn number(&self, id: usize) -> InodeNumber {
        self.nodes[&id].inode
    }

    /// The directory's entries changed, so its time did.
    pub fn touched(&mut self, dir: usize) {
        let mtime = self.fs().stat(self.number(dir)).unwrap().mtime;
        self.node(dir).mtime = mtime;
    }

    /// The node has lost a name.
    pub fn lose(&mut self, id: usize) {
        let node = self.node(id);
        if node.is_dir() {
            node.links = 0;
            let parent = node.parent;
            self.node(parent).links -= 1;
        } else {
            node.links -= 1;
        }
        self.drop_unused(id);
    }

    pub fn drop_unused(&mut self, id: usize) {
        let node = &self.nodes[&id];
        if node.links == 0 && node.held == 0 {
            self.nodes.remove(&id);
        }
    }

    pub fn is_below(&self, mut id: usize, above: usize) -> bool {
        loop {
            if id == above {
                return true;
            }
            if id == 0 {
                return false;
            }
            id = self.nodes[&id].parent;
        }
    }

    pub fn agree<T>(&self, what: &str, result: Result<T, Error>, expected: bool) -> Option<T> {
        match result {
            Ok(value) if expected => Some(value),
            Err(Error::Shutdown(why)) => panic!("{what}: shut down: {why}"),
            Err(_) if !expected => None,
            Ok(_) => panic!("{what} succeeded"),
            Err(error) => panic!("{what}: {error}"),
        }
    }

    pub fn hold(&mut self) {
        if self.random.one_in(2) {
            let Some(id) = self.any(|node| node.links > 0 && node.inode.0 != 0) else { return };
            self.fs().add_reference(self.number(id)).unwrap();
            self.node(id).held += 1;
        } else if let Some(id) = self.any(|node| node.held > 0) {
            self.let_go(id);
        }
    }

    pub fn let_go(&mut self, id: usize) {
        let held = self.nodes[&id].held;
        self.fs().drop_references(self.number(id), held.into()).unwrap();
        self.node(id).held = 0;
        self.drop_unused(id);
    }

    pub fn let_all_go(&mut self) {
        while let Some(id) = self.any(|node| node.held > 0) {
            self.let_go(id);
        }
    }
    /// What the tree must look like.
    pub fn expected(&self) -> Vec<TreeEntry> {
        let mut entries = Vec::new();
        let mut todo = vec![(PathBuf::new(), 0)];
        while let Some((path, id)) = todo.pop() {
            let node = &self.nodes[&id];
            for (name, child) in &node.children {
                todo.push((path.join(OsStr::from_bytes(name)), *child));
            }
            entries.push(entry(path, node));
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries
    }

    pub fn check(&self, seen: &[TreeEntry], who: &str) {
        let expected = self.expected();
        for (expected, seen) in expected.iter().zip(seen) {
            if expected != seen {
                panic!("{who} saw\n{}instead of\n{}after\n{}", brief(seen), brief(expected), self.log.join("\n"));
            }
        }
        assert_eq!(expected.len(), seen.len(), "entries for {who}");
        for node in self.nodes.values().filter(|_| who == "we") {
            assert_eq!(self.fs().stat(node.inode).unwrap().atime, node.atime, "inode {}", node.inode);
        }
    }
}
