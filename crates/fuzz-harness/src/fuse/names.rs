//! Requests for names.

use super::model::{self, DIR, Node, ROOT, TYPE};
use super::wire::{self, Asker, Body, u32_at, u64_at};
use super::{
    EEXIST, EINVAL, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, ENTRY_ATTR, ENTRY_BYTES, EPERM, Errno, NO_INODE,
    Run,
};

const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const WHITEOUT: u32 = 4;
/// Longest target of a symbolic link.
const MAX_TARGET_BYTES: usize = 1023;

fn causes_of_name(name: &[u8], dots: Errno) -> Vec<Errno> {
    match name {
        b"." | b".." => vec![dots],
        name if name.len() > 255 => vec![ENAMETOOLONG],
        name if name.is_empty() || name.contains(&b'/') => vec![EINVAL],
        _ => Vec::new(),
    }
}

impl Run<'_> {
    pub(super) fn lookup(&mut self) {
        let name = self.name();
        // A lookup by number alone, as for an NFS file handle, which may contain any number, also those of the realtime
        // inodes, which follow the root's.
        let dir = match name.as_slice() {
            b"." => match self.input.byte() {
                byte @ 0..100 => self.model.root_inode + 1 + u64::from(byte % 2),
                _ => self.node(),
            },
            _ => self.dir(),
        };
        self.look_up(dir, &name);
    }

    fn look_up(&mut self, dir: u64, name: &[u8]) {
        let mut causes = if name == b"." { self.causes_of(dir) } else { self.causes_of_dir(dir) };
        if name != b"." && name != b".." {
            causes.extend(causes_of_name(name, EINVAL));
        }
        if name == b"." {
            causes.retain(|cause| *cause != super::EUCLEAN);
        }
        let is_removed = self.model.get(dir).is_some_and(|node| node.names == 0);
        let number = match name {
            b"." => Some(self.model.key(dir)),
            b".." => self.model.get(dir).map(|node| node.parent),
            name => self.model.lookup(dir, name),
        };
        if name == b".." && is_removed {
            // The parent of a removed directory may be removed as well.
            return;
        }
        // The server answers with an entry without an inode if the name, or the directory, does not exist.
        let is_absent = number.is_none() && causes.iter().all(|cause| *cause == ENOENT || NO_INODE.contains(cause));
        let body = Body::default().name(name);
        if is_absent {
            causes.retain(|cause| *cause != ENOENT);
            let opcode = wire::LOOKUP;
            self.log.push(format!("{opcode} of {dir}: {}", name.escape_ascii()));
            match self.connection.ask(opcode, dir, &body) {
                Ok(entry) => self.expect_equal("the node of a name that is not there", &u64_at(&entry, 0), &0),
                Err(error) => {
                    if !causes.contains(&error) {
                        self.fail(&format!("the answer is {error}, but it may be one of {causes:?}"));
                    }
                }
            }
            return;
        }
        let Ok(entry) = self.ask(wire::LOOKUP, dir, Asker::default(), &body, &causes) else { return };
        self.take_entry(&entry, number.unwrap_or(ROOT));
    }

    /// Takes an answer with an entry, which gives the kernel a reference to the node.
    fn take_entry(&mut self, entry: &[u8], number: u64) {
        self.expect_equal("the node of a name", &u64_at(entry, 0), &number);
        if number != ROOT {
            self.model.get_mut(number).held += 1;
            self.compare_attr(number, &entry[ENTRY_ATTR..]);
        }
    }

    pub(super) fn forget(&mut self) {
        let kind = self.input.byte();
        let mut counts = Vec::new();
        for _ in 0..=kind % 3 {
            let node = self.node();
            let count = match self.input.byte() {
                byte @ 0..200 => u64::from(byte % 4),
                byte @ 200..240 => u64::from(byte),
                _ => u64::MAX,
            };
            counts.push((node, count));
        }
        if let [(node, count)] = counts[..] {
            self.log.push(format!("{} of {node}: {count}", wire::FORGET));
            self.connection.send(wire::FORGET, node, Asker::default(), &Body::default().u64s(&[count]).0);
        } else {
            let mut body = Body::default().u32s(&[counts.len() as u32, 0]);
            for (node, count) in &counts {
                body = body.u64s(&[*node, *count]);
            }
            self.log.push(format!("{}: {counts:?}", wire::BATCH_FORGET));
            self.connection.send(wire::BATCH_FORGET, 0, Asker::default(), &body.0);
        }
        counts.into_iter().for_each(|(node, count)| self.model.forget(node, count));
        // A forget has no answer. The server answers the next request after it.
        self.look(ROOT);
    }

    fn asker(&mut self) -> Asker {
        let byte = self.input.byte();
        Asker { uid: u32::from(byte % 3) * 500, gid: u32::from(byte / 3 % 3) * 700 }
    }

    /// The errors of a request that makes a name.
    fn causes_of_new(&self, dir: u64, name: &[u8]) -> Vec<Errno> {
        let mut causes = self.causes_of_dir(dir);
        causes.extend(causes_of_name(name, EEXIST));
        if self.model.get(dir).is_some_and(|node| node.names == 0) {
            causes.push(ENOENT);
        }
        if self.model.lookup(dir, name).is_some() {
            causes.push(EEXIST);
        }
        causes
    }

    /// Adds a new inode to the model.
    fn take_new(&mut self, dir: u64, name: &[u8], entry: &[u8], mut node: Node) {
        let parent = self.model.get(dir).expect("a directory in which something was made");
        if parent.mode & 0o2000 != 0 {
            node.gid = parent.gid;
            node.mode |= if node.is_dir() { 0o2000 } else { 0 };
        }
        let number = u64_at(entry, 0);
        if self.model.get(number).is_some() {
            self.fail(&format!("the new node {number} is in use"));
        }
        // Its permissions follow from the ACLs of its directory.
        node.has_acl = parent.has_acl && node.mode & TYPE != model::SYMLINK;
        self.model.add(dir, name, number, node);
        self.take_entry(entry, number);
    }

    pub(super) fn make(&mut self, opcode: u32) {
        let (dir, name, asker) = (self.dir(), self.name(), self.asker());
        let kind = self.input.byte();
        let mut mode = u32::from(self.input.byte()) << 4 | u32::from(kind >> 4);
        let umask = if kind & 8 == 0 { 0o22 } else { self.input.word() & 0xffff };
        let effective_umask = umask & 0o777;
        let rdev = if kind & 4 == 0 { 0x501 } else { self.input.word() };
        let mut causes = self.causes_of_new(dir, &name);
        if opcode != wire::MKDIR {
            mode |= [model::FILE, model::CHAR, model::BLOCK, 0o010_000, 0o140_000, 0o050_000, model::FILE, 0]
                [usize::from(kind % 4) + usize::from(kind >> 7) * 4];
        }
        let kind = match mode & TYPE {
            _ if opcode == wire::MKDIR => DIR,
            0 => model::FILE,
            kind => kind,
        };
        let is_device = opcode == wire::MKNOD && (kind == model::CHAR || kind == model::BLOCK);
        let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00);
        // XFS stores nine bits of the major number and eighteen of the minor one.
        if kind == 0o050_000 || is_device && (major >= 1 << 9 || minor >= 1 << 18) {
            causes.push(EINVAL);
        }
        let body = match opcode {
            wire::MKDIR => Body::default().u32s(&[mode, umask]),
            wire::CREATE => Body::default().u32s(&[0o102, mode, umask, 0]),
            _ => Body::default().u32s(&[mode, rdev, umask, 0]),
        };
        let Ok(entry) = self.ask(opcode, dir, asker, &body.name(&name), &causes) else { return };
        let rdev = if is_device { rdev } else { 0 };
        let umask = if self.model.get(dir).is_some_and(|dir| dir.has_acl) { 0 } else { effective_umask };
        let mode = kind | mode & 0o7777 & !umask;
        self.take_new(dir, &name, &entry, Node { mode, uid: asker.uid, gid: asker.gid, rdev, ..Node::default() });
    }

    pub(super) fn symlink(&mut self) {
        let (dir, name, asker) = (self.dir(), self.name(), self.asker());
        let length = usize::from(self.input.byte()) * [1, 5][usize::from(self.input.byte() % 2)];
        let target = vec![b't'; length];
        let mut causes = self.causes_of_new(dir, &name);
        if target.is_empty() {
            causes.push(ENOENT);
        }
        if target.len() > MAX_TARGET_BYTES {
            causes.push(ENAMETOOLONG);
        }
        let body = Body::default().name(&name).name(&target);
        let Ok(entry) = self.ask(wire::SYMLINK, dir, asker, &body, &causes) else { return };
        let (mode, Asker { uid, gid }) = (model::SYMLINK | 0o777, asker);
        self.take_new(dir, &name, &entry, Node { mode, uid, gid, target, ..Node::default() });
    }

    pub(super) fn readlink(&mut self) {
        let node = self.node();
        let mut causes = self.causes_of(node);
        if self.model.get(node).is_some_and(|node| node.mode & TYPE != model::SYMLINK) {
            causes.push(EINVAL);
        }
        if let Ok(target) = self.ask(wire::READLINK, node, Asker::default(), &Body::default(), &causes) {
            let expected = self.model.get(node).expect("a link").target.clone();
            self.expect_equal("a target", &target, &expected);
        }
    }

    pub(super) fn remove(&mut self, opcode: u32) {
        let (dir, name) = (self.dir(), self.name());
        let mut causes = self.causes_of_dir(dir);
        causes.extend(causes_of_name(&name, if name == b"." { EINVAL } else { ENOTEMPTY }));
        let child = self.model.lookup(dir, &name).and_then(|child| self.model.get(child));
        match child {
            None => causes.push(ENOENT),
            Some(child) if opcode == wire::UNLINK && child.is_dir() => causes.push(EISDIR),
            Some(child) if opcode == wire::RMDIR && !child.is_dir() => causes.push(ENOTDIR),
            Some(child) if !child.entries.is_empty() => causes.push(ENOTEMPTY),
            Some(_) => {}
        }
        if self.ask(opcode, dir, Asker::default(), &Body::default().name(&name), &causes).is_ok() {
            self.model.leave(dir, &name);
        }
    }

    pub(super) fn link(&mut self) {
        let (node, dir, name) = (self.node(), self.dir(), self.name());
        let mut causes = self.causes_of_new(dir, &name);
        causes.extend(self.causes_of(node));
        let found = self.model.get(node);
        if found.is_some_and(Node::is_dir) {
            causes.push(EPERM);
        }
        if found.is_some_and(|node| node.names == 0) {
            // The kernel refuses to link a file without names.
            return;
        }
        let body = Body::default().u64s(&[node]).name(&name);
        let Ok(entry) = self.ask(wire::LINK, dir, Asker::default(), &body, &causes) else { return };
        self.model.enter(dir, &name, node);
        self.take_entry(&entry, node);
    }

    pub(super) fn rename(&mut self) {
        let (from, name, to, new_name) = (self.dir(), self.name(), self.dir(), self.name());
        let byte = self.input.byte();
        let flags = match byte {
            0..120 => 0,
            120..240 => u32::from(byte % 8),
            _ => u32::from(byte) << 4,
        };
        let causes = self.causes_of_rename((from, &name), (to, &new_name), flags);
        let body = Body::default().u64s(&[to]).u32s(&[flags, 0]).name(&name).name(&new_name);
        if self.ask(wire::RENAME2, from, Asker::default(), &body, &causes).is_err() {
            return;
        }
        let (child, target) = (self.model.lookup(from, &name), self.model.lookup(to, &new_name));
        let Some(child) = child.filter(|child| target != Some(*child)) else { return };
        // The references keep the inodes in the model while they have no name for a moment.
        self.model.get_mut(child).held += 1;
        self.model.leave(from, &name);
        if let Some(target) = target.filter(|_| flags & EXCHANGE != 0) {
            self.model.get_mut(target).held += 1;
            self.model.leave(to, &new_name);
            self.model.enter(from, &name, target);
            self.model.get_mut(target).held -= 1;
        } else if target.is_some() {
            self.model.leave(to, &new_name);
        }
        self.model.enter(to, &new_name, child);
        self.model.get_mut(child).held -= 1;
        if flags & WHITEOUT != 0 {
            self.take_whiteout(from, &name);
        }
    }

    fn take_whiteout(&mut self, dir: u64, name: &[u8]) {
        let answer = self.connection.ask(wire::LOOKUP, dir, &Body::default().name(name));
        let entry = answer.unwrap_or_else(|error| self.fail(&format!("the whiteout is not there: {error}")));
        let parent = self.model.get(dir).expect("a directory in which something was renamed");
        let gid = if parent.mode & 0o2000 == 0 { 0 } else { parent.gid };
        let node = Node { mode: model::CHAR, gid, ..Node::default() };
        self.model.add(dir, name, u64_at(&entry, 0), node);
        self.take_entry(&entry, u64_at(&entry, 0));
    }

    fn causes_of_rename(&self, (from, name): (u64, &[u8]), (to, new_name): (u64, &[u8]), flags: u32) -> Vec<Errno> {
        let mut causes = self.causes_of_dir(from);
        causes.extend(self.causes_of_dir(to));
        causes.extend(causes_of_name(name, EINVAL));
        causes.extend(causes_of_name(new_name, EINVAL));
        let is_exchange = flags & EXCHANGE != 0;
        if flags > 7 || is_exchange && flags != EXCHANGE {
            causes.push(EINVAL);
        }
        let (child, target) = (self.model.lookup(from, name), self.model.lookup(to, new_name));
        if child.is_none() || is_exchange && target.is_none() || self.model.get(to).is_some_and(|to| to.names == 0) {
            causes.push(ENOENT);
        }
        if target.is_some() && flags & NO_REPLACE != 0 {
            causes.push(EEXIST);
        }
        let Some(child) = child.filter(|child| target != Some(*child)) else { return causes };
        if self.model.is_below(to, child) {
            causes.push(EINVAL);
        }
        let Some(target) = target else { return causes };
        if self.model.is_below(from, target) {
            causes.extend([EINVAL, ENOTEMPTY]);
        }
        let is_dir = |number: u64| self.model.get(number).is_some_and(Node::is_dir);
        if !is_exchange {
            match (is_dir(child), is_dir(target)) {
                (true, false) => causes.push(ENOTDIR),
                (false, true) => causes.push(EISDIR),
                _ => {}
            }
            if self.model.get(target).is_some_and(|target| !target.entries.is_empty()) {
                causes.push(ENOTEMPTY);
            }
        }
        causes
    }

    pub(super) fn read_dir(&mut self) {
        let (dir, kind) = (self.dir(), self.input.byte());
        let opcode = if kind & 1 == 0 { wire::READDIR } else { wire::READDIRPLUS };
        let offset = if kind & 2 == 0 { 0 } else { self.input.offset() };
        let size = if kind & 4 == 0 { 60_000 } else { self.input.word() % 5000 };
        let causes = self.causes_of_dir(dir);
        let body = Body::default().u64s(&[0, offset]).u32s(&[size, 0]).u64s(&[0, 0]);
        // For an offset beyond the last possible entry, the server does not look up the directory.
        if !causes.is_empty() && offset > u64::from(u32::MAX) {
            return;
        }
        let Ok(listing) = self.ask(opcode, dir, Asker::default(), &body, &causes) else { return };
        if listing.len() > size as usize {
            self.fail("a listing is larger than asked for");
        }
        let found = self.take_listing(opcode, &listing);
        let entries = &self.model.get(dir).expect("a directory").entries;
        let mut expected: Vec<_> = entries.iter().map(|(name, number)| (name.clone(), *number)).collect();
        if offset == 0 && size == 60_000 {
            let mut found = found;
            found.sort();
            expected.sort();
            self.expect_equal("names", &found, &expected);
        } else if let Some(odd) = found.iter().find(|entry| !expected.contains(entry)) {
            self.fail(&format!("the listing shows {odd:?}"));
        }
    }

    /// The names of a listing and their nodes. An entry with attributes gives the kernel a reference to its node.
    fn take_listing(&mut self, opcode: u32, mut listing: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let mut found = Vec::new();
        let head = if opcode == wire::READDIRPLUS { ENTRY_BYTES } else { 0 };
        while !listing.is_empty() {
            let length = u32_at(listing, head + 16) as usize;
            let (start, end) = (head + 24, head + 24 + length);
            let Some(name) = listing.get(start..end) else { self.fail("a listing is cut short") };
            let number = u64_at(listing, head);
            if name != b"." && name != b".." {
                found.push((name.to_vec(), number));
                if head > 0 {
                    if self.model.get(number).is_none() {
                        self.fail(&format!("the listing has the unknown node {number}"));
                    }
                    self.expect_equal("the node of an entry", &u64_at(listing, 0), &number);
                    self.model.get_mut(number).held += 1;
                    let attr = listing[ENTRY_ATTR..ENTRY_BYTES].to_vec();
                    self.compare_attr(number, &attr);
                }
            }
            listing = listing.get(end.next_multiple_of(8)..).unwrap_or_default();
        }
        found
    }
}
