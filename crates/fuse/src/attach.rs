//! Attaches a FUSE connection to a folder: by mount(2), or by fusermount3 for users who may not mount.
//!
//! Source of facts: fuse(4), mount.fuse3(8); fusermount3 sends the connection over the socket that `_FUSE_COMMFD`
//! names, and with `auto_unmount` stays until that socket is closed.

use crate::options::Options;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";

/// A mounted connection.
#[derive(Debug)]
pub struct Attached {
    /// The connection: `/dev/fuse`.
    pub connection: OwnedFd,
    /// With `auto_unmount`: the helper unmounts when this is closed.
    pub helper: Option<UnixStream>,
}

/// Mounts a FUSE filesystem at a folder: for a server of another filesystem than an image, which [`Session`] mounts.
///
/// # Errors
/// The error of the kernel or of fusermount3.
///
/// [`Session`]: crate::Session
pub fn attach(path: &Path, options: &Options) -> io::Result<Attached> {
    if options.auto_unmount {
        if !options.allow_other && !options.allow_root {
            let why = "auto_unmount needs allow_other or allow_root";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return attach_by_helper(path, options);
    }
    match attach_directly(path, options) {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => attach_by_helper(path, options),
        other => other,
    }
}

fn attach_directly(path: &Path, options: &Options) -> io::Result<Attached> {
    let connection = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let root_mode = std::fs::metadata(path)?.mode();
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode={root_mode:o},user_id={user},group_id={group},subtype=xfskit,default_permissions",
        connection.as_raw_fd()
    );
    if options.allow_other || options.allow_root {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    for option in &options.kernel {
        let (set, clear) = option.flags();
        flags = (flags - clear) | set;
    }
    rustix::mount::mount(&*options.source, path, "fuse", flags, &*data)?;
    Ok(Attached { connection, helper: None })
}

/// Escapes a value for a list of options, in which fusermount3 takes the character after a backslash literally.
fn escape(value: &OsStr) -> OsString {
    let mut escaped = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    OsString::from_vec(escaped)
}

fn helper_options(options: &Options) -> OsString {
    let mut list = OsString::from("subtype=xfskit,default_permissions,");
    list.push(if options.read_only { "ro" } else { "rw" });
    if options.allow_other || options.allow_root {
        list.push(",allow_other");
    }
    if options.auto_unmount {
        list.push(",auto_unmount");
    }
    for option in &options.kernel {
        list.push(",");
        list.push(option.name());
    }
    list.push(",fsname=");
    list.push(escape(&options.source));
    list
}

fn attach_by_helper(path: &Path, options: &Options) -> io::Result<Attached> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(helper_options(options)).arg("--").arg(path);
    // The helper gets the socket as its standard input, the one descriptor that other programs started meanwhile do not
    // inherit.
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn()?;
    // The command keeps a copy of the socket. While it is open, the other end of the socket is not seen to be closed.
    drop(command);
    let Some(connection) = receive(&ours)? else {
        let output = child.wait_with_output()?;
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    };
    if options.auto_unmount {
        return Ok(Attached { connection, helper: Some(ours) });
    }
    child.wait_with_output()?;
    Ok(Attached { connection, helper: None })
}

/// Receives a descriptor from a socket; `None` if the socket is closed without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.map(|_| ())?,
        }
    }
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_list_of_options() {
        let source = OsString::from(r"/a\,suid,b.img");
        let list = helper_options(&Options { source, ..Options::default() });
        assert_eq!(list, OsStr::new(r"subtype=xfskit,default_permissions,rw,fsname=/a\\\,suid\,b.img"));
    }
}
