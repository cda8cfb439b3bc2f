//! A filesystem in memory: the second implementation of [`Volume`], and the one that says what the first must do.
//!
//! ```text
//! mod          the volume: one lock, and forwards
//! names        look-ups, creates, links, renames, removals      attributes   modes, owners, times, flags, attributes
//! data         reads, writes, sizes, ranges                     protect      what is refused
//! state        all files, and how they come and go              contents     blocks and holes of a file
//! node         a file of any type                               space        how many blocks there are
//! ```

mod attributes;
mod contents;
mod data;
mod handles;
mod names;
mod node;
mod protect;
mod space;
mod state;

use crate::{
    Caller, DirEntryRef, Environment, Error, Fallocate, FileType, Flags, FsStat, InodeNumber, Limits, NewFile,
    RenameFlags, Result, Seek, SetAttr, SetMode, Stat, SyncKind, SyncPoint, SystemEnvironment, Volume, WholeFile,
    XattrChange,
};
use contents::{BLOCK_BYTES, MAX_FILE_BYTES};
use data::Copy;
use names::{Expected, Place};
use node::Body;
use state::{MAX_LINKS, MAX_TARGET_BYTES, ROOT, State};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of a file that [`Volume::make_files`] makes.
const SMALL_BYTES: usize = 64 << 10;
/// Bytes of a label.
const LABEL_BYTES: usize = 12;

/// A filesystem in memory. It has everything but ACLs, and is lost with the process. A clone is the same filesystem.
///
/// With a [`SeededEnvironment`](crate::SeededEnvironment) all that it answers is a function of what it was asked.
///
/// ```
/// use xfskit_vfs::{Caller, MemoryVolume, NewFile, Volume};
///
/// let volume = MemoryVolume::new(64 << 20);
/// let file = volume.create(volume.root(), b"file", &NewFile::file(0o644), &Caller::root())?.inode;
/// volume.write_at(file, 0, b"contents")?;
/// assert_eq!(volume.lookup(volume.root(), b"file")?.size, 8);
/// # Ok::<(), xfskit_vfs::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryVolume {
    state: Arc<Mutex<State>>,
}

impl MemoryVolume {
    /// An empty filesystem of so many bytes, of which each file takes a block besides its contents.
    pub fn new(bytes: u64) -> Self {
        Self::with_environment(bytes, Arc::new(SystemEnvironment))
    }

    /// As [`Self::new`], with another clock and other randomness.
    pub fn with_environment(bytes: u64, environment: Arc<dyn Environment>) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(bytes / BLOCK_BYTES, environment))) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What no other volume has while this one is open.
    fn number(&self) -> u64 {
        Arc::as_ptr(&self.state) as u64
    }
}

impl std::fmt::Debug for MemoryVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryVolume").finish_non_exhaustive()
    }
}

impl Volume for MemoryVolume {
    fn root(&self) -> InodeNumber {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_bytes: names::MAX_NAME_BYTES,
            symlink_bytes: MAX_TARGET_BYTES,
            xattr_name_bytes: attributes::MAX_XATTR_NAME_BYTES,
            xattr_value_bytes: attributes::MAX_XATTR_BYTES,
            file_bytes: MAX_FILE_BYTES,
            links: MAX_LINKS,
            label_bytes: LABEL_BYTES,
            block_bytes: BLOCK_BYTES as u32,
            reflink: true,
            collapse: true,
            whiteout: true,
            acls: false,
        }
    }

    fn statfs(&self) -> Result<FsStat> {
        let state = self.state();
        let (blocks, free_blocks, files) = (state.space.blocks, state.space.free_blocks(), state.nodes.len() as u64);
        let block_bytes = BLOCK_BYTES as u32;
        Ok(FsStat { block_bytes, blocks, free_blocks, inodes: files + free_blocks, free_inodes: free_blocks })
    }

    fn label(&self) -> Vec<u8> {
        self.state().label.clone()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_BYTES || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 12 bytes, and no zero byte"));
        }
        self.state().label = label.to_vec();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn shutdown_reason(&self) -> Option<String> {
        None
    }

    fn unmount(self: Box<Self>) -> Result<()> {
        let mut state = self.state();
        let unnamed = |(number, node): (&InodeNumber, &node::Node)| (node.stat.links == 0).then_some(*number);
        let unnamed: Vec<_> = state.nodes.iter().filter_map(unnamed).collect();
        for inode in unnamed {
            state.node_mut(inode)?.references = 0;
            state.free_if_unused(inode);
        }
        Ok(())
    }

    fn lookup(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        let state = self.state();
        let inode = state.lookup(Place { dir, name })?;
        Ok(state.node(inode)?.stat())
    }

    fn lookup_reference(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        let mut state = self.state();
        let inode = state.lookup(Place { dir, name })?;
        let node = state.node_mut(inode)?;
        node.references += 1;
        Ok(node.stat())
    }

    fn stat(&self, inode: InodeNumber) -> Result<Stat> {
        Ok(self.state().node(inode)?.stat())
    }

    fn is_in_use(&self, inode: InodeNumber) -> Result<bool> {
        Ok(self.state().nodes.contains_key(&inode))
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        match &self.state().node(inode)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid("not a symbolic link")),
        }
    }

    fn read_dir(
        &self,
        dir: InodeNumber,
        cookie: u64,
        show: &mut dyn FnMut(DirEntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let state = self.state();
        let entries = state.dir(dir)?;
        let dots = [(0, b".".as_slice(), dir), (1, b"..", entries.parent)];
        let dots = dots.into_iter().filter(|(at, ..)| *at >= cookie);
        for (at, name, inode) in dots.chain(entries.from(cookie)) {
            let file_type = Some(state.node(inode).map_or(FileType::Dir, |node| node.stat.file_type));
            let entry = DirEntryRef { name, inode, file_type, cookie: at, next_cookie: at + 1 };
            if show(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn seek(&self, inode: InodeNumber, offset: u64, what: Seek) -> Result<u64> {
        self.state().node(inode)?.contents()?.seek(offset, what)
    }

    fn add_reference(&self, inode: InodeNumber) -> Result<()> {
        self.state().node_mut(inode)?.references += 1;
        Ok(())
    }

    fn drop_references(&self, inode: InodeNumber, count: u64) -> Result<()> {
        let mut state = self.state();
        let Ok(node) = state.node_mut(inode) else { return Ok(()) };
        node.references = node.references.saturating_sub(count);
        state.free_if_unused(inode);
        Ok(())
    }

    fn create(&self, dir: InodeNumber, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        let mut state = self.state();
        let made = state.create(Place { dir, name }, new, caller)?;
        Ok(state.node(made)?.stat())
    }

    fn tmpfile(&self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        self.state().tmpfile(dir, new, caller)
    }

    fn link(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, _: &Caller) -> Result<Stat> {
        self.state().link(Place { dir, name }, inode)
    }

    fn unlink(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.state().remove_name(Place { dir, name }, Expected::NoDir, caller)
    }

    fn rmdir(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.state().remove_name(Place { dir, name }, Expected::Dir, caller)
    }

    fn rename(
        &self,
        dir: InodeNumber,
        name: &[u8],
        new_dir: InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
        caller: &Caller,
    ) -> Result<()> {
        self.state().rename(Place { dir, name }, Place { dir: new_dir, name: new_name }, flags, caller)
    }

    fn is_small(&self, file: &WholeFile<'_>) -> bool {
        let is_known = |(name, value): &(Vec<u8>, Vec<u8>)| {
            attributes::check_xattr_name(name).is_ok() && value.len() <= attributes::MAX_XATTR_BYTES
        };
        file.contents.len() <= SMALL_BYTES && file.xattrs.iter().all(is_known)
    }

    fn make_files(&self, dir: InodeNumber, files: &[WholeFile<'_>]) -> Result<Vec<Stat>> {
        if !files.iter().all(|file| self.is_small(file)) {
            return Err(Error::Invalid("the file is too large to be made in one step"));
        }
        for file in files {
            attributes::check_time(file.atime)?;
            attributes::check_time(file.mtime)?;
        }
        let mut state = self.state();
        state.check_files(dir, files)?;
        let blocks = |file: &WholeFile<'_>| 1 + (file.contents.len() as u64).div_ceil(BLOCK_BYTES);
        let mut free = state.space.free_blocks();
        let fits = |file: &&WholeFile<'_>| {
            let left = free.checked_sub(blocks(file));
            free = left.unwrap_or(0);
            left.is_some()
        };
        let files: Vec<_> = files.iter().take_while(fits).collect();
        if files.is_empty() {
            return Err(Error::NoSpace);
        }
        files.into_iter().map(|file| state.make_file(dir, file)).collect()
    }

    fn link_over(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<()> {
        self.state().link_over(Place { dir, name }, inode, caller)
    }

    fn check_replaceable(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.state().check_replaceable(Place { dir, name }, caller)
    }

    fn set_attr(&self, inode: InodeNumber, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        attributes::check_change(change)?;
        match change.size {
            Some(size) => self.state().resize(inode, size, change, caller),
            None => self.state().set_attr(inode, change, caller),
        }
    }

    fn get_xattr_into(&self, inode: InodeNumber, name: &[u8], value: &mut Vec<u8>) -> Result<()> {
        attributes::check_xattr_name(name)?;
        value.clear();
        let state = self.state();
        value.extend_from_slice(state.node(inode)?.xattrs.get(name).ok_or(Error::NoAttribute)?);
        Ok(())
    }

    fn list_xattrs_into(&self, inode: InodeNumber, names: &mut Vec<u8>) -> Result<()> {
        names.clear();
        for name in self.state().node(inode)?.xattrs.keys() {
            names.extend_from_slice(name);
            names.push(0);
        }
        Ok(())
    }

    fn change_xattrs(&self, inode: InodeNumber, changes: &[XattrChange], mode: SetMode, _: &Caller) -> Result<()> {
        self.state().change_xattrs(inode, changes, mode)
    }

    fn set_xattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], mode: SetMode, _: &Caller) -> Result<()> {
        let change = XattrChange { name: name.to_vec(), value: Some(value.to_vec()) };
        self.state().change_xattrs(inode, &[change], mode)
    }

    fn remove_xattr(&self, inode: InodeNumber, name: &[u8], _: &Caller) -> Result<()> {
        let change = XattrChange { name: name.to_vec(), value: None };
        self.state().change_xattrs(inode, &[change], SetMode::Any)
    }

    fn flags(&self, inode: InodeNumber) -> Result<Flags> {
        let state = self.state();
        let node = state.node(inode)?;
        let has_attributes = if node.xattrs.is_empty() { 0 } else { crate::xflags::HASATTR };
        Ok(Flags { xflags: node.flags.xflags | has_attributes, ..node.flags })
    }

    fn set_flags(&self, inode: InodeNumber, wanted: &Flags, caller: &Caller) -> Result<()> {
        self.state().set_flags(inode, wanted, caller)
    }

    fn drop_privileges(&self, inode: InodeNumber, writer: Option<&Caller>) -> Result<bool> {
        self.state().drop_privileges(inode, writer)
    }

    fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.state().node(inode)?.contents()?.read(offset, buffer))
    }

    fn write_some_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        self.state().write(inode, offset, data)
    }

    fn append(&self, inode: InodeNumber, data: &[u8]) -> Result<u64> {
        self.state().append(inode, data)
    }

    fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()> {
        self.state().resize(inode, size, &SetAttr::default(), &Caller::root()).map(drop)
    }

    fn fallocate(&self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        self.state().fallocate(inode, offset, length, what)
    }

    fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.state().copy_range(Copy { from: (from, from_offset), to: (to, to_offset), length })
    }

    fn clone_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        self.state().clone_range(Copy { from: (from, from_offset), to: (to, to_offset), length })
    }

    fn begin_fsync(&self, _: InodeNumber, _: SyncKind) -> Result<SyncPoint> {
        Ok(SyncPoint { volume: Some(self.number()), ..SyncPoint::default() })
    }

    fn await_durable(&self, point: SyncPoint) -> Result<()> {
        if point.volume.is_some_and(|volume| volume != self.number()) {
            return Err(Error::Invalid("these fsyncs were begun on another volume"));
        }
        Ok(())
    }
}
