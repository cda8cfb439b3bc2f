//! The program that mounts for a server in a service: what it is asked, and what it answers. It runs with the rights of
//! the user who mounts; this process trusts its descriptors as far as it trusts that user.

use super::packet::{
    self, BYE, DONE, FILE, HELLO, HELLO_REPLY, Kind, MAY_ALLOW_OTHER, MOUNT, MOUNT_POINT, OPEN, OPTIONS, QUIET, SOURCE,
    TYPE, VERSION, decode, encode, halves, word, wrong,
};
use rustix::cmsg_space;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType, recv, recvmsg, send};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The names of the two files that the helper sends unasked.
const ARGUMENTS_FILE: &str = "argv";
const CONNECTION_FILE: &str = "fusedev";
/// Room for a packet from the helper, the longest of which has a path.
const PACKET_BYTES: usize = 8 << 10;

/// The connection to the program that mounts.
pub(super) struct Helper {
    socket: OwnedFd,
    /// The user may let all users in.
    may_allow_other: bool,
}

/// What the helper sends at first.
pub(super) struct Request {
    /// Its arguments: the type of filesystem, the image, the folder, options.
    pub arguments: Vec<OsString>,
    /// `/dev/fuse`, which will be the connection to the kernel.
    pub connection: OwnedFd,
}

/// What is to be mounted.
pub(super) struct MountRequest<'a> {
    /// The image, as `/proc/mounts` is to show it.
    pub source: &'a Path,
    /// The folder, as it stands in the arguments.
    pub mount_point: &'a Path,
    /// Options of FUSE.
    pub options: &'a str,
    /// Flags of mount(2).
    pub flags: MountFlags,
}

impl Helper {
    /// Takes the socket that is standard input, and receives what the helper sends at first.
    ///
    /// # Errors
    /// `InvalidInput` if standard input is no such socket; `Unsupported` for a helper of other versions; `InvalidData`
    /// for a helper that breaks the protocol; the system's.
    pub(super) fn accept() -> io::Result<(Self, Request)> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        if socket_type(&socket).ok() != Some(SocketType::SEQPACKET) {
            let why = "standard input is no socket of fuservicemount3: xfskit.socket starts this command";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut helper = Self { socket, may_allow_other: false };
        let hello = helper.receive()?;
        let ([versions, may], _) = decode::<2>(&hello, HELLO)?;
        let (oldest, newest) = halves(versions);
        if !(oldest..=newest).contains(&VERSION) {
            let why = format!("it speaks versions {oldest} to {newest} of its protocol, and xfskit speaks {VERSION}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        helper.may_allow_other = may & MAY_ALLOW_OTHER != 0;
        helper.send(&encode(HELLO_REPLY, &[word(VERSION, 0)], None))?;
        let arguments = helper.receive_file(ARGUMENTS_FILE.as_ref())?;
        let connection = helper.receive_file(CONNECTION_FILE.as_ref())?.into();
        let arguments = packet::read_arguments(|bytes, offset| arguments.read_exact_at(bytes, offset))?;
        Ok((helper, Request { arguments, connection }))
    }

    /// Opens a file as the user who mounts.
    ///
    /// # Errors
    /// That of open(2); `InvalidData`; the system's.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        self.open_with(path, flags, 0)
    }

    /// Whether there is a file of that name.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.open_with(path, OFlags::PATH, QUIET).is_ok()
    }

    fn open_with(&self, path: &Path, flags: OFlags, request: u32) -> io::Result<File> {
        self.send(&encode(OPEN, &[flags.bits(), 0, request, 0], Some(path.as_os_str().as_bytes())))?;
        self.receive_file(path)
    }

    /// Mounts.
    ///
    /// # Errors
    /// `PermissionDenied` for what this user may not ask for; the helper's; `InvalidData`; the system's.
    pub(super) fn mount(&self, request: &MountRequest<'_>) -> io::Result<()> {
        if request.options.split(',').any(|option| option == "allow_other") && !self.may_allow_other {
            let why = "-o allow_other: only root may, unless user_allow_other is set in /etc/fuse.conf";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let text = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let folder = word(FileType::Directory.as_raw_mode() as u16, 0);
        self.ask(TYPE, &[0], None)?;
        self.ask(SOURCE, &[], Some(&text(request.source)))?;
        self.ask(MOUNT_POINT, &[folder], Some(&text(request.mount_point)))?;
        self.ask(OPTIONS, &[], Some(request.options.as_bytes()))?;
        self.ask(MOUNT, &[request.flags.bits()], None)
    }

    /// Says that this process needs the helper no more, and with which code it is to exit.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn bye(&self, code: u8) -> io::Result<()> {
        self.send(&encode(BYE, &[code.into()], None))
    }

    fn ask(&self, kind: Kind, words: &[u32], text: Option<&[u8]>) -> io::Result<()> {
        self.send(&encode(kind, words, text))?;
        // Without room for descriptors: the kernel closes those that come aside.
        let mut bytes = [0; PACKET_BYTES];
        let length = loop {
            match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok((length, _)) => break length,
            }
        };
        verify_not_gone(length)?;
        let ([error], _) = decode::<1>(&bytes[..length], DONE)?;
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error.cast_signed())) }
    }

    fn send(&self, packet: &[u8]) -> io::Result<()> {
        loop {
            match send(&self.socket, packet, SendFlags::NOSIGNAL | SendFlags::EOR) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        Ok(self.receive_with_file()?.0)
    }

    /// Receives a packet, and the descriptor aside if there is one.
    fn receive_with_file(&self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut aside = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; PACKET_BYTES];
        let received = loop {
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut aside, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        verify_not_gone(received.bytes)?;
        bytes.truncate(received.bytes);
        let files = aside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        Ok((bytes, files.flatten().next()))
    }

    fn receive_file(&self, path: &Path) -> io::Result<File> {
        let (bytes, file) = self.receive_with_file()?;
        let ([error], name) = decode::<1>(&bytes, FILE)?;
        if name.strip_suffix(b"\0") != Some(path.as_os_str().as_bytes()) {
            return Err(wrong("another file came than the one that was asked for"));
        }
        match (error, file) {
            (0, Some(file)) => Ok(file.into()),
            (0, None) => Err(wrong("no descriptor came with a file")),
            (error, _) => Err(io::Error::from_raw_os_error(error.cast_signed())),
        }
    }
}

fn verify_not_gone(bytes: usize) -> io::Result<()> {
    if bytes == 0 { Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended")) } else { Ok(()) }
}
