//! The operations, each with random arguments: the result must be the model's.

use crate::node::{ACCESS, CHAR, DEFAULT, LINK, TYPE, acl, following, permissions};
use crate::run::Run;
use crate::stress::{DIR, FILE, colliding};
use xfskit_engine::{Caller, NewFile, Permissions, RenameFlags, SetAttr, SetMode, SetTime, XattrChange};
use xfskit_ondisk::Timestamp;

impl Run {
    /// One operation.
    pub fn step(&mut self) {
        let kind = self.random.below(100);
        // With many inodes, none are made and more are removed.
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
            _ => drop(self.fs().mount().journal.push_tail(xfskit_ondisk::Lsn(u64::MAX)).unwrap()),
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
        let new = NewFile { umask, device, target: &target, ..NewFile::of_mode(mode).unwrap() };
        let me = Caller { uid: self.random.below(3) as u32 * 1000, gid: 5, groups: Vec::new() };
        let tmp = kind == FILE && self.random.one_in(4);
        let result = if tmp {
            self.fs().tmpfile(self.number(dir), &new, &me).and_then(|made| self.fs().stat(made.into_raw()))
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
        assert_eq!((node.mode, node.uid, node.gid, node.rdev), (stat.mode(), me.uid, me.gid, device));
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
        let result = self.fs().link(self.number(dir), &name, self.number(id), &Caller::root());
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
                if self.nodes[&id].is_dir() && old != new {
                    // Its name for the parent leads elsewhere.
                    self.touched(id);
                }
            }
        } else {
            self.node(from_dir).children.remove(&name);
            if let Some(old) = self.node(to_dir).children.insert(new_name, from) {
                self.lose(old);
            }
            self.move_dir(from, from_dir, to_dir);
            if flags.whiteout {
                let stat = self.fs().lookup(self.number(from_dir), &name).unwrap();
                assert_eq!((stat.mode(), stat.device, stat.links), (CHAR, 0, 1));
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
            permissions: some(0o1000).map(|mode| Permissions::new(mode as u16)),
            uid: some(5000).map(|id| id as u32),
            gid: some(5000).map(|id| id as u32),
            atime: some(1 << 20).map(time),
            mtime: some(1 << 20).map(time),
            ctime: None,
            size: None,
        };
        let node = &self.nodes[&id];
        if node.mode & TYPE == LINK {
            change.permissions = None;
        }
        let me = self.me.clone();
        let result = self.fs().set_attr(node.inode, &change, &me);
        self.agree("set_attr", result, true);
        let node = self.node(id);
        if let Some(mode) = change.permissions.map(Permissions::bits) {
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
                let result = self.fs().remove_xattr(inode, &name, SetMode::Any, &me);
                self.agree("remove_xattr", result, there);
                self.node(id).xattrs.remove(&name);
            }
            2 => {
                let changes: Vec<_> = (0..self.random.below(5))
                    .map(|_| XattrChange { name: self.xattr_name(id), value: Some(self.value()) })
                    .collect();
                let result = self.fs().change_xattrs(inode, &changes, SetMode::Any, &me);
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
            self.fs().remove_xattr(inode, name, SetMode::Any, &me).unwrap();
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
}
