//! Requests that wait keep no other waiting, and are in progress at the same time. The test is the kernel's side of a
//! pair of sockets.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use xfskit_fuse_session::abi::{RawAttr, RawFsyncIn, RawGetAttrIn, RawInHeader, RawInitIn, RawOutHeader, RawWriteIn};
use xfskit_fuse_session::request::{Operation, Request, Write};
use xfskit_fuse_session::{
    Access, Answer, Attr, Config, Counters, Errno, Features, Filesystem, Placement, ReplyLater, Requester, Session,
    Then, Version, WithOthers, opcode,
};
use zerocopy::{FromBytes, IntoBytes};

const WAITERS: usize = 20;
/// Nodes whose fsync is never answered.
const LOST: u64 = 20;
const LOST_BY_PANIC: u64 = 21;
const LOST_LATER: u64 = 22;

/// A filesystem whose fsync ends when as many are in progress as there are waiters, and the test has come too.
struct Slow {
    barrier: Arc<Barrier>,
}

impl Filesystem for Slow {
    fn init(&mut self, _: Features, _: Version) -> Features {
        Features::empty()
    }

    fn may_wait(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Fsync { .. })
    }

    fn getattr(&self, node: u64, _: bool) -> Answer<Attr> {
        assert!(node != 13, "a panic on purpose");
        Ok(Attr { valid: Duration::ZERO, attr: RawAttr { ino: node, ..RawAttr::default() } })
    }

    fn fsync(&self, _: u64, _: bool) -> Answer<()> {
        self.barrier.wait();
        Ok(())
    }

    fn fsync_with_others(&self, node: u64, _: bool, reply: ReplyLater) -> WithOthers {
        match node {
            LOST => WithOthers::Later(None),
            LOST_BY_PANIC => panic!("another panic on purpose"),
            LOST_LATER => WithOthers::Later(Some(Box::new(move || {
                let _reply = reply;
                panic!("a panic on purpose, of work");
            }))),
            _ => WithOthers::Alone(reply),
        }
    }

    /// As a write to cached contents: its reply waits for other work.
    fn write(&self, _: &Requester, _: u64, write: &Write<'_>) -> Answer<u32> {
        Ok(write.data.len() as u32)
    }

    fn after_write(&self, _: u64, _: &Write<'_>, _: Answer<u32>) -> Then {
        let barrier = Arc::clone(&self.barrier);
        Then::BeforeReply(Box::new(move || {
            barrier.wait();
        }))
    }
}

/// The kernel's end of a connection.
struct Kernel(OwnedFd);

impl Kernel {
    fn send(&self, code: u32, unique: u64, node: u64, body: &[&[u8]]) {
        let body = body.concat();
        let len = (size_of::<RawInHeader>() + body.len()) as u32;
        let header = RawInHeader { len, opcode: code, unique, node, ..RawInHeader::default() };
        let message = [header.as_bytes(), &body].concat();
        assert_eq!(send(&self.0, &message, SendFlags::empty()).unwrap(), message.len());
    }

    /// The number and the error of the next reply.
    fn reply(&self) -> (u64, i32) {
        let mut buffer = vec![0; 4096];
        let (count, _) = recv(&self.0, &mut *buffer, RecvFlags::empty()).unwrap();
        let (header, _) = RawOutHeader::read_from_prefix(&buffer[..count]).unwrap();
        assert_eq!(header.len as usize, count);
        (header.unique, header.error)
    }
}

struct Running {
    kernel: Kernel,
    counters: Arc<Counters>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
}

fn start(barrier: &Arc<Barrier>) -> Running {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let kernel = Kernel(ours);
    let init = RawInitIn { major: 7, minor: 40, max_readahead: 1 << 17, flags: 0 };
    kernel.send(opcode::INIT, 2, 0, &[init.as_bytes()]);
    let config = Config { threads: 1, max_write: 1 << 20, access: Access::All, placement: Placement::Scheduler };
    let session = Session::begin(Slow { barrier: Arc::clone(barrier) }, theirs, config).unwrap();
    assert_eq!(kernel.reply(), (2, 0));
    Running { kernel, counters: session.counters(), thread: std::thread::spawn(|| session.run()) }
}

fn getattr(kernel: &Kernel, unique: u64, node: u64) {
    kernel.send(opcode::GETATTR, unique, node, &[RawGetAttrIn::default().as_bytes()]);
}

#[test]
fn requests_that_wait_are_in_progress_together_and_keep_no_other_waiting() {
    let barrier = Arc::new(Barrier::new(WAITERS + 1));
    let Running { kernel, counters, thread } = start(&barrier);
    for number in 0..WAITERS as u64 - 1 {
        kernel.send(opcode::FSYNC, 100 + number, 5, &[RawFsyncIn::default().as_bytes()]);
    }
    let write = RawWriteIn { size: 3, ..RawWriteIn::default() };
    kernel.send(opcode::WRITE, 200, 5, &[write.as_bytes(), b"abc"]);
    // One thread answers, and nineteen flushes and a write wait.
    for unique in 10..20 {
        getattr(&kernel, unique, 7);
        assert_eq!(kernel.reply(), (unique, 0));
    }
    barrier.wait();
    let mut replies: Vec<_> = (0..WAITERS).map(|_| kernel.reply()).collect();
    replies.sort_unstable();
    let expected: Vec<_> = (0..WAITERS as u64 - 1).map(|number| (100 + number, 0)).chain([(200, 0)]).collect();
    assert_eq!(replies, expected);
    assert_eq!((counters.of(opcode::FSYNC), counters.waited()), (WAITERS as u64 - 1, WAITERS as u64 - 1));
    kernel.send(opcode::DESTROY, 400, 0, &[]);
    assert_eq!(kernel.reply(), (400, 0));
    thread.join().unwrap().unwrap();
}

#[test]
fn a_panic_is_an_error_of_its_request_and_of_the_session() {
    let Running { kernel, thread, .. } = start(&Arc::new(Barrier::new(1)));
    getattr(&kernel, 10, 13);
    assert_eq!(kernel.reply(), (10, -Errno::IO.raw_os_error()));
    getattr(&kernel, 12, 7);
    assert_eq!(kernel.reply(), (12, 0));
    kernel.send(opcode::DESTROY, 14, 0, &[]);
    assert_eq!(kernel.reply(), (14, 0));
    assert!(thread.join().unwrap().is_err());
}

#[test]
fn an_fsync_whose_reply_is_lost_is_an_error() {
    let Running { kernel, thread, .. } = start(&Arc::new(Barrier::new(1)));
    for (unique, node) in [(10, LOST), (12, LOST_BY_PANIC), (14, LOST_LATER)] {
        kernel.send(opcode::FSYNC, unique, node, &[RawFsyncIn::default().as_bytes()]);
        assert_eq!(kernel.reply(), (unique, -Errno::IO.raw_os_error()));
    }
    kernel.send(opcode::DESTROY, 16, 0, &[]);
    assert_eq!(kernel.reply(), (16, 0));
    assert!(thread.join().unwrap().is_err());
}

#[test]
fn a_connection_that_ends_without_the_last_request_is_an_error() {
    let Running { kernel, thread, .. } = start(&Arc::new(Barrier::new(1)));
    drop(kernel);
    assert_eq!(thread.join().unwrap().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}
