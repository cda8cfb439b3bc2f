//! The place of a mount: a mount is looked for and unmounted there, and never another one.
//!
//! A path, the number of a mount and that of its device may all belong to another mount a moment later: by an unmount,
//! by a mount over it, by a folder on the way that was exchanged. So who acts on a mount does it on descriptors, after
//! a look at what they stand for:
//!
//! ```text
//! unmount   the folder above is opened ─▶ its entry is the mount? ─▶ umount2(entry below the descriptor, no links)
//! detach    the mount's root is opened ─▶ it is the mount?        ─▶ umount2(descriptor)
//! abort     the connection's file is opened when the mount is made, and stands for no other connection afterwards
//! ```
//! (To unmount a root that is open is refused: it is in use.) What is left is a mount that is made over the entry
//! between the look and the unmount, by a user who may mount there.
//!
//! Source of facts: statx(2), umount2(2); `fs/namespace.c`, `fs/fuse/control.c` of Linux 6.18. The numbers of
//! `STATX_MNT_ID` are used again; those of `STATX_MNT_ID_UNIQUE` (Linux 6.8) are not.

use crate::mountinfo::{MountEntry, mount_at};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The bit of [`StatxFlags`] that the library has no name for.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Which mount it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// No other mount has had it, or will.
    Unique(u64),
    /// No other mount has it at the same time.
    OfNow(u64),
}

/// What is mounted at an entry of an open folder, or is itself open (with an empty name), by numbers that are asked for
/// by `mask`. No server is asked for anything.
fn number_at(dir: impl AsFd, name: &OsStr, mask: StatxFlags) -> Option<Number> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    if name.is_empty() {
        flags |= AtFlags::EMPTY_PATH;
    }
    let found = match rustix::fs::statx(&dir, name, flags, mask) {
        Ok(found) => found,
        // A mount that its user alone may use: the number is in /proc, too.
        Err(Errno::ACCESS) if mask == StatxFlags::MNT_ID => return number_in_proc(dir, name).map(Number::OfNow),
        Err(_) => return None,
    };
    if found.stx_mask & mask.bits() == 0 {
        return None;
    }
    Some(if mask == MNT_ID_UNIQUE { Number::Unique(found.stx_mnt_id) } else { Number::OfNow(found.stx_mnt_id) })
}

fn number_in_proc(dir: impl AsFd, name: &OsStr) -> Option<u64> {
    let opened = match name.is_empty() {
        true => dir.as_fd().try_clone_to_owned().ok()?,
        false => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?
        }
    };
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

impl Number {
    fn mask(self) -> StatxFlags {
        match self {
            Self::Unique(_) => MNT_ID_UNIQUE,
            Self::OfNow(_) => StatxFlags::MNT_ID,
        }
    }

    fn is_at(self, dir: impl AsFd, name: &OsStr) -> bool {
        number_at(dir, name, self.mask()) == Some(self)
    }
}

/// A mount and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    path: PathBuf,
    /// `None` where the system does not say.
    number: Option<Number>,
    /// What `/proc` says of it; `None` where that cannot be seen.
    entry: Option<Arc<MountEntry>>,
}

/// Why a mount was not unmounted.
#[derive(Debug, thiserror::Error)]
#[error("another mount lies over it by now, or it is gone")]
struct Gone;

impl Place {
    /// The mount of a connection that was just made at a path without symbolic links.
    pub(crate) fn of_new(path: PathBuf, connection: &OwnedFd) -> Self {
        let device = device_of(connection);
        let is_of_connection = |entry: &MountEntry| device.as_ref().is_none_or(|device| entry.device == *device);
        let entry = mount_at(&path).ok().flatten().filter(is_of_connection);
        if let Some(place) = entry.as_ref().and_then(Self::of_entry) {
            return place;
        }
        // Without /proc, nothing else is known of it.
        let number = number_at(CWD, path.as_os_str(), MNT_ID_UNIQUE).filter(|_| device.is_none());
        Self { path, number, entry: entry.map(Arc::new) }
    }

    /// A mount that `/proc` shows; `None` if it is not on top there.
    pub(crate) fn of_entry(entry: &MountEntry) -> Option<Self> {
        let number = number_of(entry);
        // If it is there now, the number is its own: it was there before.
        let is_there = mount_at(&entry.place).ok()?.as_ref() == Some(entry);
        is_there.then(|| Self { path: entry.place.clone(), number, entry: Some(Arc::new(entry.clone())) })
    }

    pub(crate) fn entry(&self) -> Option<&Arc<MountEntry>> {
        self.entry.as_ref()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the mount is on top there; `None` where the system does not say.
    pub(crate) fn is_there(&self) -> Option<bool> {
        if let Some(number) = self.number {
            return Some(number.is_at(CWD, self.path.as_os_str()));
        }
        let entry = self.entry.as_deref()?;
        mount_at(&self.path).ok().map(|found| found.as_ref() == Some(entry))
    }

    /// Unmounts it; with `detach`, also while programs use it.
    ///
    /// # Errors
    /// `NotFound` if it is not there; that of the kernel or of fusermount3.
    pub(crate) fn unmount(&self, detach: bool) -> io::Result<()> {
        let result = match self.number {
            Some(number) if detach => self.detach(number),
            Some(number) => self.unmount_below(number),
            None if self.is_there() == Some(false) => return Err(io::Error::new(io::ErrorKind::NotFound, Gone)),
            None => return unmount(&self.path, detach),
        };
        match result {
            // fusermount3 looks at the path itself, as the user.
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                unmount_by_helper(&self.path, detach)
            }
            other => other,
        }
    }

    fn unmount_below(&self, number: Number) -> io::Result<()> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, Gone);
        let (dir, name) = self.path.parent().zip(self.path.file_name()).ok_or_else(gone)?;
        let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        if !number.is_at(&dir, name) {
            return Err(gone());
        }
        Ok(rustix::mount::unmount(by_descriptor(&dir).join(name), UnmountFlags::NOFOLLOW)?)
    }

    fn detach(&self, number: Number) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.path, flags, Mode::empty())?;
        if !number.is_at(&root, OsStr::new("")) {
            return Err(io::Error::new(io::ErrorKind::NotFound, Gone));
        }
        Ok(rustix::mount::unmount(by_descriptor(&root), UnmountFlags::DETACH)?)
    }
}

/// The number of what is at the place of a mount that `/proc` shows, if it has that mount's number of now.
fn number_of(entry: &MountEntry) -> Option<Number> {
    let place = entry.place.as_os_str();
    let now = number_at(CWD, place, StatxFlags::MNT_ID).filter(|now| *now == Number::OfNow(entry.id))?;
    number_at(CWD, place, MNT_ID_UNIQUE).or(Some(now))
}

fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

/// The device number of the mount of a connection, as in `0:53`; `None` before Linux 6.17, and without `/proc`.
fn device_of(connection: &OwnedFd) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", connection.as_raw_fd())).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim();
    Some(format!("0:{}", number.parse::<u32>().ok()?))
}

/// What ends the connection of a mount, whatever has its number by then: the file belongs to the connection that had
/// the number when it was opened.
#[derive(Debug)]
pub(crate) struct Abort(File);

impl Abort {
    /// That of a mount that is there, by `fusectl` where it is mounted, as it usually is.
    pub(crate) fn of(place: &Place) -> Option<Self> {
        let minor = place.entry()?.device.strip_prefix("0:")?;
        let path: PathBuf = ["/sys/fs/fuse/connections", minor, "abort"].iter().collect();
        let file = File::options().write(true).open(path).ok()?;
        // While the mount is there, no other has its number.
        (place.is_there() == Some(true)).then_some(Self(file))
    }

    /// Ends the connection, if it is there. Its owner may do that.
    pub(crate) fn abort(&self) {
        if let Err(error) = (&self.0).write_all(b"1") {
            tracing::warn!(%error, "the connection to the kernel was not ended");
        }
    }
}

/// Unmounts what is mounted at a folder, whatever it is; with `detach`, also while programs use it. For a mount that is
/// known, [`unmount_entry`] unmounts that one alone.
///
/// # Errors
/// The error of the kernel or of fusermount3.
pub fn unmount(path: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => unmount_by_helper(path, detach),
        other => Ok(other?),
    }
}

/// Unmounts a mount, if it is still on top at its place.
///
/// # Errors
/// `NotFound` if it is not; the error of the kernel or of fusermount3.
pub fn unmount_entry(entry: &MountEntry) -> io::Result<()> {
    let place = Place::of_entry(entry).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, Gone))?;
    place.unmount(false)
}

/// Unmounts as an ordinary user.
fn unmount_by_helper(path: &Path, detach: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(path);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("fusermount3: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
