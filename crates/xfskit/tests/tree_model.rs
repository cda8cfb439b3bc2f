//! Random operations against a model in memory; afterwards we, the kernel and xfs_repair must all agree with it. And
//! the other way round: trees made by the kernel are read, and then changed, by us.

mod stress;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use stress::{DIR, FILE, Image, Random, colliding, first_seed, keep_if_broken, scale};
use xfskit::ondisk::{InodeNumber, Timestamp};
use xfskit::{
    AttrLogging, Caller, Error, Filesystem, MountOptions, NewFile, RenameFlags, SetAttr, SetMode, SetTime, XattrChange,
};
use xfskit_testkit::{Entry, kernel_mount, reference, tree};

const TYPE: u16 = 0o170_000;
const LINK: u16 = 0o120_000;
const CHAR: u16 = 0o020_000;
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// An inode as it should be.
#[derive(Clone, Debug)]
struct Node {
    inode: InodeNumber,
    mode: u16,
    uid: u32,
    gid: u32,
    links: u32,
    rdev: u32,
    target: Vec<u8>,
    atime: Timestamp,
    mtime: Timestamp,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    children: BTreeMap<Vec<u8>, usize>,
    parent: usize,
    held: u32,
}

impl Node {
    fn is_dir(&self) -> bool {
        self.mode & TYPE == DIR
    }
}

/// An ACL of five entries, and the mode that it makes.
fn acl(owner: u16, named: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, owner, u32::MAX), (2, named, 1000), (4, group, u32::MAX), (16, mask, u32::MAX), (32, other, u32::MAX)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The permissions at an entry of such an ACL.
fn permissions(acl: &[u8], entry: usize) -> u16 {
    u16::from_le_bytes([acl[4 + 8 * entry + 2], acl[4 + 8 * entry + 3]])
}

/// The ACL with its owner, mask and others as the mode has them.
fn following(acl: &[u8], mode: u16) -> Vec<u8> {
    let mut acl = acl.to_vec();
    for (entry, shift) in [(0, 6), (3, 3), (4, 0)] {
        acl[4 + 8 * entry + 2] = (mode >> shift & 7) as u8;
    }
    acl
}

struct Run {
    fs: Option<Filesystem>,
    random: Random,
    nodes: BTreeMap<usize, Node>,
    next: usize,
    names: usize,
    me: Caller,
    log: Vec<String>,
}

impl Run {
    fn new(fs: Filesystem, seed: u64, names: usize) -> Self {
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
        for name in run.fs().list_xattr(root.inode).unwrap() {
            let value = run.fs().get_xattr(root.inode, &name).unwrap();
            run.node(0).xattrs.insert(name, value);
        }
        run
    }

    fn fs(&self) -> &Filesystem {
        self.fs.as_ref().unwrap()
    }

    /// Takes an inode that exists into the model.
    fn adopt(&mut self, stat: &xfskit::Stat, parent: usize) -> usize {
        let id = self.next;
        self.next += 1;
        let node = Node {
            inode: stat.inode,
            mode: stat.mode,
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

    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<usize> {
        let ids: Vec<_> = self.nodes.iter().filter(|(_, node)| wanted(node)).map(|(id, _)| *id).collect();
        self.random.pick(&ids).copied()
    }

    fn dir(&mut self) -> usize {
        self.any(|node| node.is_dir() && node.links > 0).unwrap()
    }

    fn name(&mut self) -> Vec<u8> {
        let number = self.random.below(self.names);
        match number % 4 {
            0 => colliding(number as u32),
            1 => vec![b'n'; 1 + number * 7 % 255],
            _ => format!("{number}").into_bytes(),
        }
    }

    /// A name of the directory, mostly one that exists.
    fn known_name(&mut self, dir: usize) -> Vec<u8> {
        let names: Vec<_> = self.nodes[&dir].children.keys().cloned().collect();
        if self.random.one_in(10) {
            self.name()
        } else {
            self.random.pick(&names).cloned().unwrap_or_else(|| self.name())
        }
    }

    fn child(&self, dir: usize, name: &[u8]) -> Option<usize> {
        self.nodes[&dir].children.get(name).copied()
    }

    fn node(&mut self, id: usize) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    fn number(&self, id: usize) -> InodeNumber {
        self.nodes[&id].inode
    }

    /// The directory's entries changed, so its time did.
    fn touched(&mut self, dir: usize) {
        let mtime = self.fs().stat(self.number(dir)).unwrap().mtime;
        self.node(dir).mtime = mtime;
    }

    /// A name of the node is gone.
    fn lose(&mut self, id: usize) {
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

    fn drop_unused(&mut self, id: usize) {
        let node = &self.nodes[&id];
        if node.links == 0 && node.held == 0 {
            self.nodes.remove(&id);
        }
    }

    fn is_below(&self, mut id: usize, above: usize) -> bool {
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

    fn agree<T>(&self, what: &str, result: Result<T, Error>, expected: bool) -> Option<T> {
        match result {
            Ok(value) if expected => Some(value),
            Err(Error::Shutdown(why)) => panic!("{what}: shut down: {why}"),
            Err(_) if !expected => None,
            Ok(_) => panic!("{what} succeeded"),
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn create(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let kinds = [FILE, FILE, FILE, DIR, DIR, LINK, LINK, CHAR, 0o060_000, 0o010_000, 0o140_000];
        let kind = kinds[self.random.below(kinds.len())];
        let mode = kind | if kind == LINK { 0o777 } else { self.random.below(0o1000) as u16 };
        let umask = [0, 0o22, 0o77][self.random.below(3)];
        let device = if matches!(kind, CHAR | 0o060_000) { self.random.below(0x1000) as u32 } else { 0 };
        let lengths = [1, 30, 200, 336, 337, 500, 1023];
        let target = if kind == LINK { vec![b't'; lengths[self.random.below(lengths.len())]] } else { Vec::new() };
        let new = NewFile { mode, umask, device, target: &target };
        let me = Caller { uid: self.random.below(3) as u32 * 1000, gid: 5, groups: Vec::new() };
        let tmp = kind == FILE && self.random.one_in(4);
        let result = if tmp {
            self.fs().tmpfile(self.number(dir), &new, &me)
        } else {
            self.fs().create(self.number(dir), &name, &new, &me)
        };
        let free = tmp || self.child(dir, &name).is_none();
        let Some(stat) = self.agree("create", result, free) else { return };
        let id = self.adopt(&stat, dir);
        let default = self.nodes[&dir].xattrs.get(DEFAULT).cloned().filter(|_| kind != LINK);
        let node = self.node(id);
        node.target = target.clone();
        if let Some(default) = default {
            let mut allowed = default.clone();
            for (entry, shift) in [(0, 6), (3, 3), (4, 0)] {
                allowed[4 + 8 * entry + 2] &= (mode >> shift & 7) as u8;
            }
            let bits = permissions(&allowed, 0) << 6 | permissions(&allowed, 3) << 3 | permissions(&allowed, 4);
            node.mode = mode & !0o777 | bits;
            node.xattrs.insert(ACCESS.to_vec(), allowed);
            if kind == DIR {
                node.xattrs.insert(DEFAULT.to_vec(), default);
            }
        } else {
            node.mode = if kind == LINK { mode } else { mode & !umask };
        }
        assert_eq!((node.mode, node.uid, node.gid, node.rdev), (stat.mode, me.uid, me.gid, device));
        if tmp {
            assert_eq!(stat.links, 0);
            self.node(id).held = 1;
            return;
        }
        self.node(dir).children.insert(name, id);
        if kind == DIR {
            self.node(dir).links += 1;
        }
        self.touched(dir);
    }

    fn link(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let Some(id) = self.any(|node| !node.is_dir()) else { return };
        let result = self.fs().link(self.number(id), self.number(dir), &name);
        if self.agree("link", result, self.child(dir, &name).is_none()).is_some() {
            self.node(id).links += 1;
            self.node(dir).children.insert(name, id);
            self.touched(dir);
        }
    }

    fn remove(&mut self) {
        let dir = self.dir();
        let name = self.known_name(dir);
        let (rmdir, me) = (self.random.one_in(2), self.me.clone());
        let child = self.child(dir, &name);
        let fits = child.is_some_and(|id| {
            let node = &self.nodes[&id];
            node.is_dir() == rmdir && node.children.is_empty()
        });
        let (fs, number) = (self.fs(), self.number(dir));
        let result = if rmdir { fs.rmdir(number, &name, &me) } else { fs.unlink(number, &name, &me) };
        if self.agree("remove", result, fits).is_some() {
            self.node(dir).children.remove(&name);
            self.lose(child.unwrap());
            self.touched(dir);
        }
    }

    fn rename(&mut self) {
        let from_dir = self.dir();
        let to_dir = if self.random.one_in(3) { from_dir } else { self.dir() };
        let name = self.known_name(from_dir);
        let new_name = if self.random.one_in(2) { self.known_name(to_dir) } else { self.name() };
        let flags = match self.random.below(5) {
            0 => RenameFlags { exchange: true, ..Default::default() },
            1 => RenameFlags { whiteout: true, ..Default::default() },
            2 => RenameFlags { no_replace: true, ..Default::default() },
            _ => RenameFlags::default(),
        };
        let (from, to) = (self.child(from_dir, &name), self.child(to_dir, &new_name));
        let allowed = (|| {
            let Some(from) = from else { return false };
            if to.is_some() && flags.no_replace || to.is_none() && flags.exchange {
                return false;
            }
            if self.nodes[&from].is_dir() && from_dir != to_dir && self.is_below(to_dir, from) {
                return false;
            }
            let Some(to) = to else { return true };
            if to == from {
                return true;
            }
            if flags.exchange {
                return !(self.nodes[&to].is_dir() && from_dir != to_dir && self.is_below(from_dir, to));
            }
            let (from, to) = (&self.nodes[&from], &self.nodes[&to]);
            from.is_dir() == to.is_dir() && to.children.is_empty()
        })();
        let me = self.me.clone();
        let result = self.fs().rename(self.number(from_dir), &name, self.number(to_dir), &new_name, flags, &me);
        self.log.push(format!("  rename {flags:?} {} -> {}", self.number(from_dir), self.number(to_dir)));
        if self.agree("rename", result, allowed).is_none() || from == to {
            return;
        }
        let from = from.unwrap();
        if flags.exchange {
            let to = to.unwrap();
            self.node(from_dir).children.insert(name, to);
            self.node(to_dir).children.insert(new_name, from);
            for (id, old, new) in [(from, from_dir, to_dir), (to, to_dir, from_dir)] {
                self.move_dir(id, old, new);
            }
        } else {
            self.node(from_dir).children.remove(&name);
            if let Some(old) = self.node(to_dir).children.insert(new_name, from) {
                self.lose(old);
            }
            self.move_dir(from, from_dir, to_dir);
            if flags.whiteout {
                let stat = self.fs().lookup(self.number(from_dir), &name).unwrap();
                assert_eq!((stat.mode, stat.device, stat.links), (CHAR, 0, 1));
                let id = self.adopt(&stat, from_dir);
                self.node(from_dir).children.insert(name, id);
            }
        }
        self.touched(from_dir);
        self.touched(to_dir);
    }

    fn move_dir(&mut self, id: usize, from: usize, to: usize) {
        if self.nodes[&id].is_dir() {
            self.node(id).parent = to;
            self.node(from).links -= 1;
            self.node(to).links += 1;
        }
    }

    fn set_attr(&mut self) {
        let Some(id) = self.any(|_| true) else { return };
        let random = &mut self.random;
        let mut some = |limit: usize| random.one_in(2).then(|| random.below(limit));
        let time =
            |n: usize| SetTime::To(Timestamp { seconds: n as i64 * 977 - 5_000_000, nanoseconds: n as u32 % 999 });
        let mut change = SetAttr {
            mode: some(0o1000).map(|mode| mode as u16),
            uid: some(5000).map(|id| id as u32),
            gid: some(5000).map(|id| id as u32),
            atime: some(1 << 20).map(time),
            mtime: some(1 << 20).map(time),
            ctime: None,
            size: None,
        };
        let node = &self.nodes[&id];
        if node.mode & TYPE == LINK {
            change.mode = None;
        }
        let me = self.me.clone();
        let result = self.fs().set_attr(node.inode, &change, &me);
        self.agree("set_attr", result, true);
        let node = self.node(id);
        if let Some(mode) = change.mode {
            node.mode = node.mode & TYPE | mode;
            if let Some(acl) = node.xattrs.get_mut(ACCESS) {
                *acl = following(acl, mode);
            }
        }
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        if let Some(SetTime::To(time)) = change.atime {
            node.atime = time;
        }
        if let Some(SetTime::To(time)) = change.mtime {
            node.mtime = time;
        }
    }

    fn xattr_name(&mut self, id: usize) -> Vec<u8> {
        let plain = matches!(self.nodes[&id].mode & TYPE, FILE | DIR);
        let spaces: &[&[u8]] =
            if plain { &[b"user.", b"trusted.", b"security."] } else { &[b"trusted.", b"security."] };
        let space = spaces[self.random.below(spaces.len())];
        let number = self.random.below(8);
        let name = match number {
            0 | 1 => colliding(number as u32 + 1),
            2 => vec![b'l'; 246],
            _ => format!("a{number}").into_bytes(),
        };
        [space, &name].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(12) {
            0 => 0,
            1..=6 => self.random.below(100),
            7 | 8 => self.random.below(1000),
            9 => self.random.below(3500),
            10 => self.random.below(9000),
            _ if self.random.one_in(4) => 65_536,
            _ => self.random.below(65_536),
        };
        vec![self.random.next() as u8; length]
    }

    fn xattr(&mut self) {
        let Some(id) = self.any(|_| true) else { return };
        let (inode, me) = (self.number(id), self.me.clone());
        match self.random.below(8) {
            0 | 1 => {
                let name = self.xattr_name(id);
                let there = self.nodes[&id].xattrs.contains_key(&name);
                let result = self.fs().remove_xattr(inode, &name, &me);
                self.agree("remove_xattr", result, there);
                self.node(id).xattrs.remove(&name);
            }
            2 => {
                let changes: Vec<_> = (0..self.random.below(5))
                    .map(|_| XattrChange { name: self.xattr_name(id), value: Some(self.value()) })
                    .collect();
                let result = self.fs().change_xattrs(inode, &changes, &me);
                self.log.push(format!("  {} changes of {inode}", changes.len()));
                self.agree("change_xattrs", result, true);
                for change in changes {
                    self.node(id).xattrs.insert(change.name, change.value.unwrap());
                }
            }
            3 => self.set_acl(id),
            _ => {
                let (name, value) = (self.xattr_name(id), self.value());
                let there = self.nodes[&id].xattrs.contains_key(&name);
                let (mode, fits) = match self.random.below(4) {
                    0 => (SetMode::Create, !there),
                    1 => (SetMode::Replace, there),
                    _ => (SetMode::Any, true),
                };
                self.log.push(format!("  {} ({} bytes) of {inode}", name.escape_ascii(), value.len()));
                let result = self.fs().set_xattr(inode, &name, &value, mode, &me);
                if self.agree("set_xattr", result, fits).is_some() {
                    assert_eq!(self.fs().get_xattr(inode, &name).unwrap(), value);
                    self.node(id).xattrs.insert(name, value);
                }
            }
        }
    }

    fn set_acl(&mut self, id: usize) {
        let kind = self.nodes[&id].mode & TYPE;
        if kind == LINK {
            return;
        }
        let bits: Vec<u16> = (0..5).map(|_| self.random.below(8) as u16).collect();
        let value = acl(bits[0], bits[1], bits[2], bits[3], bits[4]);
        let (inode, me) = (self.number(id), self.me.clone());
        let name = if kind == DIR && self.random.one_in(2) { DEFAULT } else { ACCESS };
        if self.random.one_in(4) {
            self.fs().remove_xattr(inode, name, &me).unwrap();
            self.node(id).xattrs.remove(name);
            return;
        }
        self.fs().set_xattr(inode, name, &value, SetMode::Any, &me).unwrap();
        let node = self.node(id);
        if name == ACCESS {
            node.mode = node.mode & !0o777 | bits[0] << 6 | bits[3] << 3 | bits[4];
        }
        node.xattrs.insert(name.to_vec(), value);
    }

    fn hold(&mut self) {
        if self.random.one_in(2) {
            let Some(id) = self.any(|node| node.links > 0 && node.inode.0 != 0) else { return };
            self.fs().hold(self.number(id)).unwrap();
            self.node(id).held += 1;
        } else if let Some(id) = self.any(|node| node.held > 0) {
            self.let_go(id);
        }
    }

    fn let_go(&mut self, id: usize) {
        let held = self.nodes[&id].held;
        self.fs().unhold(self.number(id), held).unwrap();
        self.node(id).held = 0;
        self.drop_unused(id);
    }

    fn let_all_go(&mut self) {
        while let Some(id) = self.any(|node| node.held > 0) {
            self.let_go(id);
        }
    }

    fn step(&mut self) {
        let kind = self.random.below(100);
        // The more there is, the more is removed.
        let crowded = self.nodes.len() > 150;
        match kind {
            0..=19 if !crowded => self.create(),
            0..=29 => self.remove(),
            30..=37 => self.link(),
            38..=55 => self.rename(),
            56..=63 => self.set_attr(),
            64..=92 => self.xattr(),
            93..=97 => self.hold(),
            98 => self.fs().sync().unwrap(),
            _ => drop(self.fs().mount().journal.push_tail(xfskit::ondisk::Lsn(u64::MAX)).unwrap()),
        }
    }

    /// What the tree must look like.
    fn expected(&self) -> Vec<Entry> {
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

    fn check(&self, seen: &[Entry], who: &str) {
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

/// An entry in few words.
fn brief(entry: &Entry) -> String {
    let mut text = format!("{}\n", Entry { xattrs: Vec::new(), ..entry.clone() });
    for (name, value) in &entry.xattrs {
        let sum = value.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        text += &format!("    {name}: {} bytes, {sum:x}\n", value.len());
    }
    text
}

fn entry(path: PathBuf, node: &Node) -> Entry {
    let kind = node.mode & TYPE;
    let mut xattrs: Vec<_> =
        node.xattrs.iter().map(|(n, v)| (String::from_utf8_lossy(n).into_owned(), v.clone())).collect();
    xattrs.sort();
    Entry {
        path,
        mode: node.mode.into(),
        uid: node.uid,
        gid: node.gid,
        links: node.links.into(),
        size: node.target.len() as u64,
        rdev: node.rdev.into(),
        mtime: (node.mtime.seconds, node.mtime.nanoseconds.into()),
        target: (kind == LINK).then(|| OsStr::from_bytes(&node.target).into()),
        xattrs,
        contents: (kind == FILE).then_some(0),
    }
}

/// The tree as we read it. Contents of files are not ours to read.
fn seen_by_us(fs: &Filesystem) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut todo = vec![(PathBuf::new(), fs.root())];
    while let Some((path, inode)) = todo.pop() {
        let stat = fs.stat(inode).unwrap();
        let kind = stat.mode & TYPE;
        if kind == DIR {
            for entry in fs.list_dir(inode).unwrap() {
                assert_eq!(fs.lookup_number(inode, &entry.name).unwrap(), entry.inode);
                todo.push((path.join(OsStr::from_bytes(&entry.name)), entry.inode));
            }
        }
        // The raw attributes behind the ACLs are listed too, for those who restore them.
        let names = fs.list_xattr(inode).unwrap();
        let mut xattrs: Vec<_> = names
            .into_iter()
            .map(|name| (String::from_utf8_lossy(&name).into_owned(), fs.get_xattr(inode, &name).unwrap()))
            .collect();
        xattrs.retain(|(name, _)| !name.starts_with("trusted.SGI_ACL_"));
        xattrs.sort();
        entries.push(Entry {
            path,
            mode: stat.mode.into(),
            uid: stat.uid,
            gid: stat.gid,
            links: stat.links.into(),
            size: if matches!(kind, FILE | LINK) { stat.size } else { 0 },
            rdev: stat.device.into(),
            mtime: (stat.mtime.seconds, stat.mtime.nanoseconds.into()),
            target: (kind == LINK).then(|| OsStr::from_bytes(&fs.read_link(inode).unwrap()).into()),
            xattrs,
            contents: (kind == FILE).then_some(0),
        });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// The tree as the kernel reads it, in the same terms as [`seen_by_us`].
fn seen_by_kernel(root: &Path, contents: bool) -> Vec<Entry> {
    let mut entries = tree(root);
    for entry in &mut entries {
        entry.xattrs.retain(|(name, _)| !name.starts_with("trusted.SGI_ACL_"));
        if !contents {
            entry.contents = entry.contents.map(|_| 0);
        }
    }
    entries
}

fn model(image: &Image, options: &MountOptions, seed: u64, steps: usize, names: usize) {
    eprintln!("seed {seed}");
    let mut run = Run::new(image.open_with(options.clone()), seed, names);
    for step in 0..steps {
        run.step();
        if step % 1000 == 999 {
            run.log.clear();
            run.check(&seen_by_us(run.fs()), "we");
            run.let_all_go();
            let before = run.fs().statfs();
            run.fs.take().unwrap().unmount().unwrap();
            if step % 3000 == 2999 {
                image.assert_sound();
            }
            run.fs = Some(image.open_with(options.clone()));
            assert_eq!(run.fs().statfs(), before);
            run.check(&seen_by_us(run.fs()), "we");
        }
    }
    run.let_all_go();
    run.check(&seen_by_us(run.fs()), "we");
    let has_parents = run.fs().mount().geometry.has_parent();
    let parents =
        run.expected().into_iter().filter(|entry| has_parents && entry.contents.is_some()).step_by(7).map(|entry| {
            let inode = run.fs().resolve(entry.path.as_os_str().as_bytes(), false).unwrap().inode;
            (entry.path, run.fs().paths(inode).unwrap())
        });
    let parents: Vec<_> = parents.collect();
    run.fs.take().unwrap().unmount().unwrap();
    image.assert_sound();
    let Some(kernel) = kernel_mount(&image.path) else { return };
    keep_if_broken(&image.path, || run.check(&seen_by_kernel(kernel.path(), true), "the kernel"));
    kernel.unmount();
    check_parents(&image.path, &parents);
}

/// The parents that xfs_io lists, in the newest kernel, are those that we found.
fn check_parents(image: &Path, files: &[(PathBuf, Vec<Vec<u8>>)]) {
    let Some(reference) = reference().filter(|_| !files.is_empty()) else { return };
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let mut script = "mount -t xfs /dev/ubda /mnt || exit 1\n".to_owned();
    for (path, _) in files {
        let path = octal(path.as_os_str().as_bytes());
        script += &format!("xfs_io -r -c 'parent -p' /mnt/$'{path}' | od -An -v -tx1 | tr -d ' \\n'; echo\n");
    }
    let run = reference.uml(image, &script);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: Vec<_> = run.output.lines().collect();
    assert_eq!(lines.len(), files.len(), "{}", run.output);
    for ((path, ours), line) in files.iter().zip(lines) {
        let mut theirs: Vec<_> = line
            .split(&hex(b"\n/mnt"))
            .map(|parent| parent.trim_start_matches(&hex(b"/mnt")).trim_end_matches("0a").to_owned())
            .collect();
        theirs.sort();
        let ours: Vec<_> = ours.iter().map(|path| hex(path)).collect();
        assert_eq!(ours, theirs, "parents of {}", path.display());
    }
}

#[test]
fn a_tiny_image_agrees_with_the_model() {
    for seed in first_seed()..first_seed() + 3 * scale() {
        let image = Image::new(256, &[('b', "size=1024"), ('d', "agcount=4"), ('l', "size=5m")]);
        model(&image, &MountOptions::default(), seed, 6000, 120);
    }
}

#[test]
fn an_image_of_defaults_agrees_with_the_model() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(400, &[]);
        model(&image, &MountOptions::default(), seed + 1000, 6000, 60);
    }
}

#[test]
fn logged_attributes_agree_with_the_model() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(256, &[('b', "size=1024"), ('d', "agcount=2")]);
        let options = MountOptions {
            attr_logging: if seed % 2 == 0 { AttrLogging::Always } else { AttrLogging::Never },
            attr_fast_path: seed % 3 != 0,
            known_absent: seed % 2 == 0,
            cache_bytes: 1 << 20,
            ..MountOptions::default()
        };
        model(&image, &options, seed + 2000, 5000, 60);
    }
}

#[test]
fn images_without_parents_or_reverse_mappings_agree_with_the_model() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let plain =
            [('b', "size=1024"), ('m', "rmapbt=0,reflink=0,finobt=0"), ('n', "parent=0"), ('i', "sparse=0,exchange=0")];
        let large = [('n', "size=16384"), ('i', "size=1024"), ('d', "agcount=3"), ('n', "parent=0")];
        let image = if seed % 2 == 0 { Image::new(256, &plain) } else { Image::new(256, &large) };
        model(&image, &MountOptions::default(), seed + 3000, 5000, 200);
    }
}

/// Makes a tree through a mount.
fn make_by_kernel(root: &Path, random: &mut Random) {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat};
    let mut dirs = vec![root.to_path_buf()];
    let mut files = Vec::new();
    for n in 0..1500u32 {
        let name =
            if n % 4 == 0 { colliding(n / 4) } else { format!("{:0width$}", n, width = n as usize % 200).into_bytes() };
        let path = random.pick(&dirs).unwrap().join(OsStr::from_bytes(&name));
        let mut plain = false;
        match n % 10 {
            0 => {
                std::fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
                plain = true;
            }
            1 => std::os::unix::fs::symlink("t".repeat(1 + n as usize % 1000), &path).unwrap(),
            2 if !files.is_empty() => std::fs::hard_link(random.pick(&files).unwrap(), &path).unwrap(),
            3 => mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap(),
            4 => mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o600), 0x0103).unwrap(),
            5 if !files.is_empty() => std::fs::rename(files.swap_remove(random.below(files.len())), &path).unwrap(),
            _ => {
                std::fs::write(&path, vec![n as u8; random.below(20_000)]).unwrap();
                files.push(path.clone());
                plain = true;
            }
        }
        for attribute in 0..random.below(4) {
            let length = [3, 60, 300, 3000, 65_536][random.below(5)];
            let space = if plain { "user" } else { "trusted" };
            let value = vec![attribute as u8; length];
            lsetxattr(&path, format!("{space}.a{attribute}"), &value, XattrFlags::empty()).unwrap();
        }
        if plain && n % 7 == 0 {
            lsetxattr(&path, "system.posix_acl_access", &acl(7, 5, 4, 6, 0), XattrFlags::empty()).unwrap();
        }
        if n % 11 == 0 {
            std::os::unix::fs::lchown(&path, Some(n), Some(n + 1)).unwrap();
        }
    }
}

/// Changes a tree that somebody else made.
fn change_all(fs: &Filesystem, dir: InodeNumber, random: &mut Random) {
    let me = Caller::root();
    for entry in fs.list_dir(dir).unwrap() {
        let stat = fs.stat(entry.inode).unwrap();
        let is_dir = stat.mode & TYPE == DIR;
        if is_dir {
            change_all(fs, entry.inode, random);
        }
        match random.below(6) {
            0 if !is_dir => fs.unlink(dir, &entry.name, &me).unwrap(),
            1 => {
                let name = format!("renamed {}", random.next()).into_bytes();
                fs.rename(dir, &entry.name, dir, &name, RenameFlags::default(), &me).unwrap();
            }
            2 => fs.set_xattr(entry.inode, b"trusted.new", &vec![8; random.below(5000)], SetMode::Any, &me).unwrap(),
            3 => {
                for name in fs.list_xattr(entry.inode).unwrap().iter().filter(|name| !name.starts_with(b"trusted.SGI"))
                {
                    fs.remove_xattr(entry.inode, name, &me).unwrap();
                }
            }
            4 if is_dir => {
                for n in 0..50 {
                    fs.create(entry.inode, format!("new {n}").as_bytes(), &NewFile::new(FILE | 0o600), &me).unwrap();
                }
            }
            _ => {}
        }
    }
}

/// We see what the kernel sees, also after we have changed it.
fn both_see_the_same(image: &Image, random: &mut Random) {
    let kernel = kernel_mount(&image.path).unwrap();
    let theirs = seen_by_kernel(kernel.path(), false);
    kernel.unmount();
    let fs = image.open();
    let compare = |ours: &[Entry], theirs: &[Entry]| {
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!(ours == theirs, "we see\n{}instead of\n{}", brief(ours), brief(theirs));
        }
        assert_eq!(ours.len(), theirs.len());
    };
    compare(&seen_by_us(&fs), &theirs);
    change_all(&fs, fs.root(), random);
    let ours = seen_by_us(&fs);
    image.close(fs);
    let kernel = kernel_mount(&image.path).unwrap();
    let theirs = seen_by_kernel(kernel.path(), false);
    kernel.unmount();
    compare(&ours, &theirs);
}

#[test]
fn trees_made_by_the_kernel_are_read_and_changed() {
    let shapes: [&[(char, &str)]; 3] =
        [&[], &[('b', "size=1024")], &[('m', "rmapbt=0"), ('n', "parent=0"), ('n', "size=8192")]];
    for seed in first_seed()..first_seed() + scale() {
        for shape in shapes {
            let image = Image::new(400, shape);
            let Some(kernel) = kernel_mount(&image.path) else { return };
            let mut random = Random::new(seed);
            make_by_kernel(kernel.path(), &mut random);
            kernel.unmount();
            both_see_the_same(&image, &mut random);
        }
    }
}

#[test]
fn a_tree_made_by_the_newest_kernel_is_read_and_changed() {
    let Some(reference) = reference() else { return };
    let image = Image::new(400, &[]);
    let script = "mount -t xfs /dev/ubda /mnt || exit 1; cd /mnt; mkdir a a/b c; \
        for i in $(seq 400); do : >a/b/file-$i; ln a/b/file-$i c/link-$i-$(printf %0100d $i); done; \
        ln -s target a/short; ln -s $(printf %0900d 1) a/long; mkfifo c/fifo; mknod c/dev c 1 3; \
        for i in $(seq 1 3 400); do mv a/b/file-$i a/; rm c/link-$i-*; done; mv c a/b/moved; cd /; umount /mnt";
    let run = reference.uml(&image.path, script);
    assert_eq!(run.status, 0, "{}", run.output);
    if kernel_mount(&image.path).map(|kernel| kernel.unmount()).is_some() {
        both_see_the_same(&image, &mut Random::new(first_seed()));
    }
}
