//! The connection to the kernel: `/dev/fuse`, or a socket that keeps message boundaries.
//!
//! A reply goes back by the descriptor by which its request came: each descriptor of a connection has a list of its own
//! of the requests that it has handed out.
//!
//! Source of facts: fuse(4); `fuse_dev_do_read` and `fuse_dev_do_write` in `fs/fuse/dev.c`, Linux 6.18.

use crate::abi::RawOutHeader;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// What a read of the connection gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of that many bytes.
    Request(usize),
    /// None is there, and the descriptor does not wait.
    Nothing,
    /// The kernel has ended the connection.
    End,
    /// The other side of a socket has closed it.
    Closed,
}

/// What a read does when there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenEmpty {
    Waits,
    Returns,
}

/// One descriptor of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Channel(Arc<OwnedFd>);

impl Channel {
    pub(crate) fn new(connection: OwnedFd) -> Self {
        Self(Arc::new(connection))
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Another descriptor of the connection, with a list of requests of its own: `device`, which is `/dev/fuse` just
    /// opened, or one that is opened here.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn another(&self, device: Option<OwnedFd>, empty: WhenEmpty) -> io::Result<Self> {
        let fd = match device {
            Some(device) => device,
            None => rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?,
        };
        if empty == WhenEmpty::Returns {
            rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        }
        join(&fd, &self.0)?;
        Ok(Self::new(fd))
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The system's, but those that are no error.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            return match rustix::io::read(&*self.0, &mut *buffer) {
                Ok(0) => Ok(Received::Closed),
                Ok(count) => Ok(Received::Request(count)),
                // ENOENT: the request was aborted while it was read.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::End),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Whether a request is there, or comes within a time; so it is when the connection has ended.
    pub(crate) fn has_request(&self, within: Duration) -> bool {
        let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        self.poll(Some(&timeout))
    }

    /// Waits until a request is there, or the connection has ended, or a signal comes.
    pub(crate) fn await_request(&self) {
        self.poll(None);
    }

    fn poll(&self, timeout: Option<&Timespec>) -> bool {
        let mut polled = [PollFd::new(&*self.0, PollFlags::IN)];
        // Interrupted, it is none of both; the caller asks again.
        !matches!(rustix::event::poll(&mut polled, timeout), Ok(0) | Err(_))
    }

    /// Sends a message: a reply, or a notice with unique number 0.
    ///
    /// # Errors
    /// The system's. A reply to a request that no longer waits is no error.
    pub(crate) fn send(&self, unique: u64, error: i32, contents: &[&[u8]]) -> io::Result<()> {
        let length: usize = contents.iter().map(|part| part.len()).sum();
        let header = RawOutHeader { len: (size_of::<RawOutHeader>() + length) as u32, error, unique };
        let mut parts = [IoSlice::new(&[]); 4];
        parts[0] = IoSlice::new(header.as_bytes());
        for (to, from) in parts[1..].iter_mut().zip(contents) {
            *to = IoSlice::new(from);
        }
        match rustix::io::writev(&*self.0, &parts[..=contents.len()]) {
            Ok(_) => Ok(()),
            // ENOENT: the request was interrupted or aborted, or the kernel does not know the inode of a notice.
            // ENODEV: the mount is gone.
            Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers a request. A reply that the kernel refuses is logged, and its request answered with EIO.
    pub(crate) fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) {
        let sent = match answer {
            Ok(contents) => self.send(unique, 0, &[contents]),
            Err(error) => self.send(unique, -error.raw_os_error(), &[]),
        };
        let Err(error) = sent else { return };
        tracing::error!(%error, "the kernel refused a reply");
        if let Err(error) = self.send(unique, -Errno::IO.raw_os_error(), &[]) {
            tracing::error!(%error, "a request stays unanswered");
        }
    }
}

/// Makes `fd`, which is `/dev/fuse` just opened, another descriptor of the connection of `connection`.
#[allow(unsafe_code)]
fn join(fd: &OwnedFd, connection: &OwnedFd) -> io::Result<()> {
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let number = connection.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads 32 bits, a descriptor of this process, from the place that it is given.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Setter::<CLONE, u32>::new(number))? };
    Ok(())
}
