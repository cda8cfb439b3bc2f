//! An XFS filesystem as a [`Volume`](xfskit_vfs::Volume): forwards alone.

mod extras;
mod geometry;
mod handles;

pub use extras::{LARP_PROPERTY, SUPERBLOCK_PROPERTY};

use crate::ops::{LABEL_BYTES, TrimBy, Volume};
use std::ops::{ControlFlow, Range};
use xfskit_ondisk::attr::MAX_VALUE_BYTES;
use xfskit_ondisk::symlink::SYMLINK_LENGTH_LIMIT;
use xfskit_vfs::{
    Caller, DirEntry, DirEntryRef, Fallocate, Flags, FsStat, InodeNumber, LastLink, Limits, LostNames, NewFile,
    ReadAhead, RenameFlags, Result, Seek, SetAttr, SetMode, Stat, SyncKind, SyncPoint, WholeFile, XattrChange,
};

impl xfskit_vfs::Volume for Volume {
    fn root(&self) -> InodeNumber {
        self.root()
    }

    fn limits(&self) -> Limits {
        Limits {
            name_bytes: 255,
            symlink_bytes: SYMLINK_LENGTH_LIMIT - 1,
            xattr_name_bytes: 255,
            xattr_value_bytes: MAX_VALUE_BYTES,
            file_bytes: crate::data::MAX_SIZE_BYTES,
            links: i32::MAX as u32,
            label_bytes: LABEL_BYTES,
            block_bytes: self.geometry().block_bytes() as u32,
            reflink: self.shares_blocks(),
            collapse: true,
            whiteout: true,
            acls: true,
        }
    }

    fn statfs(&self) -> Result<FsStat> {
        Ok(self.statfs())
    }

    fn label(&self) -> Vec<u8> {
        self.label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.set_label(label)
    }

    fn sync(&self) -> Result<()> {
        self.sync()
    }

    fn quiesce(&mut self) -> Result<()> {
        self.end_log()
    }

    fn trim_within(&self, bytes: Range<u64>, min_bytes: u64) -> Result<u64> {
        Ok(self.trim_within(bytes, min_bytes, TrimBy::Discard)?.bytes)
    }

    fn shutdown_reason(&self) -> Option<String> {
        self.shutdown_reason()
    }

    fn queue_depth(&self) -> usize {
        self.queue_depth()
    }

    fn unmount(self: Box<Self>) -> Result<()> {
        Self::unmount(*self)
    }

    fn lookup(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        self.lookup(dir, name)
    }

    fn lookup_reference(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        let (inode, stat) = self.lookup_ref(dir, name)?;
        inode.into_raw();
        Ok(stat)
    }

    fn stat(&self, inode: InodeNumber) -> Result<Stat> {
        self.stat(inode)
    }

    fn is_in_use(&self, inode: InodeNumber) -> Result<bool> {
        self.is_in_use(inode)
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        self.read_link(inode)
    }

    fn read_dir(
        &self,
        dir: InodeNumber,
        cookie: u64,
        show: &mut dyn FnMut(DirEntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.read_dir(dir, cookie, show)
    }

    fn list_dir(&self, dir: InodeNumber) -> Result<Vec<DirEntry>> {
        self.list_dir(dir)
    }

    fn list_what_is_left(&self, dir: InodeNumber) -> Result<(Vec<DirEntry>, Option<LostNames>)> {
        self.list_what_is_left(dir)
    }

    fn seek(&self, inode: InodeNumber, offset: u64, what: Seek) -> Result<u64> {
        self.seek(inode, offset, what)
    }

    fn is_cached(&self, inode: InodeNumber) -> bool {
        self.is_cached(inode)
    }

    fn read_ahead(&self, inodes: &[InodeNumber], what: ReadAhead) {
        self.read_ahead(inodes, what);
    }

    fn add_reference(&self, inode: InodeNumber) -> Result<()> {
        self.add_reference(inode)
    }

    fn drop_references(&self, inode: InodeNumber, count: u64) -> Result<()> {
        self.drop_references(inode, count)
    }

    fn forget(&self, inode: InodeNumber, count: u64) -> Result<()> {
        self.drop_references_lazily(inode, count)
    }

    fn free_inactive(&self) -> Result<()> {
        self.free_waiting()
    }

    fn reclaim(&self) -> Result<()> {
        self.free_nameless()
    }

    fn create(&self, dir: InodeNumber, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        self.create(dir, name, new, caller)
    }

    fn symlink(&self, dir: InodeNumber, name: &[u8], target: &[u8], caller: &Caller) -> Result<Stat> {
        self.symlink(dir, name, target, caller)
    }

    fn tmpfile(&self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        let made = self.tmpfile(dir, new, caller)?;
        let stat = made.stat()?;
        made.into_raw();
        Ok(stat)
    }

    fn link(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<Stat> {
        self.link(dir, name, inode, caller)
    }

    fn unlink(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.unlink(dir, name, caller)
    }

    fn rmdir(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.rmdir(dir, name, caller)
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
        self.rename(dir, name, new_dir, new_name, flags, caller)
    }

    fn is_small(&self, file: &WholeFile<'_>) -> bool {
        self.is_small(file)
    }

    fn make_files(&self, dir: InodeNumber, files: &[WholeFile<'_>]) -> Result<Vec<Stat>> {
        self.make_files(dir, files)
    }

    fn link_over(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<()> {
        self.link_over(dir, name, inode, caller)
    }

    fn check_replaceable(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.check_replaceable(dir, name, caller)
    }

    fn set_attr(&self, inode: InodeNumber, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        self.set_attr(inode, change, caller)
    }

    fn get_xattr_into(&self, inode: InodeNumber, name: &[u8], value: &mut Vec<u8>) -> Result<()> {
        self.get_xattr_into(inode, name, value)
    }

    fn list_xattrs_into(&self, inode: InodeNumber, names: &mut Vec<u8>) -> Result<()> {
        self.list_xattrs_into(inode, names)
    }

    fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.get_xattr(inode, name)
    }

    fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        self.list_xattrs(inode)
    }

    fn list_xattrs_within(&self, inode: InodeNumber, most_bytes: usize) -> Result<Vec<u8>> {
        self.list_xattrs_within(inode, most_bytes)
    }

    fn change_xattrs(&self, inode: InodeNumber, changes: &[XattrChange], mode: SetMode, caller: &Caller) -> Result<()> {
        self.change_xattrs(inode, changes, mode, caller)
    }

    fn set_xattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], mode: SetMode, caller: &Caller) -> Result<()> {
        self.set_xattr(inode, name, value, mode, caller)
    }

    fn remove_xattr(&self, inode: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.remove_xattr(inode, name, SetMode::Any, caller)
    }

    fn flags(&self, inode: InodeNumber) -> Result<Flags> {
        self.flags(inode)
    }

    fn set_flags(&self, inode: InodeNumber, wanted: &Flags, caller: &Caller) -> Result<()> {
        self.set_flags(inode, wanted, caller)
    }

    fn drop_privileges(&self, inode: InodeNumber, writer: Option<&Caller>) -> Result<bool> {
        self.drop_privileges(inode, writer)
    }

    fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_at(inode, offset, buffer)
    }

    fn write_some_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_some_at(inode, offset, data)
    }

    fn write_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(inode, offset, data)
    }

    fn append(&self, inode: InodeNumber, data: &[u8]) -> Result<u64> {
        self.append(inode, data)
    }

    fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()> {
        self.truncate(inode, size)
    }

    fn fallocate(&self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        self.fallocate(inode, offset, length, what)
    }

    fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.copy_range(from, from_offset, to, to_offset, length)
    }

    fn clone_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        self.clone_range(from, from_offset, to, to_offset, length)
    }

    fn finish_writing(&self, inode: InodeNumber) {
        self.finish_writing(inode);
    }

    fn begin_fsync(&self, inode: InodeNumber, what: SyncKind) -> Result<SyncPoint> {
        self.begin_fsync(inode, what)
    }

    fn await_durable(&self, point: SyncPoint) -> Result<()> {
        self.await_durable(point)
    }

    fn fsync(&self, inode: InodeNumber) -> Result<()> {
        self.fsync(inode)
    }

    fn fdatasync(&self, inode: InodeNumber) -> Result<()> {
        self.fdatasync(inode)
    }

    fn resolve(&self, path: &[u8], last: LastLink) -> Result<Stat> {
        self.resolve(path, last)
    }
}
