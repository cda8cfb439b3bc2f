//! A socket, over TCP or of the Unix kind.
//!
//! Bytes are sent with `MSG_NOSIGNAL`: a server that has gone is an error, not a signal that ends the process.

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// One that is connected.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// After this time without a byte, a call that receives or sends returns `WouldBlock`.
    pub fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        let time = Some(time);
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time)),
            Self::Unix(stream) => stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time)),
        }
    }

    /// Sends a part of the slices.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    /// Receives what is there, at least a byte; 0 at the end.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// At least a millisecond: no time at all would mean for ever.
pub fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// Waits until something can be sent or received, at most until `deadline`.
pub fn prepare(socket: &Socket, deadline: Instant) -> io::Result<()> {
    if Instant::now() >= deadline {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_timeouts(left(deadline))
}

/// A socket with a time by which everything has to be done: for the handshake of TLS.
pub struct TimedSocket<'a> {
    pub socket: &'a Socket,
    pub deadline: Instant,
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        prepare(self.socket, self.deadline)?;
        self.socket.receive(buffer)
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        prepare(self.socket, self.deadline)?;
        self.socket.send(&[IoSlice::new(data)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
