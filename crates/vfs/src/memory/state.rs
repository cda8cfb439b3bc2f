//! All files, and how they come and go.

use super::contents::Contents;
use super::node::{Body, Directory, Node};
use super::protect::has;
use super::space::Space;
use crate::{Caller, Environment, Error, FileType, Flags, InodeNumber, NewFile, Permissions, Result, Stat, xflags};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of the root directory.
pub(super) const ROOT: InodeNumber = InodeNumber(1);
/// Most links of a file.
pub(super) const MAX_LINKS: u32 = 65_000;
/// Longest target of a symbolic link.
pub(super) const MAX_TARGET_BYTES: usize = 1023;

pub(super) struct State {
    pub nodes: BTreeMap<InodeNumber, Node>,
    pub space: Space,
    pub label: Vec<u8>,
    pub environment: Arc<dyn Environment>,
    /// Numbers are given once, so that one that is out of use stays so.
    next_number: u64,
}

impl State {
    pub fn new(blocks: u64, environment: Arc<dyn Environment>) -> Self {
        let space = Space::new(blocks);
        let mut state = Self { nodes: BTreeMap::new(), space, label: Vec::new(), environment, next_number: ROOT.0 };
        let root = state.node_of(&NewFile::dir(0o755), &Caller::root(), ROOT);
        state.nodes.insert(ROOT, Node { references: 1, ..root });
        state.next_number += 1;
        state
    }

    pub fn node(&self, inode: InodeNumber) -> Result<&Node> {
        self.nodes.get(&inode).ok_or(Error::Stale(inode.0))
    }

    pub fn node_mut(&mut self, inode: InodeNumber) -> Result<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(Error::Stale(inode.0))
    }

    pub fn dir(&self, inode: InodeNumber) -> Result<&Directory> {
        self.node(inode)?.dir()
    }

    /// A file without links, in a directory that has the number `parent`.
    fn node_of(&self, new: &NewFile<'_>, caller: &Caller, parent: InodeNumber) -> Node {
        let now = self.environment.now();
        let body = match new.file_type {
            FileType::File => Body::File(Contents::default()),
            FileType::Dir => Body::Dir(Directory::new(parent)),
            FileType::Symlink => Body::Symlink(new.target.to_vec()),
            _ => Body::Special,
        };
        let stat = Stat {
            inode: InodeNumber(self.next_number),
            generation: self.environment.random() as u32,
            file_type: new.file_type,
            permissions: new.permissions,
            uid: caller.uid,
            gid: caller.gid,
            links: if new.file_type.is_dir() { 2 } else { 0 },
            size: 0,
            blocks: 0,
            device: new.device,
            atime: now,
            mtime: now,
            ctime: now,
            birth_time: now,
            project: 0,
            is_plain: true,
        };
        Node { stat, references: 0, body, xattrs: BTreeMap::new(), flags: Flags::default() }
    }

    /// Makes a file that no directory knows yet.
    pub fn make(&mut self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<InodeNumber> {
        let parent = self.node(dir)?;
        if new.file_type.is_dir() && parent.stat.links >= MAX_LINKS {
            return Err(Error::TooManyLinks);
        }
        let mut node = self.node_of(new, caller, dir);
        let mut bits = new.permissions.bits();
        if new.file_type != FileType::Symlink {
            bits &= !(new.umask & 0o777);
        }
        if parent.stat.permissions.bits() & 0o2000 != 0 {
            node.stat.gid = parent.stat.gid;
            if new.file_type.is_dir() {
                bits |= 0o2000;
            } else if bits & 0o2010 == 0o2010 && caller.uid != 0 && !caller.in_group(node.stat.gid) {
                bits &= !0o2000;
            }
        }
        node.stat.permissions = Permissions::new(bits);
        if has(parent, xflags::PROJINHERIT) {
            node.flags.project = parent.flags.project;
            node.flags.xflags = if new.file_type.is_dir() { xflags::PROJINHERIT } else { 0 };
        }
        self.space.take(1)?;
        let number = node.stat.inode;
        self.next_number += 1;
        self.nodes.insert(number, node);
        Ok(number)
    }

    /// Frees a file that has neither names nor references.
    pub fn free_if_unused(&mut self, inode: InodeNumber) {
        let is_unused = |node: &Node| node.stat.links == 0 && node.references == 0;
        if !self.nodes.get(&inode).is_some_and(is_unused) {
            return;
        }
        let Some(mut node) = self.nodes.remove(&inode) else { return };
        let attributes = blocks_of_attributes(&node.xattrs);
        if let Body::File(contents) = &mut node.body {
            contents.clear(&mut self.space);
        }
        self.space.give_back(1 + attributes);
    }

    /// The file changed.
    pub fn touch(&mut self, inode: InodeNumber) -> Result<()> {
        let now = self.environment.now();
        self.node_mut(inode)?.stat.ctime = now;
        Ok(())
    }

    /// Its contents or entries changed.
    pub fn touch_contents(&mut self, inode: InodeNumber) -> Result<()> {
        let now = self.environment.now();
        let stat = &mut self.node_mut(inode)?.stat;
        (stat.mtime, stat.ctime) = (now, now);
        Ok(())
    }
}

/// Blocks that attributes take; few and short ones lie with the file.
pub(super) fn blocks_of_attributes(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    let bytes: usize = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    bytes as u64 / super::contents::BLOCK_BYTES
}

/// Checks that there can be such a file, wherever it is made.
pub(super) fn check_new(new: &NewFile<'_>) -> Result<()> {
    if new.permissions.has_other_bits() {
        return Err(Error::Invalid("permissions have twelve bits; NewFile::of_mode takes a mode with a type"));
    }
    if new.device != 0 && !new.file_type.is_device() {
        return Err(Error::Invalid("a device node has a device number, and nothing else has one"));
    }
    if new.file_type.is_symlink() == new.target.is_empty() {
        return Err(Error::Invalid("a symbolic link has a target, and nothing else has one"));
    }
    if new.target.len() > MAX_TARGET_BYTES {
        return Err(Error::TargetTooLong);
    }
    if new.target.contains(&0) {
        return Err(Error::Invalid("a link's target holds no zero byte"));
    }
    Ok(())
}
