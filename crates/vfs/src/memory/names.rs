//! Names: how they are made, found, moved and taken away.

use super::protect::{check_lost_entry, check_new_entry, check_project, check_unprotected};
use super::state::{MAX_LINKS, ROOT, State, check_new};
use crate::{Caller, Error, FileType, InodeNumber, NewFile, Permissions, RenameFlags, Result, Stat, WholeFile};

/// Longest name.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub dir: InodeNumber,
    pub name: &'a [u8],
}

/// What a name has to be the name of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Dir,
    NoDir,
}

/// Checks a name that is to be looked up.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name is not empty and holds no slash and no zero byte"));
    }
    Ok(())
}

/// Checks a name that is to be made.
fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if name == b"." || name == b".." { Err(Error::Exists) } else { Ok(()) }
}

impl State {
    pub fn lookup(&self, at: Place<'_>) -> Result<InodeNumber> {
        check_name(at.name)?;
        let dir = self.dir(at.dir)?;
        match at.name {
            b"." => Ok(at.dir),
            b".." => Ok(dir.parent),
            name => dir.get(name).ok_or(Error::NotFound),
        }
    }

    /// Checks that a name is free, in a directory that has one itself.
    fn check_free(&self, at: Place<'_>) -> Result<()> {
        let dir = self.dir(at.dir)?;
        if self.node(at.dir)?.stat.links == 0 {
            return Err(Error::NotFound);
        }
        if dir.get(at.name).is_some() { Err(Error::Exists) } else { Ok(()) }
    }

    pub fn create(&mut self, at: Place<'_>, new: &NewFile<'_>, caller: &Caller) -> Result<InodeNumber> {
        check_new_name(at.name)?;
        check_new(new)?;
        self.check_free(at)?;
        check_new_entry(self.node(at.dir)?, Some(new.file_type))?;
        let child = self.make(at.dir, new, caller)?;
        self.enter(at, child)?;
        Ok(child)
    }

    /// Gives a new file its name.
    fn enter(&mut self, at: Place<'_>, child: InodeNumber) -> Result<()> {
        let node = self.node_mut(child)?;
        let (is_dir, now) = (node.is_dir(), node.stat.birth_time);
        node.stat.links = if is_dir { 2 } else { 1 };
        let parent = self.node_mut(at.dir)?;
        parent.dir_mut()?.insert(at.name, child);
        parent.stat.links += u32::from(is_dir);
        (parent.stat.mtime, parent.stat.ctime) = (now, now);
        Ok(())
    }

    pub fn tmpfile(&mut self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        check_new(new)?;
        if !new.file_type.is_file() {
            return Err(Error::Invalid("only a regular file can be without a name"));
        }
        self.dir(dir)?;
        check_new_entry(self.node(dir)?, Some(new.file_type))?;
        let child = self.make(dir, new, caller)?;
        let node = self.node_mut(child)?;
        node.references = 1;
        Ok(node.stat())
    }

    /// Makes a small file with all that it has.
    pub fn make_file(&mut self, dir: InodeNumber, file: &WholeFile<'_>) -> Result<Stat> {
        let caller = Caller { uid: file.uid, gid: file.gid, groups: Vec::new() };
        let child = self.make(dir, &NewFile::new(FileType::File, file.permissions), &caller)?;
        self.enter(Place { dir, name: file.name }, child)?;
        let (nodes, space) = (&mut self.nodes, &mut self.space);
        let node = nodes.get_mut(&child).expect("it was made");
        node.stat.permissions = file.permissions;
        (node.stat.gid, node.stat.atime, node.stat.mtime) = (file.gid, file.atime, file.mtime);
        node.xattrs.extend(file.xattrs.iter().cloned());
        node.contents_mut()?.write(space, 0, file.contents)?;
        Ok(node.stat())
    }

    /// Checks the files, of which none is made if one cannot be.
    pub fn check_files(&self, dir: InodeNumber, files: &[WholeFile<'_>]) -> Result<()> {
        let mut names: Vec<_> = files.iter().map(|file| file.name).collect();
        names.sort_unstable();
        if !names.is_sorted_by(|a, b| a < b) {
            return Err(Error::Exists);
        }
        for file in files {
            check_new_name(file.name)?;
            check_new(&NewFile::new(FileType::File, file.permissions))?;
        }
        for file in files {
            self.check_free(Place { dir, name: file.name })?;
        }
        check_new_entry(self.node(dir)?, None)
    }

    pub fn link(&mut self, at: Place<'_>, inode: InodeNumber) -> Result<Stat> {
        check_new_name(at.name)?;
        let (dir, child) = (self.node(at.dir)?, self.node(inode)?);
        dir.dir()?;
        if child.is_dir() {
            return Err(Error::NotPermitted);
        }
        if child.stat.links >= MAX_LINKS {
            return Err(Error::TooManyLinks);
        }
        self.check_free(at)?;
        check_new_entry(dir, None)?;
        check_unprotected(child)?;
        check_project(dir, child)?;
        self.node_mut(at.dir)?.dir_mut()?.insert(at.name, inode);
        self.touch_contents(at.dir)?;
        self.touch(inode)?;
        let node = self.node_mut(inode)?;
        node.stat.links += 1;
        Ok(node.stat())
    }

    pub fn link_over(&mut self, at: Place<'_>, inode: InodeNumber, caller: &Caller) -> Result<()> {
        match self.link(at, inode) {
            Err(Error::Exists) => {}
            other => return other.map(drop),
        }
        let victim = self.lookup(at)?;
        if victim == inode {
            return Ok(());
        }
        self.check_replaceable(at, caller)?;
        if self.node(victim)?.is_dir() {
            return Err(Error::IsADirectory);
        }
        self.node_mut(at.dir)?.dir_mut()?.remove(at.name);
        if let Err(error) = self.link(at, inode) {
            self.node_mut(at.dir)?.dir_mut()?.insert(at.name, victim);
            return Err(error);
        }
        self.lose_name(victim)
    }

    pub fn check_replaceable(&self, at: Place<'_>, caller: &Caller) -> Result<()> {
        let child = self.lookup(at)?;
        check_lost_entry(self.node(at.dir)?, self.node(child)?, caller)
    }

    /// A file has one name less, in a directory that has counted that already.
    fn lose_name(&mut self, inode: InodeNumber) -> Result<()> {
        self.touch(inode)?;
        let node = self.node_mut(inode)?;
        node.stat.links = if node.is_dir() { 0 } else { node.stat.links.saturating_sub(1) };
        self.free_if_unused(inode);
        Ok(())
    }

    pub fn remove_name(&mut self, at: Place<'_>, expected: Expected, caller: &Caller) -> Result<()> {
        check_name(at.name)?;
        match at.name {
            b"." => return Err(Error::Invalid("the directory itself cannot be removed through '.'")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let inode = self.lookup(at)?;
        let (dir, child) = (self.node(at.dir)?, self.node(inode)?);
        check_lost_entry(dir, child, caller)?;
        match (child.is_dir(), expected) {
            (true, Expected::NoDir) => return Err(Error::IsADirectory),
            (false, Expected::Dir) => return Err(Error::NotADirectory),
            (true, Expected::Dir) if !child.dir()?.is_empty() => return Err(Error::NotEmpty),
            _ => {}
        }
        let is_dir = child.is_dir();
        let dir = self.node_mut(at.dir)?;
        dir.stat.links -= u32::from(is_dir);
        dir.dir_mut()?.remove(at.name);
        self.touch_contents(at.dir)?;
        self.lose_name(inode)
    }

    pub fn rename(&mut self, from: Place<'_>, to: Place<'_>, flags: RenameFlags, caller: &Caller) -> Result<()> {
        for name in [from.name, to.name] {
            check_name(name)?;
            if name == b"." || name == b".." {
                return Err(Error::Invalid("'.' and '..' cannot be renamed"));
            }
        }
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(Error::Invalid("an exchange neither replaces nor leaves a whiteout"));
        }
        let child = self.lookup(from)?;
        let other = self.dir(to.dir)?.get(to.name);
        self.check_no_loop(child, to.dir)?;
        if let Some(other) = other.filter(|_| flags.exchange) {
            self.check_no_loop(other, from.dir)?;
        }
        if self.node(to.dir)?.stat.links == 0 {
            return Err(Error::NotFound);
        }
        match other {
            Some(_) if flags.no_replace => return Err(Error::Exists),
            None if flags.exchange => return Err(Error::NotFound),
            Some(other) if other == child => return Ok(()),
            Some(other) if !flags.exchange && other == from.dir => return Err(Error::NotEmpty),
            _ => {}
        }
        self.check_rename((from, child), (to, other), flags, caller)?;
        match other {
            Some(other) if flags.exchange => self.exchange((from, child), (to, other)),
            other => self.move_name((from, child), (to, other), flags, caller),
        }
    }

    /// Fails when a directory would come below itself.
    fn check_no_loop(&self, moved: InodeNumber, dir: InodeNumber) -> Result<()> {
        let mut at = dir;
        while at != ROOT {
            if at == moved {
                return Err(Error::Invalid("a directory cannot move below itself"));
            }
            at = self.dir(at)?.parent;
        }
        Ok(())
    }

    fn check_rename(
        &self,
        (from, child): (Place<'_>, InodeNumber),
        (to, other): (Place<'_>, Option<InodeNumber>),
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        let (from_dir, to_dir, child) = (self.node(from.dir)?, self.node(to.dir)?, self.node(child)?);
        check_lost_entry(from_dir, child, caller)?;
        let mut replaces_dir = false;
        if let Some(other) = other {
            let other = self.node(other)?;
            check_lost_entry(to_dir, other, caller)?;
            replaces_dir = other.is_dir();
            match (child.is_dir(), replaces_dir) {
                _ if flags.exchange => {}
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
            check_project(to_dir, child)?;
            if !flags.exchange && replaces_dir && !other.dir()?.is_empty() {
                return Err(Error::NotEmpty);
            }
        } else {
            check_new_entry(to_dir, None)?;
            check_project(to_dir, child)?;
        }
        let is_full = |dir: &super::node::Node| dir.stat.links >= MAX_LINKS;
        let moves = from.dir != to.dir;
        let gains = moves && child.is_dir() && !replaces_dir && is_full(to_dir);
        let gains_back = moves && flags.exchange && replaces_dir && !child.is_dir() && is_full(from_dir);
        if gains || gains_back { Err(Error::TooManyLinks) } else { Ok(()) }
    }

    /// Puts a file that moved where its `..` leads to `dir`, if it is a directory.
    fn arrive(&mut self, inode: InodeNumber, from: InodeNumber, to: InodeNumber) -> Result<()> {
        let node = self.node_mut(inode)?;
        if from == to || !node.is_dir() {
            return Ok(());
        }
        node.dir_mut()?.parent = to;
        self.node_mut(from)?.stat.links -= 1;
        self.node_mut(to)?.stat.links += 1;
        Ok(())
    }

    fn exchange(
        &mut self,
        (from, child): (Place<'_>, InodeNumber),
        (to, other): (Place<'_>, InodeNumber),
    ) -> Result<()> {
        self.node_mut(from.dir)?.dir_mut()?.insert(from.name, other);
        self.node_mut(to.dir)?.dir_mut()?.insert(to.name, child);
        self.arrive(child, from.dir, to.dir)?;
        self.arrive(other, to.dir, from.dir)?;
        for dir in [from.dir, to.dir] {
            self.touch_contents(dir)?;
        }
        self.touch(child)?;
        self.touch(other)
    }

    fn move_name(
        &mut self,
        (from, child): (Place<'_>, InodeNumber),
        (to, victim): (Place<'_>, Option<InodeNumber>),
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        let new = NewFile::new(FileType::CharDevice, Permissions::new(0));
        let whiteout = if flags.whiteout { Some(self.make(from.dir, &new, caller)?) } else { None };
        let replaces_dir = victim.map(|victim| self.node(victim)).transpose()?.is_some_and(super::node::Node::is_dir);
        let to_dir = self.node_mut(to.dir)?;
        to_dir.dir_mut()?.insert(to.name, child);
        to_dir.stat.links -= u32::from(replaces_dir);
        let from_dir = self.node_mut(from.dir)?.dir_mut()?;
        match whiteout {
            Some(whiteout) => from_dir.insert(from.name, whiteout),
            None => from_dir.remove(from.name),
        }
        if let Some(whiteout) = whiteout {
            self.node_mut(whiteout)?.stat.links = 1;
        }
        self.arrive(child, from.dir, to.dir)?;
        self.touch_contents(to.dir)?;
        self.touch_contents(from.dir)?;
        self.touch(child)?;
        victim.map_or(Ok(()), |victim| self.lose_name(victim))
    }
}
