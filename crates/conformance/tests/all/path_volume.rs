//! A mounted directory as a [`Volume`], through the kernel's system calls, so that the kernel answers the cases.
//!
//! A file is known by its number once it was looked up or made, and held by a descriptor that only names it. One
//! without a name is let go of with its last reference, as by any other volume.

use crate::system::{self, as_caller};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType as Type, Mode, OFlags, SeekFrom, Timespec};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use xfskit_vfs::{
    Caller, DirEntryRef, Error, Fallocate, FileType, Flags, FsStat, InodeNumber, Limits, NewFile, RenameFlags, Result,
    Seek, SetAttr, SetMode, SetTime, Stat, SyncKind, SyncPoint, Timestamp, Volume, WholeFile, XattrChange,
};

const NO_CALL: Error = Error::NotSupported("the kernel has no system call for that");
const FILE_BYTES: u64 = i64::MAX as u64;

struct Held {
    file: Arc<OwnedFd>,
    references: u64,
}

pub struct PathVolume {
    root: InodeNumber,
    reflink: bool,
    table: Box<Mutex<HashMap<InodeNumber, Held>>>,
}

/// The error that stands for what the kernel said.
fn error_of(errno: rustix::io::Errno) -> Error {
    match errno.raw_os_error() {
        1 => Error::NotPermitted,
        2 => Error::NotFound,
        6 => Error::NoMoreData,
        7 => Error::ValueTooLong,
        13 => Error::AccessDenied,
        17 => Error::Exists,
        18 => Error::CrossesProjects,
        20 => Error::NotADirectory,
        21 => Error::IsADirectory,
        22 => Error::Invalid("the kernel refuses"),
        27 => Error::TooLarge,
        28 => Error::NoSpace,
        31 => Error::TooManyLinks,
        34 => Error::AttributeNameTooLong,
        36 => Error::NameTooLong,
        39 => Error::NotEmpty,
        61 => Error::NoAttribute,
        95 => Error::NotSupported("the kernel refuses"),
        other => Error::Io { offset: 0, source: std::io::Error::from_raw_os_error(other) },
    }
}

fn by_number(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn open(file: &OwnedFd, flags: OFlags) -> Result<OwnedFd> {
    fs::open(by_number(file), flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(error_of)
}

fn stat_of(file: &OwnedFd) -> Result<Stat> {
    let flags = fs::StatxFlags::BASIC_STATS | fs::StatxFlags::BTIME;
    let found = fs::statx(file, "", AtFlags::EMPTY_PATH, flags).map_err(error_of)?;
    let time = |time: fs::StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let file_type = FileType::of_mode(found.stx_mode).expect("a type");
    let mut stat = Stat {
        inode: InodeNumber(found.stx_ino),
        generation: 0,
        file_type,
        permissions: xfskit_vfs::Permissions::new(found.stx_mode),
        uid: found.stx_uid,
        gid: found.stx_gid,
        links: found.stx_nlink,
        size: found.stx_size,
        blocks: found.stx_blocks,
        device: fs::makedev(found.stx_rdev_major, found.stx_rdev_minor) as u32,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        birth_time: time(found.stx_btime),
        project: 0,
        is_plain: true,
    };
    if file_type.is_file() || file_type.is_dir() {
        let flags = system::flags(&open(file, OFlags::RDONLY)?).map_err(error_of)?;
        stat.project = flags.project;
        stat.is_plain = Flags { xflags: flags.xflags & !system::HASATTR, ..flags } == Flags::default();
    }
    Ok(stat)
}

impl PathVolume {
    pub fn new(dir: &Path, reflink: bool) -> Self {
        let file = fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("a directory");
        let root = stat_of(&file).expect("attributes").inode;
        let held = Held { file: Arc::new(file), references: 1 };
        Self { root, reflink, table: Box::new(Mutex::new(HashMap::from([(root, held)]))) }
    }

    fn file(&self, inode: InodeNumber) -> Result<Arc<OwnedFd>> {
        let table = self.table.lock().unwrap();
        table.get(&inode).map(|held| Arc::clone(&held.file)).ok_or(Error::Stale(inode.0))
    }

    fn opened(&self, inode: InodeNumber, flags: OFlags) -> Result<OwnedFd> {
        open(&*self.file(inode)?, flags)
    }

    fn number(&self) -> u64 {
        std::ptr::from_ref(&*self.table) as u64
    }

    /// Looks a name up and holds what it names.
    fn find(&self, dir: InodeNumber, name: &[u8], references: u64) -> Result<Stat> {
        let dir_file = self.file(dir)?;
        if dir == self.root && name == b".." {
            return stat_of(&dir_file);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.hold(fs::openat(&dir_file, name, flags, Mode::empty()).map_err(error_of)?, references)
    }

    fn hold(&self, file: OwnedFd, references: u64) -> Result<Stat> {
        let stat = stat_of(&file)?;
        let mut table = self.table.lock().unwrap();
        let held = table.entry(stat.inode).or_insert(Held { file: Arc::new(file), references: 0 });
        held.references += references;
        Ok(stat)
    }

    /// Lets go of files that have neither names nor references.
    fn release(&self, inodes: impl IntoIterator<Item = InodeNumber>) {
        let mut table = self.table.lock().unwrap();
        for inode in inodes {
            let is_gone = |held: &Held| held.references == 0 && stat_of(&held.file).is_ok_and(|stat| stat.links == 0);
            if table.get(&inode).is_some_and(is_gone) {
                table.remove(&inode);
            }
        }
    }

    fn number_at(&self, dir: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
        let found = fs::statat(&*self.file(dir).ok()?, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(InodeNumber(found.st_ino))
    }

    fn remove(&self, dir: InodeNumber, name: &[u8], flags: AtFlags, caller: &Caller) -> Result<()> {
        let (dir_file, found) = (self.file(dir)?, self.number_at(dir, name));
        as_caller(caller, || fs::unlinkat(&*dir_file, name, flags)).map_err(error_of)?;
        self.release(found);
        Ok(())
    }
}

fn mode_of(new: &NewFile<'_>) -> Mode {
    Mode::from_raw_mode(u32::from(new.permissions.bits()))
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(SetTime::To(time)) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() },
    }
}

fn fallocate_flags(what: Fallocate) -> FallocateFlags {
    let keep = FallocateFlags::KEEP_SIZE;
    match what {
        Fallocate::Allocate => FallocateFlags::empty(),
        Fallocate::AllocateKeepSize => keep,
        Fallocate::UnshareKeepSize => FallocateFlags::UNSHARE_RANGE | keep,
        Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | keep,
        Fallocate::ZeroRange => FallocateFlags::ZERO_RANGE,
        Fallocate::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | keep,
        Fallocate::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
        Fallocate::InsertRange => FallocateFlags::INSERT_RANGE,
    }
}

impl Volume for PathVolume {
    fn root(&self) -> InodeNumber {
        self.root
    }

    fn limits(&self) -> Limits {
        Limits {
            name_bytes: 255,
            symlink_bytes: 1023,
            // With the prefix `user.` 255.
            xattr_name_bytes: 250,
            xattr_value_bytes: 65_536,
            file_bytes: FILE_BYTES,
            links: i32::MAX as u32,
            label_bytes: 12,
            block_bytes: self.statfs().expect("figures").block_bytes,
            reflink: self.reflink,
            collapse: true,
            whiteout: true,
            acls: true,
        }
    }

    fn statfs(&self) -> Result<FsStat> {
        let found = fs::fstatvfs(&*self.file(self.root)?).map_err(error_of)?;
        Ok(FsStat {
            block_bytes: found.f_frsize as u32,
            blocks: found.f_blocks,
            free_blocks: found.f_bfree,
            inodes: found.f_files,
            free_inodes: found.f_ffree,
        })
    }

    fn label(&self) -> Vec<u8> {
        let root = self.opened(self.root, OFlags::RDONLY).expect("the root");
        system::label(&root).expect("a label").split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        system::set_label(&self.opened(self.root, OFlags::RDONLY)?, label).map_err(error_of)
    }

    fn sync(&self) -> Result<()> {
        fs::syncfs(&self.opened(self.root, OFlags::RDONLY)?).map_err(error_of)
    }

    fn shutdown_reason(&self) -> Option<String> {
        None
    }

    fn unmount(self: Box<Self>) -> Result<()> {
        self.table.lock().unwrap().retain(|inode, _| *inode == self.root);
        // The kernel frees what has no name in its own time.
        std::thread::sleep(std::time::Duration::from_millis(200));
        self.sync()
    }

    fn lookup(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        self.find(dir, name, 0)
    }

    fn lookup_reference(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        self.find(dir, name, 1)
    }

    fn stat(&self, inode: InodeNumber) -> Result<Stat> {
        stat_of(&*self.file(inode)?)
    }

    fn is_in_use(&self, inode: InodeNumber) -> Result<bool> {
        Ok(self.file(inode).is_ok())
    }

    fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let file = self.file(inode)?;
        // Of a descriptor that is no link's, the system call says that there is no such file.
        if !stat_of(&file)?.file_type.is_symlink() {
            return fs::readlinkat(fs::CWD, by_number(&file) + "/", Vec::new())
                .map(|_| Vec::new())
                .or(Err(Error::Invalid("no symbolic link")));
        }
        Ok(fs::readlinkat(&*file, "", Vec::new()).map_err(error_of)?.into_bytes())
    }

    fn read_dir(
        &self,
        dir: InodeNumber,
        cookie: u64,
        show: &mut dyn FnMut(DirEntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let file = self.opened(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        fs::seek(&file, SeekFrom::Start(cookie)).map_err(error_of)?;
        let mut buffer = vec![MaybeUninit::uninit(); 4096];
        let mut entries = fs::RawDir::new(&file, &mut buffer);
        let mut at = cookie;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(error_of)?;
            let file_type = match entry.file_type() {
                Type::Directory => FileType::Dir,
                Type::Symlink => FileType::Symlink,
                Type::CharacterDevice => FileType::CharDevice,
                Type::BlockDevice => FileType::BlockDevice,
                Type::Fifo => FileType::Fifo,
                Type::Socket => FileType::Socket,
                _ => FileType::File,
            };
            let (name, inode, next_cookie) =
                (entry.file_name().to_bytes(), InodeNumber(entry.ino()), entry.next_entry_cookie());
            let entry = DirEntryRef { name, inode, file_type: Some(file_type), cookie: at, next_cookie };
            if show(entry).is_break() {
                break;
            }
            at = next_cookie;
        }
        Ok(())
    }

    fn seek(&self, inode: InodeNumber, offset: u64, what: Seek) -> Result<u64> {
        let file = self.opened(inode, OFlags::RDONLY)?;
        let place = if what == Seek::Data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
        fs::seek(&file, place).map_err(error_of)
    }

    fn add_reference(&self, inode: InodeNumber) -> Result<()> {
        let mut table = self.table.lock().unwrap();
        table.get_mut(&inode).ok_or(Error::Stale(inode.0))?.references += 1;
        Ok(())
    }

    fn drop_references(&self, inode: InodeNumber, count: u64) -> Result<()> {
        if let Some(held) = self.table.lock().unwrap().get_mut(&inode) {
            held.references -= count;
        }
        self.release([inode]);
        Ok(())
    }

    fn create(&self, dir: InodeNumber, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        let file = self.file(dir)?;
        let made = system::with_umask(new.umask, caller, || {
            let node = |file_type| fs::mknodat(&*file, name, file_type, mode_of(new), u64::from(new.device));
            match new.file_type {
                FileType::Dir => fs::mkdirat(&*file, name, mode_of(new)),
                FileType::Symlink => fs::symlinkat(new.target, &*file, name),
                FileType::File => node(Type::RegularFile),
                FileType::BlockDevice => node(Type::BlockDevice),
                FileType::CharDevice => node(Type::CharacterDevice),
                FileType::Fifo => node(Type::Fifo),
                FileType::Socket => node(Type::Socket),
            }
        });
        made.map_err(error_of)?;
        self.find(dir, name, 0)
    }

    fn tmpfile(&self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        let path = by_number(&*self.file(dir)?);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = system::with_umask(new.umask, caller, || fs::open(path, flags, mode_of(new))).map_err(error_of)?;
        self.hold(open(&made, OFlags::PATH)?, 1)
    }

    fn link(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<Stat> {
        let (dir_file, file) = (self.file(dir)?, self.file(inode)?);
        let link = || fs::linkat(fs::CWD, by_number(&*file), &*dir_file, name, AtFlags::SYMLINK_FOLLOW);
        as_caller(caller, link).map_err(error_of)?;
        stat_of(&file)
    }

    fn unlink(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.remove(dir, name, AtFlags::empty(), caller)
    }

    fn rmdir(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.remove(dir, name, AtFlags::REMOVEDIR, caller)
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
        let (from, to, replaced) = (self.file(dir)?, self.file(new_dir)?, self.number_at(new_dir, new_name));
        let mut how = fs::RenameFlags::empty();
        how.set(fs::RenameFlags::NOREPLACE, flags.no_replace);
        how.set(fs::RenameFlags::EXCHANGE, flags.exchange);
        how.set(fs::RenameFlags::WHITEOUT, flags.whiteout);
        as_caller(caller, || fs::renameat_with(&*from, name, &*to, new_name, how)).map_err(error_of)?;
        self.release(replaced);
        Ok(())
    }

    fn is_small(&self, _: &WholeFile<'_>) -> bool {
        false
    }

    fn make_files(&self, _: InodeNumber, _: &[WholeFile<'_>]) -> Result<Vec<Stat>> {
        Err(NO_CALL)
    }

    fn link_over(&self, _: InodeNumber, _: &[u8], _: InodeNumber, _: &Caller) -> Result<()> {
        Err(NO_CALL)
    }

    fn check_replaceable(&self, _: InodeNumber, _: &[u8], _: &Caller) -> Result<()> {
        Err(NO_CALL)
    }

    fn set_attr(&self, inode: InodeNumber, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        let file = self.file(inode)?;
        if let Some(size) = change.size {
            self.truncate(inode, size)?;
        }
        as_caller(caller, || {
            if change.uid.is_some() || change.gid.is_some() {
                let (uid, gid) = (change.uid.map(fs::Uid::from_raw), change.gid.map(fs::Gid::from_raw));
                fs::chownat(&*file, "", uid, gid, AtFlags::EMPTY_PATH)?;
            }
            if let Some(permissions) = change.permissions {
                fs::chmod(by_number(&*file), Mode::from_raw_mode(permissions.bits().into()))?;
            }
            if change.atime.is_some() || change.mtime.is_some() {
                let times =
                    fs::Timestamps { last_access: timespec(change.atime), last_modification: timespec(change.mtime) };
                fs::utimensat(fs::CWD, by_number(&*file), &times, AtFlags::empty())?;
            }
            Ok(())
        })
        .map_err(error_of)?;
        stat_of(&file)
    }

    fn get_xattr_into(&self, inode: InodeNumber, name: &[u8], value: &mut Vec<u8>) -> Result<()> {
        let path = by_number(&*self.file(inode)?);
        value.clear();
        value.resize(65_536, 0);
        let length = fs::getxattr(path, name, value.as_mut_slice()).map_err(error_of)?;
        value.truncate(length);
        Ok(())
    }

    fn list_xattrs_into(&self, inode: InodeNumber, names: &mut Vec<u8>) -> Result<()> {
        let path = by_number(&*self.file(inode)?);
        names.clear();
        names.resize(65_536, 0);
        let length = fs::listxattr(path, names.as_mut_slice()).map_err(error_of)?;
        names.truncate(length);
        Ok(())
    }

    fn change_xattrs(&self, _: InodeNumber, _: &[XattrChange], _: SetMode, _: &Caller) -> Result<()> {
        Err(NO_CALL)
    }

    fn set_xattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], mode: SetMode, caller: &Caller) -> Result<()> {
        let path = by_number(&*self.file(inode)?);
        let flags = match mode {
            SetMode::Any => fs::XattrFlags::empty(),
            SetMode::Create => fs::XattrFlags::CREATE,
            SetMode::Replace => fs::XattrFlags::REPLACE,
        };
        as_caller(caller, || fs::setxattr(path, name, value, flags)).map_err(error_of)
    }

    fn remove_xattr(&self, inode: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        let path = by_number(&*self.file(inode)?);
        as_caller(caller, || fs::removexattr(path, name)).map_err(error_of)
    }

    fn flags(&self, inode: InodeNumber) -> Result<Flags> {
        system::flags(&self.opened(inode, OFlags::RDONLY)?).map_err(error_of)
    }

    fn set_flags(&self, inode: InodeNumber, wanted: &Flags, caller: &Caller) -> Result<()> {
        let file = self.opened(inode, OFlags::RDONLY)?;
        as_caller(caller, || system::set_flags(&file, wanted)).map_err(error_of)
    }

    fn drop_privileges(&self, _: InodeNumber, _: Option<&Caller>) -> Result<bool> {
        Err(NO_CALL)
    }

    fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.opened(inode, OFlags::RDONLY)?;
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&file, &mut buffer[done..], offset + done as u64).map_err(error_of)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn write_some_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        rustix::io::pwrite(self.opened(inode, OFlags::WRONLY)?, data, offset).map_err(error_of)
    }

    fn append(&self, inode: InodeNumber, data: &[u8]) -> Result<u64> {
        let file = self.opened(inode, OFlags::WRONLY | OFlags::APPEND)?;
        let size = self.stat(inode)?.size;
        rustix::io::write(&file, data).map_err(error_of)?;
        Ok(size)
    }

    fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()> {
        fs::ftruncate(self.opened(inode, OFlags::WRONLY)?, size).map_err(error_of)
    }

    fn fallocate(&self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        let file = self.opened(inode, OFlags::WRONLY)?;
        fs::fallocate(&file, fallocate_flags(what), offset, length).map_err(error_of)
    }

    fn copy_range(
        &self,
        from: InodeNumber,
        mut from_offset: u64,
        to: InodeNumber,
        mut to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (from, to) = (self.opened(from, OFlags::RDONLY)?, self.opened(to, OFlags::WRONLY)?);
        let copied = fs::copy_file_range(&from, Some(&mut from_offset), &to, Some(&mut to_offset), length as usize);
        copied.map(|count| count as u64).map_err(error_of)
    }

    fn clone_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        let (from, to) = (self.opened(from, OFlags::RDONLY)?, self.opened(to, OFlags::WRONLY)?);
        system::clone_range(&from, from_offset, &to, to_offset, length).map_err(error_of)
    }

    fn begin_fsync(&self, inode: InodeNumber, what: SyncKind) -> Result<SyncPoint> {
        if let Ok(file) = self.opened(inode, OFlags::RDONLY) {
            match what {
                SyncKind::Full => fs::fsync(&file),
                SyncKind::Data => fs::fdatasync(&file),
            }
            .map_err(error_of)?;
        }
        Ok(SyncPoint { volume: Some(self.number()), ..SyncPoint::default() })
    }

    fn await_durable(&self, point: SyncPoint) -> Result<()> {
        let is_own = point.volume.is_none_or(|volume| volume == self.number());
        if is_own { Ok(()) } else { Err(Error::Invalid("another volume's")) }
    }
}
