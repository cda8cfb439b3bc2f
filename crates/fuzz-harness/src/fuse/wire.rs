//! The kernel's side of a FUSE connection: requests and answers over a pair of sockets.
//!
//! Source of facts: `include/uapi/linux/fuse.h`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::os::fd::OwnedFd;

pub const LOOKUP: u32 = 1;
pub const FORGET: u32 = 2;
pub const GETATTR: u32 = 3;
pub const SETATTR: u32 = 4;
pub const READLINK: u32 = 5;
pub const SYMLINK: u32 = 6;
pub const MKNOD: u32 = 8;
pub const MKDIR: u32 = 9;
pub const UNLINK: u32 = 10;
pub const RMDIR: u32 = 11;
pub const LINK: u32 = 13;
pub const OPEN: u32 = 14;
pub const READ: u32 = 15;
pub const WRITE: u32 = 16;
pub const STATFS: u32 = 17;
pub const RELEASE: u32 = 18;
pub const FSYNC: u32 = 20;
pub const SETXATTR: u32 = 21;
pub const GETXATTR: u32 = 22;
pub const LISTXATTR: u32 = 23;
pub const REMOVEXATTR: u32 = 24;
pub const FLUSH: u32 = 25;
pub const INIT: u32 = 26;
pub const OPENDIR: u32 = 27;
pub const READDIR: u32 = 28;
pub const RELEASEDIR: u32 = 29;
pub const FSYNCDIR: u32 = 30;
pub const CREATE: u32 = 35;
pub const DESTROY: u32 = 38;
pub const IOCTL: u32 = 39;
pub const NOTIFY_REPLY: u32 = 41;
pub const BATCH_FORGET: u32 = 42;
pub const FALLOCATE: u32 = 43;
pub const READDIRPLUS: u32 = 44;
pub const RENAME2: u32 = 45;
pub const LSEEK: u32 = 46;
pub const COPY_FILE_RANGE: u32 = 47;
pub const TMPFILE: u32 = 51;
pub const COPY_FILE_RANGE_64: u32 = 53;

const PROTOCOL: [u32; 2] = [7, 40];
/// Every feature of the protocol, except those in the second word of flags.
const ALL_FEATURES: u32 = !(1 << 30);
/// The feature by which opens need no request.
const NO_OPEN_SUPPORT: u32 = 1 << 17;
const HEADER_BYTES: u32 = 40;
const ANSWER_HEADER_BYTES: usize = 16;
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// A request that is not answered in this time fails the run.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// An errno.
pub type Errno = i32;
/// The answer to a request.
pub type Answer = Result<Vec<u8>, Errno>;

/// The bytes of a request after its header.
#[derive(Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn u32s(mut self, values: &[u32]) -> Self {
        values.iter().for_each(|value| self.0.extend_from_slice(&value.to_ne_bytes()));
        self
    }

    pub fn u64s(mut self, values: &[u64]) -> Self {
        values.iter().for_each(|value| self.0.extend_from_slice(&value.to_ne_bytes()));
        self
    }

    pub fn name(mut self, name: &[u8]) -> Self {
        self.0.extend_from_slice(name);
        self.0.push(0);
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A number of 32 bits in an answer; 0 beyond its end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |part| u32::from_ne_bytes([part[0], part[1], part[2], part[3]]))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// Whether a kernel can do without requests for opens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    Silent,
    Sent,
}

/// User and group of a request.
#[derive(Clone, Copy, Default)]
pub struct Asker {
    pub uid: u32,
    pub gid: u32,
}

/// The kernel's end of a connection.
pub struct Connection {
    socket: OwnedFd,
    unique: u64,
    buffer: Vec<u8>,
}

impl Connection {
    /// Makes a connection; the other end is the server's.
    pub fn new() -> (Self, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("two sockets");
        for socket in [&ours, &theirs] {
            sockopt::set_socket_send_buffer_size(socket, MAX_ANSWER_BYTES).expect("a buffer");
        }
        (Self { socket: ours, unique: 0, buffer: vec![0; MAX_ANSWER_BYTES] }, theirs)
    }

    /// Sends FUSE's first request.
    pub fn begin(&mut self, opens: Opens) {
        let features = if opens == Opens::Silent { ALL_FEATURES } else { ALL_FEATURES & !NO_OPEN_SUPPORT };
        self.send(INIT, 0, Asker::default(), &Body::default().u32s(&PROTOCOL).u32s(&[1 << 20, features]).0);
    }

    /// Waits for the answer to the last request.
    pub fn answer(&mut self, opcode: u32) -> Answer {
        loop {
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
            let ready = poll(&mut waiting, Some(&PATIENCE)).expect("a socket");
            assert!(ready > 0, "request {opcode} was not answered");
            let (count, _) = recv(&self.socket, &mut *self.buffer, RecvFlags::empty()).expect("an answer");
            assert!(count >= ANSWER_HEADER_BYTES, "the server has ended at request {opcode}");
            let answer = &self.buffer[..count];
            assert_eq!(u32_at(answer, 0) as usize, count, "the length of an answer to request {opcode}");
            // A message with another number is a notification.
            if u64_at(answer, 8) == self.unique {
                return match u32_at(answer, 4) as i32 {
                    0 => Ok(answer[ANSWER_HEADER_BYTES..].to_vec()),
                    error => Err(-error),
                };
            }
        }
    }

    /// Sends a request.
    pub fn send(&mut self, opcode: u32, node: u64, asker: Asker, body: &[u8]) {
        self.unique += 2;
        let Asker { uid, gid } = asker;
        let length = HEADER_BYTES + body.len() as u32;
        let header = Body::default().u32s(&[length, opcode]).u64s(&[self.unique, node]).u32s(&[uid, gid, 1, 0]);
        let request = header.bytes(body).0;
        let sent = send(&self.socket, &request, SendFlags::NOSIGNAL).expect("a server that reads");
        assert_eq!(sent, request.len());
    }

    /// Sends a request as root and waits for its answer.
    pub fn ask(&mut self, opcode: u32, node: u64, body: &Body) -> Answer {
        self.ask_as(opcode, node, Asker::default(), body)
    }

    /// Sends a request and waits for its answer.
    pub fn ask_as(&mut self, opcode: u32, node: u64, asker: Asker, body: &Body) -> Answer {
        self.send(opcode, node, asker, &body.0);
        self.answer(opcode)
    }
}
