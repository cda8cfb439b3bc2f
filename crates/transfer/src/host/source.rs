//! Reads a tree of the host, in the order of its names.

use super::attributes::{AttributeReader, Handle};
use super::contents;
use super::pretended;
use crate::error::{Losses, Result, TransferError, host, shown};
use crate::event::{Contents, Event, Kind, MAX_INLINE_BYTES, Meta, Node, OverLinks, join};
use crate::paths::{PathId, Paths};
use crate::pipe::{LeaveOut, Outlet, Sort, Source};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};
use std::sync::OnceLock;
use xfskit_vfs::{DeviceNumber, Timestamp};

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LIST_BYTES: usize = 64 * 1024;

/// A file or folder of the host, with everything in it.
pub struct HostSource<'a> {
    start: Start,
    prefix: Vec<u8>,
    recursive: bool,
    walk: Walk<'a>,
}

enum Start {
    /// A folder, opened.
    Folder(OwnedFd),
    /// A name in a folder.
    Named(OwnedFd, Vec<u8>),
    /// A regular file, opened.
    Open(File),
}

/// The state of a walk.
struct Walk<'a> {
    /// The first name of each file that has several, by device and inode.
    links: HashMap<(u64, u64), PathId>,
    paths: Paths,
    reader: AttributeReader,
    list: Vec<MaybeUninit<u8>>,
    losses: Losses,
    no_atime: bool,
    /// Files to leave out, by device and inode.
    excluded: Vec<(u64, u64)>,
    leave_out: LeaveOut<'a>,
}

/// A folder that is being read. The entries that remain are in `left`, the next one last.
struct Frame {
    fd: OwnedFd,
    path: Vec<u8>,
    left: Vec<(Vec<u8>, FileType)>,
}

impl<'a> HostSource<'a> {
    /// A source for the file or folder at `path`, which is sent under the path `prefix`. A symbolic link is sent as
    /// such, unless the path continues behind it (`link/.`).
    ///
    /// # Errors
    /// `Host` when it cannot be opened.
    pub fn new(path: &Path, prefix: &[u8], recursive: bool) -> Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = path.as_os_str().as_bytes();
        let is_folder = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        let start = match path.components().next_back() {
            Some(Component::Normal(name)) if !is_folder => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let fd = open_folder(parent.unwrap_or(Path::new(".")), OFlags::PATH)?;
                Start::Named(fd, name.as_bytes().to_vec())
            }
            _ => Start::Folder(open_folder(path, OFlags::RDONLY)?),
        };
        Ok(Self::of(start, prefix, recursive))
    }

    /// A source for one regular file that is open, whatever its name is. It is sent under the path `path`.
    pub fn of_open(file: File, path: &[u8]) -> Self {
        Self::of(Start::Open(file), path, false)
    }

    fn of(start: Start, prefix: &[u8], recursive: bool) -> Self {
        let walk = Walk {
            links: HashMap::new(),
            paths: Paths::default(),
            reader: AttributeReader::new(),
            list: vec![MaybeUninit::uninit(); LIST_BYTES],
            losses: Losses::default(),
            no_atime: true,
            excluded: Vec::new(),
            leave_out: Box::new(|_, _| false),
        };
        Self { start, prefix: prefix.to_vec(), recursive, walk }
    }

    /// Leaves out the paths for which `leave_out` returns true.
    #[must_use]
    pub fn leaving_out(mut self, leave_out: LeaveOut<'a>) -> Self {
        self.walk.leave_out = leave_out;
        self
    }

    /// Leaves out these files: an image must not contain itself.
    #[must_use]
    pub fn without(mut self, files: &[std::fs::Metadata]) -> Self {
        use std::os::unix::fs::MetadataExt;
        self.walk.excluded = files.iter().map(|file| (file.dev(), file.ino())).collect();
        self
    }
}

/// Opens a folder: to list it, or only to find a name in it.
fn open_folder(path: &Path, how: OFlags) -> Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    rustix::fs::openat(CWD, path, how | FOLDER, Mode::empty()).map_err(host(path.as_os_str().as_bytes(), "opening it"))
}

impl Source for HostSource<'_> {
    fn over_links(&self) -> OverLinks {
        OverLinks::LiesInThem
    }

    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        let Self { start, prefix, recursive, walk } = self;
        let mut stack = Vec::new();
        match start {
            Start::Folder(fd) => {
                let fd = fd.try_clone().map_err(host(prefix, "opening it"))?;
                stack.push(walk.enter(fd, prefix.clone(), *recursive, out)?);
            }
            Start::Named(dir, name) => {
                stack.extend(walk.visit(dir, name, FileType::Unknown, prefix.clone(), *recursive, out)?);
            }
            Start::Open(file) if !(walk.leave_out)(prefix, Sort::Other) => walk.file(file, prefix.clone(), out)?,
            Start::Open(_) => {}
        }
        while let Some(frame) = stack.last_mut() {
            let Some((name, kind)) = frame.left.pop() else {
                stack.pop();
                continue;
            };
            let path = join(&frame.path, &name);
            let below = walk.visit(&frame.fd, &name, kind, path, true, out)?;
            stack.extend(below);
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        self.walk.losses.clone()
    }
}

impl Walk<'_> {
    /// Sends the file or folder of a name. For a folder, returns its entries.
    fn visit(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        kind: FileType,
        path: Vec<u8>,
        recursive: bool,
        out: &mut Outlet,
    ) -> Result<Option<Frame>> {
        let kind = match kind {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
                FileType::from_raw_mode(stat.map_err(host(&path, "opening it"))?.st_mode)
            }
            kind => kind,
        };
        let sort = if kind == FileType::Directory { Sort::Directory } else { Sort::Other };
        if (self.leave_out)(&path, sort) {
            return Ok(None);
        }
        let is_measured = !out.wants_attributes() && !is_faked() && kind != FileType::Directory;
        if is_measured && self.measure(dir, name, kind, &path, out)? {
            return Ok(None);
        }
        match kind {
            FileType::Directory => {
                let fd = self.open(dir, name, READ | OFlags::DIRECTORY, &path)?;
                self.enter(fd, path, recursive, out).map(Some)
            }
            FileType::RegularFile => {
                let fd = self.open(dir, name, READ, &path)?;
                // For a device node that fakeroot simulates, the kernel has an empty file.
                let kind = if is_faked() { FileType::from_raw_mode(stat(&fd, &path)?.st_mode) } else { kind };
                match kind {
                    FileType::RegularFile => self.file(&File::from(fd), path, out)?,
                    kind => self.special(&fd, kind, path, out)?,
                }
                Ok(None)
            }
            _ => {
                let fd = self.open(dir, name, PLACE, &path)?;
                self.special(&fd, kind, path, out)?;
                Ok(None)
            }
        }
    }

    /// Sends a file with what the kernel says of it by its name, so without attributes, as a survey needs it: it would
    /// take twice the calls to open it. Returns false for one that must be opened: to find its holes, or for the error.
    fn measure(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        expected: FileType,
        path: &[u8],
        out: &mut Outlet,
    ) -> Result<bool> {
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(false) };
        let is_excluded = self.excluded.contains(&(stat.st_dev, stat.st_ino));
        if FileType::from_raw_mode(stat.st_mode) != expected || is_excluded {
            return Ok(false);
        }
        let kind = match expected {
            FileType::RegularFile => {
                let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
                let is_readable = rustix::fs::accessat(dir, name, Access::READ_OK, flags).is_ok();
                if !is_readable || !is_dense(&stat) {
                    return Ok(false);
                }
                let size = stat.st_size as u64;
                let contents = if size == 0 { Contents::Whole(Vec::new()) } else { Contents::Parts(vec![(0, size)]) };
                Kind::File { size, contents }
            }
            _ => match special_kind(expected, &stat, dir, name) {
                Ok(kind) => kind,
                Err(_) => return Ok(false),
            },
        };
        let kind = self.first_name(&stat, path).map_or(kind, Kind::Link);
        out.send(Event::Node(Node { path: path.to_vec(), kind, meta: meta(&stat, Vec::new()) }))?;
        Ok(true)
    }

    fn open(&mut self, dir: &OwnedFd, name: &[u8], flags: OFlags, path: &[u8]) -> Result<OwnedFd> {
        let flags_now = if self.no_atime && !flags.contains(OFlags::PATH) { flags | OFlags::NOATIME } else { flags };
        match rustix::fs::openat(dir, name, flags_now, Mode::empty()) {
            // Only the owner may read without changing the access time.
            Err(Errno::PERM) if flags_now != flags => {
                self.no_atime = false;
                self.open(dir, name, flags, path)
            }
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => Err(TransferError::Changed(shown(path))),
            result => result.map_err(host(path, "opening it")),
        }
    }

    /// Sends a folder and lists it.
    fn enter(&mut self, fd: OwnedFd, path: Vec<u8>, recursive: bool, out: &mut Outlet) -> Result<Frame> {
        if !recursive {
            return Err(TransferError::NotRecursive(shown(&path)));
        }
        let stat = stat(&fd, &path)?;
        let xattrs = self.attributes(Handle::Open(fd.as_fd()), &path, out)?;
        out.send(Event::Node(Node { path: path.clone(), kind: Kind::Directory, meta: meta(&stat, xattrs) }))?;
        let mut left = Vec::new();
        let mut entries = RawDir::new(&fd, &mut self.list);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(host(&path, "listing it"))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                left.push((name.to_vec(), entry.file_type()));
            }
        }
        left.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        Ok(Frame { fd, path, left })
    }

    /// Sends a regular file, and verifies that it did not change meanwhile.
    fn file(&mut self, file: &File, path: Vec<u8>, out: &mut Outlet) -> Result<()> {
        let before = stat(file, &path)?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Err(TransferError::Changed(shown(&path)));
        }
        if self.excluded.contains(&(before.st_dev, before.st_ino)) {
            self.losses.itself.note(&path);
            return Ok(());
        }
        let xattrs = self.attributes(Handle::Open(file.as_fd()), &path, out)?;
        let meta = meta(&before, xattrs);
        if let Some(first) = self.first_name(&before, &path) {
            return out.send(Event::Node(Node { path, kind: Kind::Link(first), meta }));
        }
        let size = before.st_size as u64;
        let is_dense = is_dense(&before);
        let is_small = size <= MAX_INLINE_BYTES && is_dense;
        if is_small && (out.wants_data() || size == 0) {
            let contents = Contents::Whole(contents::whole(file, size, &path)?);
            check_unchanged(file, &before, &path)?;
            return out.send(Event::Node(Node { path, kind: Kind::File { size, contents }, meta }));
        }
        let parts = if is_dense { vec![(0, size)] } else { contents::parts(file, size, &path)? };
        let kind = Kind::File { size, contents: Contents::Parts(parts.clone()) };
        out.send(Event::Node(Node { path: path.clone(), kind, meta }))?;
        if out.wants_data() {
            contents::send(file, &parts, &path, out)?;
            check_unchanged(file, &before, &path)?;
            out.send(Event::End)?;
        }
        Ok(())
    }

    /// Sends a file that is neither a folder nor a regular file.
    fn special(&mut self, fd: &OwnedFd, expected: FileType, path: Vec<u8>, out: &mut Outlet) -> Result<()> {
        let stat = stat(fd, &path)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != expected {
            return Err(TransferError::Changed(shown(&path)));
        }
        let xattrs = self.attributes(Handle::PathDescriptor(fd.as_fd()), &path, out)?;
        let meta = meta(&stat, xattrs);
        let kind = match self.first_name(&stat, &path) {
            Some(first) => Kind::Link(first),
            None => special_kind(kind, &stat, fd, b"").map_err(host(&path, "reading the link"))?,
        };
        out.send(Event::Node(Node { path, kind, meta }))
    }

    /// The attributes of a file, if they are wanted.
    fn attributes(&mut self, handle: Handle, path: &[u8], out: &Outlet) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let is_wanted = out.wants_attributes();
        if is_wanted { self.reader.read(handle, path, &mut self.losses.attributes) } else { Ok(Vec::new()) }
    }

    /// The name under which the file was sent before. If there is none and the file has several names, records this
    /// one.
    fn first_name(&mut self, stat: &Stat, path: &[u8]) -> Option<Vec<u8>> {
        if stat.st_nlink < 2 {
            return None;
        }
        let key = (stat.st_dev, stat.st_ino);
        let first = self.links.get(&key).map(|&first| self.paths.get(first));
        if first.is_none() {
            self.links.insert(key, self.paths.keep(path));
        }
        first
    }
}

/// What a file is that is neither a folder nor a regular file. The name is that of a link; an empty one stands for the
/// descriptor's own.
fn special_kind(kind: FileType, stat: &Stat, dir: &OwnedFd, name: &[u8]) -> Result<Kind, Errno> {
    Ok(match kind {
        FileType::Symlink => Kind::Symlink(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes()),
        FileType::CharacterDevice => Kind::Char(device(stat.st_rdev)),
        FileType::BlockDevice => Kind::Block(device(stat.st_rdev)),
        FileType::Fifo => Kind::Fifo,
        _ => Kind::Socket,
    })
}

/// Whether a file has storage for all its bytes.
fn is_dense(stat: &Stat) -> bool {
    stat.st_blocks as u64 * 512 >= stat.st_size as u64
}

/// Whether fakeroot simulates owners and device nodes. Its library intercepts functions of the C library, which the
/// standard library calls and rustix does not.
fn is_faked() -> bool {
    static FAKED: OnceLock<bool> = OnceLock::new();
    *FAKED.get_or_init(|| std::env::var_os("FAKEROOTKEY").is_some()) || pretended::is_known()
}

fn stat(fd: impl AsFd, path: &[u8]) -> Result<Stat> {
    let mut stat = rustix::fs::fstat(&fd).map_err(host(path, "reading its attributes"))?;
    if pretended::is_known() {
        if !pretended::apply(&mut stat) {
            return Err(TransferError::Changed(shown(path)));
        }
    } else if is_faked() {
        let copy = fd.as_fd().try_clone_to_owned();
        let faked = copy.and_then(|fd| File::from(fd).metadata()).map_err(host(path, "reading its attributes"))?;
        (stat.st_mode, stat.st_uid, stat.st_gid) = (faked.mode(), faked.uid(), faked.gid());
        stat.st_rdev = faked.rdev();
    }
    Ok(stat)
}

fn check_unchanged(file: &File, before: &Stat, path: &[u8]) -> Result<()> {
    let after = stat(file, path)?;
    let version = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
    if version(&after) == version(before) { Ok(()) } else { Err(TransferError::Changed(shown(path))) }
}

/// A device number in Linux's encoding of 32 bits.
fn device(number: u64) -> u32 {
    DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }.to_linux()
}

pub(super) fn meta(stat: &Stat, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Meta {
    Meta {
        mode: stat.st_mode as u16 & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        atime: Timestamp { seconds: stat.st_atime, nanoseconds: stat.st_atime_nsec as u32 },
        mtime: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
        xattrs,
    }
}
