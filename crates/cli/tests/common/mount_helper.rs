//! A double of libfuse's `fuservicemount3`, written from the description of its protocol: it talks to a server in a
//! service, opens what that asks for, and mounts. A test may make it break the protocol.
#![allow(dead_code)] // Each test uses a part.

use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    sendmsg, socketpair,
};
use std::ffi::CString;
use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the double does otherwise than fuservicemount3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It speaks other versions of the protocol.
    OtherVersion,
    /// It sends the arguments without their descriptor.
    NoDescriptor,
    /// It answers a question for a file with another one.
    OtherFile,
    /// It may not mount.
    MayNotMount,
    /// It ends when it is asked for a file.
    Ends,
}

/// A helper that is connected to a server.
pub struct MountHelper {
    socket: OwnedFd,
    connection: OwnedFd,
    mount_point: PathBuf,
    fault: Fault,
    /// What it was asked to open.
    pub opened: Vec<PathBuf>,
}

impl MountHelper {
    /// The helper, and the end of its socket for the server.
    pub fn new(mount_point: &Path, fault: Fault) -> (Self, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let connection = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        (Self { socket: ours, connection, mount_point: mount_point.into(), fault, opened: Vec::new() }, theirs)
    }

    /// Does what the server asks for until it takes its leave; its exit code, or none if it has just ended.
    pub fn run(&mut self, arguments: &[&str]) -> Option<u32> {
        let version: u16 = if self.fault == Fault::OtherVersion { 7 } else { 1 };
        let version = version.to_be_bytes();
        self.send(&[b"SAFT", &version[..], &version, &3u32.to_be_bytes()].concat(), None);
        let reply = self.receive()?;
        assert_eq!(reply, b"LAST\0\x01\0\0");
        let argv = arguments_file(arguments);
        let fd = argv.as_fd();
        self.send(b"FILE\0\0\0\0argv\0", (self.fault != Fault::NoDescriptor).then_some(fd));
        self.send(b"FILE\0\0\0\0fusedev\0", Some(self.connection.as_fd()));
        let (mut source, mut options, mut is_typed) = (None, String::new(), false);
        loop {
            let packet = self.receive()?;
            let (kind, body) = packet.split_at(4);
            let text = |from: usize| String::from_utf8(body[from..].strip_suffix(b"\0").unwrap().to_vec()).unwrap();
            match kind {
                b"OPEN" if self.fault == Fault::Ends => return None,
                b"OPEN" => self.open(word(body), Path::new(&text(16))),
                b"TYPE" => {
                    assert_eq!((body, std::mem::replace(&mut is_typed, true)), (&[0; 4][..], false));
                    self.done(0);
                }
                b"NAME" => {
                    source = Some(text(0));
                    self.done(0);
                }
                b"MNTP" => {
                    assert_eq!(body[..4], [0x40, 0, 0, 0]);
                    assert!(arguments.contains(&&*text(4)) && Path::new(&text(4)) == self.mount_point);
                    self.done(0);
                }
                b"OPTS" => {
                    options = text(0);
                    self.done(0);
                }
                b"DOIT" if self.fault == Fault::MayNotMount => self.done(1),
                b"DOIT" => {
                    assert!(is_typed);
                    self.mount(source.as_deref().expect("a source"), &options, word(body));
                    self.done(0);
                }
                b"BYEE" => return Some(word(body)),
                other => panic!("a packet {other:?}"),
            }
        }
    }

    fn open(&mut self, flags: u32, path: &Path) {
        self.opened.push(path.into());
        let opened = rustix::fs::open(path, OFlags::from_bits_retain(flags) | OFlags::CLOEXEC, Mode::empty());
        let error = opened.as_ref().map_or_else(|errno| errno.raw_os_error(), |_| 0);
        let name = if self.fault == Fault::OtherFile { Path::new("/other") } else { path };
        let reply = [b"FILE", &error.to_be_bytes()[..], name.as_os_str().as_bytes(), b"\0"].concat();
        self.send(&reply, opened.as_ref().ok().map(AsFd::as_fd));
    }

    fn mount(&self, source: &str, options: &str, flags: u32) {
        let connection = self.connection.as_raw_fd();
        let data = format!("fd={connection},rootmode=40000,user_id=0,group_id=0,subtype=xfskit,{options}");
        let (data, flags) = (CString::new(data).unwrap(), MountFlags::from_bits_retain(flags));
        rustix::mount::mount(source, &self.mount_point, "fuse", flags, &*data).unwrap();
    }

    fn done(&self, error: u32) {
        self.send(&[b"REPL", &error.to_be_bytes()[..]].concat(), None);
    }

    fn send(&self, packet: &[u8], fd: Option<BorrowedFd<'_>>) {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut aside = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.into_iter().collect();
        if !fds.is_empty() {
            assert!(aside.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        // The server may have ended; then the next receive says so.
        let _ = sendmsg(&self.socket, &[IoSlice::new(packet)], &mut aside, SendFlags::NOSIGNAL);
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 64 << 10];
        let length = recv(&self.socket, &mut packet[..], RecvFlags::empty()).map_or(0, |(length, _)| length);
        packet.truncate(length);
        (length > 0).then_some(packet)
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// A file with arguments: their count, their places, and then their texts.
fn arguments_file(arguments: &[&str]) -> File {
    let count = u32::try_from(arguments.len()).unwrap();
    let (mut places, mut texts) = (Vec::new(), Vec::new());
    for argument in arguments {
        let offset = 8 + 8 * count + u32::try_from(texts.len()).unwrap();
        places.extend([offset.to_be_bytes(), (argument.len() as u32 + 1).to_be_bytes()].concat());
        texts.extend([argument.as_bytes(), b"\0"].concat());
    }
    let mut file: File = rustix::fs::memfd_create("arguments", MemfdFlags::CLOEXEC).unwrap().into();
    file.write_all(&[b"ARGS", &count.to_be_bytes()[..], &places, &texts].concat()).unwrap();
    file
}
