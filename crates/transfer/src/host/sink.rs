//! Writes a tree into a folder of the host.
//!
//! Everything but folders is made under a temporary name and renamed when it is complete, so that a file under its own
//! name is complete. Folders get their attributes after everything in them.

use super::attributes::{AttributeReader, Handle, drop_inherited, has_default_acl, place, set_all};
use super::durable::{Durability, Written};
use crate::error::{Losses, NotReplaced, Result, TransferError, host, shown};
use crate::event::{Contents, Kind, Meta, Node, join, split};
use crate::pipe::{Existing, Sink};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xfskit_vfs::DeviceNumber;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const SET_ID: u16 = 0o6000;
/// The number that the host does not accept as an owner.
const NO_ID: u32 = u32::MAX;

/// A folder of the host into which a tree is written.
pub struct HostSink {
    base: Folder,
    /// The folders from the base to that of the last file.
    stack: Vec<Folder>,
    open: Option<OpenFile>,
    temporaries: u64,
    losses: Losses,
    existing: Existing,
    keeper: Option<Keeper>,
    attributes: AttributeReader,
    durability: Durability,
    written: Written,
}

/// Returns why an existing file must not be replaced, if it must not.
pub type Keeper = Box<dyn Fn(&File) -> std::io::Result<Option<NotReplaced>>>;

struct Folder {
    name: Vec<u8>,
    fd: OwnedFd,
    /// New files in it inherit ACLs.
    has_default_acl: bool,
    /// The attributes that it gets when everything in it is written.
    meta: Option<Meta>,
}

impl Folder {
    fn new(fd: OwnedFd, name: &[u8], meta: Option<Meta>) -> Self {
        let has_default_acl = has_default_acl(fd.as_fd());
        Self { name: name.to_vec(), fd, has_default_acl, meta }
    }
}

/// A file that is being written.
struct OpenFile {
    file: File,
    path: Vec<u8>,
    temporary: Vec<u8>,
    size: u64,
    end: u64,
    meta: Meta,
    /// It replaces a file that is not empty.
    replaces: bool,
}

impl HostSink {
    /// The folder at `path`, which exists.
    ///
    /// # Errors
    /// `Host` when it cannot be opened.
    pub fn new(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let fd = opened.map_err(host(path.as_os_str().as_bytes(), "opening it"))?;
        let mut written = Written::default();
        written.note(&fd, path.as_os_str().as_bytes())?;
        let base = Folder::new(fd, b"", None);
        Ok(Self {
            base,
            stack: Vec::new(),
            open: None,
            temporaries: 0,
            losses: Losses::default(),
            existing: Existing::TakesAll,
            keeper: None,
            attributes: AttributeReader::new(),
            durability: Durability::default(),
            written,
        })
    }

    /// Sets what becomes durable.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The filesystems that were written to; nothing is durable before they are synced.
    pub fn into_written(self) -> Written {
        self.written
    }

    /// Sets how the attributes of existing files and folders are treated.
    #[must_use]
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets a check that is called before a regular file is replaced.
    #[must_use]
    pub fn with_keeper(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// Checks, before anything is made, whether an existing file of that name may be replaced. Returns its attributes
    /// if it is a regular file.
    fn look(&self, path: &[u8], kind: &Kind) -> Result<Option<rustix::fs::Stat>> {
        let (dir, name) = (&self.folder().fd, split(path).1);
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.map_err(host(path, "looking at what is there"))?,
        };
        let refuse_for = |why: NotReplaced| Err(TransferError::NotReplaced { path: shown(path), why });
        let refuse = |why: &str| refuse_for(NotReplaced::Contents(why.into()));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice | FileType::CharacterDevice if !matches!(kind, Kind::Block(_) | Kind::Char(_)) => {
                return refuse("it is a device, which only a device replaces");
            }
            FileType::Fifo | FileType::Socket if holds_contents(kind) => {
                return refuse("it is a pipe or a socket; 'xfskit cat' writes to those");
            }
            FileType::Symlink if holds_contents(kind) && leads_to_no_file(dir, name) => {
                return refuse("it leads to a device, a pipe or an open file; 'xfskit cat' writes to those");
            }
            FileType::RegularFile => {}
            _ => return Ok(None),
        }
        let (Some(keeper), true) = (&self.keeper, stat.st_size > 0) else { return Ok(Some(stat)) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            // A file that cannot be read cannot be checked.
            Err(Errno::ACCESS | Errno::PERM) => return refuse("it cannot be read, to see whether it may be replaced"),
            file => File::from(file.map_err(host(path, "looking at what is there"))?),
        };
        match keeper(&file).map_err(host(path, "looking at what is there"))? {
            Some(why) => refuse_for(why),
            None => Ok(Some(stat)),
        }
    }

    /// The attributes for a regular file, which may preserve those of the file that it replaces.
    fn meta_in_place(&mut self, old: Option<&rustix::fs::Stat>, path: &[u8], meta: Meta) -> Result<Meta> {
        let Some(old) = old.filter(|_| self.existing.keeps()) else { return Ok(meta) };
        let name = split(path).1;
        let fd = rustix::fs::openat(&self.folder().fd, name, PLACE, Mode::empty()).map_err(host(path, "opening it"))?;
        let xattrs = self.attributes.read(Handle::PathDescriptor(fd.as_fd()), path, &mut self.losses.attributes)?;
        Ok(self.existing.meta(super::source::meta(old, xattrs), meta))
    }

    fn folder(&self) -> &Folder {
        self.stack.last().unwrap_or(&self.base)
    }

    /// Makes an existing folder the current one. The folders that this leaves are complete.
    fn go_to(&mut self, path: &[u8]) -> Result<()> {
        let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).peekable();
        let common = self.stack.iter().take_while(|folder| names.next_if(|name| folder.name == **name).is_some());
        let common = common.count();
        while self.stack.len() > common {
            self.leave()?;
        }
        for name in names {
            let fd = rustix::fs::openat(&self.folder().fd, name, FOLDER, Mode::empty());
            let fd = fd.map_err(|why| host(&join(&self.path(), name), "opening the folder")(why))?;
            self.stack.push(Folder::new(fd, name, None));
        }
        Ok(())
    }

    /// The path of the current folder. A path for each folder of the stack would take memory with the square of the
    /// depth.
    fn path(&self) -> Vec<u8> {
        self.stack.iter().map(|folder| folder.name.as_slice()).collect::<Vec<_>>().join(&b'/')
    }

    fn leave(&mut self) -> Result<()> {
        let path = self.path();
        let Some(folder) = self.stack.pop() else { return Ok(()) };
        match &folder.meta {
            Some(meta) => {
                drop_inherited(Handle::Open(folder.fd.as_fd()), self.folder().has_default_acl, true);
                self.set_attributes(&folder.fd, meta, &path)
            }
            None => Ok(()),
        }
    }

    fn make_folder(&mut self, node: Node) -> Result<()> {
        if node.path.is_empty() {
            self.base.meta = (!self.existing.keeps()).then_some(node.meta);
            return Ok(());
        }
        let (_, name) = split(&node.path);
        let made = rustix::fs::mkdirat(&self.folder().fd, name, Mode::RWXU);
        let was_there = made == Err(Errno::EXIST);
        if !was_there {
            made.map_err(host(&node.path, "making the folder"))?;
        }
        let fd = rustix::fs::openat(&self.folder().fd, name, FOLDER, Mode::empty());
        let fd = fd.map_err(host(&node.path, "a folder goes here, and something else is here already"))?;
        if was_there {
            self.written.note(&fd, &node.path)?;
        }
        let name = name.to_vec();
        let meta = (!was_there || !self.existing.keeps()).then_some(node.meta);
        self.stack.push(Folder::new(fd, &name, meta));
        Ok(())
    }

    /// A name for a file that is not complete.
    fn temporary(&mut self) -> Vec<u8> {
        self.temporaries += 1;
        format!(".xfskit-{}-{}", std::process::id(), self.temporaries).into_bytes()
    }

    fn begin_file(&mut self, path: Vec<u8>, size: u64, meta: Meta) -> Result<()> {
        let old = self.look(&path, &Kind::File { size, contents: Contents::Whole(Vec::new()) })?;
        let replaces = old.as_ref().is_some_and(|old| old.st_size > 0);
        let meta = self.meta_in_place(old.as_ref(), &path, meta)?;
        loop {
            let temporary = self.temporary();
            let mode = Mode::RUSR | Mode::WUSR;
            match rustix::fs::openat(&self.folder().fd, &temporary, NEW, mode) {
                // A run that was killed has left a file of this name.
                Err(Errno::EXIST) => {}
                other => {
                    let file = File::from(other.map_err(host(&path, "making it"))?);
                    self.open = Some(OpenFile { file, path, temporary, size, end: 0, meta, replaces });
                    return Ok(());
                }
            }
        }
    }

    fn end_file(&mut self) -> Result<()> {
        let open = self.open.as_ref().expect("contents follow their file");
        if open.end < open.size {
            rustix::fs::ftruncate(&open.file, open.size).map_err(host(&open.path, "setting its size"))?;
        }
        let OpenFile { file, path, temporary, meta, replaces, .. } = self.open.take().expect("it was there just now");
        drop_inherited(Handle::Open(file.as_fd()), self.folder().has_default_acl, false);
        let mut kept = self.set_attributes(&file, &meta, &path);
        if replaces && self.durability == Durability::Kept {
            kept = kept.and_then(|()| file.sync_data().map_err(host(&path, "making it durable")));
        }
        drop(file);
        self.put_in_place(&temporary, &path, kept)
    }

    /// Renames a complete file to its own name. Removes it if that fails, or if `made` is an error.
    fn put_in_place(&mut self, temporary: &[u8], path: &[u8], made: Result<()>) -> Result<()> {
        let dir = &self.folder().fd;
        let renamed = made.and_then(|()| {
            rustix::fs::renameat(dir, temporary, dir, split(path).1).map_err(host(path, "giving it its name"))
        });
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
        }
        renamed
    }

    /// Makes a file that is neither a folder nor a regular file.
    fn make_special(&mut self, node: &Node) -> Result<()> {
        self.look(&node.path, &node.kind)?;
        let temporary = self.temporary();
        let dir = &self.folder().fd;
        let node_of = |kind, device| rustix::fs::mknodat(dir, &temporary, kind, Mode::RUSR | Mode::WUSR, device);
        let made = match &node.kind {
            Kind::Symlink(target) => rustix::fs::symlinkat(target.as_slice(), dir, &temporary),
            Kind::Char(number) => node_of(FileType::CharacterDevice, device(*number)),
            Kind::Block(number) => node_of(FileType::BlockDevice, device(*number)),
            Kind::Fifo => node_of(FileType::Fifo, 0),
            _ => node_of(FileType::Socket, 0),
        };
        match made {
            Err(Errno::PERM) if matches!(node.kind, Kind::Char(_) | Kind::Block(_)) => {
                self.losses.devices.note(&node.path);
                return Ok(());
            }
            other => other.map_err(host(&node.path, "making it"))?,
        }
        let kept = self.set_special_attributes(&temporary, node);
        self.put_in_place(&temporary, &node.path, kept)
    }

    /// Sets everything through the open file, since another program may replace the name at any moment.
    fn set_special_attributes(&mut self, name: &[u8], node: &Node) -> Result<()> {
        let (path, meta) = (&node.path, &node.meta);
        let fd = rustix::fs::openat(&self.folder().fd, name, PLACE, Mode::empty()).map_err(host(path, "opening it"))?;
        expect_own(&fd, node)?;
        let handle = Handle::PathDescriptor(fd.as_fd());
        let (uid, gid) = ids(meta);
        let owned = rustix::fs::chownat(&fd, c"", uid, gid, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW);
        let refused = self.note_owner(owned, meta, path)?;
        drop_inherited(handle, self.folder().has_default_acl, false);
        set_all(handle, &meta.xattrs, path, &mut self.losses)?;
        if !matches!(node.kind, Kind::Symlink(_)) {
            let set = rustix::fs::chmodat(CWD, place(fd.as_fd()), mode(meta, refused), AtFlags::empty());
            set.map_err(host(path, "setting its permissions"))?;
        }
        // This path leads to the symbolic link itself, not to its target.
        let set = rustix::fs::utimensat(CWD, place(fd.as_fd()), &times(meta), AtFlags::empty());
        set.map_err(host(path, "setting its times"))
    }

    fn set_attributes(&mut self, fd: impl AsFd, meta: &Meta, path: &[u8]) -> Result<()> {
        let (uid, gid) = ids(meta);
        let refused = self.note_owner(rustix::fs::fchown(&fd, uid, gid), meta, path)?;
        set_all(Handle::Open(fd.as_fd()), &meta.xattrs, path, &mut self.losses)?;
        rustix::fs::fchmod(&fd, mode(meta, refused)).map_err(host(path, "setting its permissions"))?;
        rustix::fs::futimens(&fd, &times(meta)).map_err(host(path, "setting its times"))
    }

    /// Counts an owner that could not be set. Returns whether that was so.
    fn note_owner(&mut self, owned: Result<(), Errno>, meta: &Meta, path: &[u8]) -> Result<bool> {
        match owned {
            // To the system this number means that the owner stays as it is: it cannot be set.
            Ok(()) if meta.uid == NO_ID || meta.gid == NO_ID => {
                self.losses.owners.note(path);
                Ok(true)
            }
            // An id that the host's user namespace does not know is invalid there.
            Err(Errno::PERM | Errno::INVAL) => {
                self.losses.owners.note(path);
                Ok(true)
            }
            other => other.map(|()| false).map_err(host(path, "setting its owner")),
        }
    }

    fn make_link(&mut self, path: &[u8], first: &[u8]) -> Result<()> {
        self.look(path, &Kind::Link(first.to_vec()))?;
        let mut dir = self.base.fd.try_clone().map_err(host(first, "opening the folder"))?;
        let (folder, name) = split(first);
        for part in folder.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let below = rustix::fs::openat(&dir, part, FOLDER, Mode::empty());
            dir = below.map_err(host(first, "opening the folder"))?;
        }
        let temporary = self.temporary();
        match rustix::fs::linkat(&dir, name, &self.folder().fd, &temporary, AtFlags::empty()) {
            // The first name was a device node that could not be made.
            Err(Errno::NOENT) if self.losses.devices.count > 0 => {
                self.losses.devices.note(path);
                return Ok(());
            }
            other => other.map_err(host(path, "making the link"))?,
        }
        self.put_in_place(&temporary, path, Ok(()))?;
        // The rename does nothing if both are names of the same file, and leaves the temporary name.
        let _ = rustix::fs::unlinkat(&self.folder().fd, &temporary, AtFlags::empty());
        Ok(())
    }
}

impl Sink for HostSink {
    fn node(&mut self, node: Node) -> Result<()> {
        check(&node.path)?;
        self.go_to(split(&node.path).0)?;
        match node.kind {
            Kind::Directory => self.make_folder(node),
            Kind::File { size, contents: Contents::Whole(bytes) } => {
                self.begin_file(node.path, size, node.meta)?;
                self.data(0, &bytes)?;
                self.end_file()
            }
            Kind::File { size, .. } => self.begin_file(node.path, size, node.meta),
            Kind::Link(first) => self.make_link(&node.path, &first),
            _ => self.make_special(&node),
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let open = self.open.as_mut().expect("contents follow their file");
        open.file.write_all_at(bytes, offset).map_err(host(&open.path, "writing it"))?;
        open.end = open.end.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.end_file()
    }

    fn broken(&mut self, why: &TransferError) -> Result<()> {
        self.abort();
        self.losses.unreadable.note_reason(why);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while !self.stack.is_empty() {
            self.leave()?;
        }
        if let Some(meta) = self.base.meta.take() {
            let fd = self.base.fd.try_clone().map_err(host(b"", "opening it"))?;
            self.set_attributes(&fd, &meta, b"")?;
        }
        Ok(())
    }

    fn abort(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = rustix::fs::unlinkat(&self.folder().fd, &open.temporary, AtFlags::empty());
        }
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}

/// Refuses names that an image may have and a folder of the host cannot.
fn check(path: &[u8]) -> Result<()> {
    match path.split(|&byte| byte == b'/').any(|name| name == b".." || name == b".") {
        true => Err(TransferError::UnsafePath(shown(path))),
        false => Ok(()),
    }
}

/// Verifies that an open file is the one that was just made.
fn expect_own(fd: &OwnedFd, node: &Node) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(host(&node.path, "looking at what was made"))?;
    let expected = match node.kind {
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Char(_) => FileType::CharacterDevice,
        Kind::Block(_) => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        _ => FileType::Socket,
    };
    let is_own = FileType::from_raw_mode(stat.st_mode) == expected
        && stat.st_nlink == 1
        && stat.st_uid == rustix::process::geteuid().as_raw();
    if is_own {
        return Ok(());
    }
    let exchanged = std::io::Error::other("another program has put something else in its place");
    Err(host(&node.path, "making it")(exchanged))
}

fn ids(meta: &Meta) -> (Option<Uid>, Option<Gid>) {
    let known = |id: u32| (id != NO_ID).then_some(id);
    (known(meta.uid).map(Uid::from_raw), known(meta.gid).map(Gid::from_raw))
}

/// The permissions; set-user-ID and set-group-ID are dropped if the owner could not be set.
fn mode(meta: &Meta, owner_refused: bool) -> Mode {
    let mode = if owner_refused { meta.mode & !SET_ID } else { meta.mode };
    Mode::from_raw_mode(mode.into())
}

fn times(meta: &Meta) -> Timestamps {
    let time = |time: xfskit_vfs::Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) }
}

/// A device number from Linux's encoding of 32 bits.
fn device(number: u32) -> u64 {
    let DeviceNumber { major, minor } = DeviceNumber::from_linux(number);
    rustix::fs::makedev(major, minor)
}

/// Whether it is a regular file: with another kind, a caller means the name itself.
fn holds_contents(kind: &Kind) -> bool {
    matches!(kind, Kind::File { .. } | Kind::Link(_))
}

/// Whether a symbolic link leads to what is no file of a filesystem: `/dev/stdout` leads to an open file.
fn leads_to_no_file(dir: impl AsFd, name: &[u8]) -> bool {
    let is_open_file = rustix::fs::readlinkat(dir.as_fd(), name, Vec::new())
        .is_ok_and(|target| target.as_bytes().starts_with(b"/proc/"));
    let is_other = |stat: rustix::fs::Stat| {
        use FileType::{BlockDevice, CharacterDevice, Fifo, Socket};
        matches!(FileType::from_raw_mode(stat.st_mode), BlockDevice | CharacterDevice | Fifo | Socket)
    };
    is_open_file || rustix::fs::statat(dir, name, AtFlags::empty()).is_ok_and(is_other)
}
