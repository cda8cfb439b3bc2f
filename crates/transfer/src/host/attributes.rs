//! Extended attributes of the host's files.

use crate::error::{LeftOut, Losses, Result, TransferError, host, shown};
use crate::event::{is_not_the_files, is_portable};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Linux's limit for a list of names, and for a value, in bytes.
const MAX_BYTES: usize = 65536;
/// Enough for nearly all attributes. The kernel allocates the size of the buffer, so a larger one would cost time.
const FIRST_BYTES: usize = 2048;

/// The way to an open file's attributes.
#[derive(Clone, Copy)]
pub(super) enum Handle<'a> {
    /// The descriptor itself.
    Open(BorrowedFd<'a>),
    /// The descriptor was opened with `O_PATH`: its attributes are reached only through its name under `/proc`.
    PathDescriptor(BorrowedFd<'a>),
}

impl Handle<'_> {
    fn list(self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, buffer),
            Self::PathDescriptor(fd) => rustix::fs::listxattr(place(fd), buffer),
        }
    }

    fn get(self, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, buffer),
            Self::PathDescriptor(fd) => rustix::fs::getxattr(place(fd), name, buffer),
        }
    }

    fn set(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::PathDescriptor(fd) => rustix::fs::setxattr(place(fd), name, value, XattrFlags::empty()),
        }
    }
}

const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Whether new files in a folder inherit ACLs.
pub(super) fn has_default_acl(folder: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr(folder, DEFAULT_ACL, &mut [0; 0][..]).is_ok()
}

/// Removes the ACLs that a new file has inherited from its folder, so that it has only those of its source.
pub(super) fn drop_inherited(handle: Handle<'_>, inherits: bool, is_folder: bool) {
    if !inherits {
        return;
    }
    let names: &[&str] = if is_folder { &[ACCESS_ACL, DEFAULT_ACL] } else { &[ACCESS_ACL] };
    for name in names {
        // The ACL may not exist. If one cannot be removed, a comparison of the copy shows it.
        let _ = match handle {
            Handle::Open(fd) => rustix::fs::fremovexattr(fd, *name),
            Handle::PathDescriptor(fd) => rustix::fs::removexattr(place(fd), *name),
        };
    }
}

/// A path under which a descriptor opened with `O_PATH` can be reached.
pub(super) fn place(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Reads attributes; reuses its buffers from file to file.
pub(super) struct AttributeReader {
    names: Vec<u8>,
    value: Vec<u8>,
}

impl AttributeReader {
    pub(super) fn new() -> Self {
        Self { names: vec![0; FIRST_BYTES], value: vec![0; FIRST_BYTES] }
    }

    /// All attributes that other sides know, sorted. The others are counted as left out.
    pub(super) fn read(
        &mut self,
        handle: Handle<'_>,
        path: &[u8],
        left_out: &mut LeftOut,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let length = match enlarging(&mut self.names, |buffer| handle.list(buffer)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
            other => other.map_err(host(path, "listing its attributes"))?,
        };
        let mut found = Vec::new();
        for name in self.names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            if is_not_the_files(name) {
                continue;
            }
            if !is_portable(name) {
                left_out.note(path);
                continue;
            }
            match enlarging(&mut self.value, |buffer| handle.get(name, buffer)) {
                Ok(length) => found.push((name.to_vec(), self.value[..length].to_vec())),
                Err(Errno::NODATA) => return Err(TransferError::Changed(shown(path))),
                Err(Errno::PERM | Errno::ACCESS) => left_out.note(path),
                Err(error) => return Err(host(path, "reading an attribute")(error)),
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Fills a buffer. If it is too small, enlarges it and tries again.
fn enlarging(buffer: &mut Vec<u8>, fill: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
    match fill(buffer) {
        Err(Errno::RANGE) if buffer.len() < MAX_BYTES => {
            buffer.resize(MAX_BYTES, 0);
            fill(buffer)
        }
        result => result,
    }
}

/// Whether only root can set an attribute.
fn is_for_root(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

/// Sets attributes. Those that the host refuses are counted as lost.
pub(super) fn set_all(
    handle: Handle<'_>,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    path: &[u8],
    losses: &mut Losses,
) -> Result<()> {
    for (name, value) in xattrs {
        let Err(errno) = handle.set(name, value) else { continue };
        let left_out = match errno {
            Errno::PERM | Errno::ACCESS if is_for_root(name) => &mut losses.roots_attributes,
            // The value is larger than the filesystem allows (ext4 reports that there is no space), or it is not valid
            // there: it has names of users that the host does not know, or a label of another policy. On a full disk,
            // writing the contents fails.
            Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS => &mut losses.attributes,
            Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::INVAL => &mut losses.attributes,
            error => return Err(host(path, "setting an attribute")(error)),
        };
        left_out.note_attribute(path, name, errno);
    }
    Ok(())
}
