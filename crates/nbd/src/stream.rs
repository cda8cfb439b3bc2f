//! A socket, over TCP or of the Unix kind.
//!
//! Bytes are sent with `MSG_NOSIGNAL`: a server that has gone is an error, not a signal that ends the process.

use crate::address::Server;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects, before `deadline`.
    pub fn connect(server: &Server, deadline: Instant) -> io::Result<Self> {
        match server {
            Server::Tcp { host, port } => connect_tcp(host, *port, deadline).map(Self::Tcp),
            Server::Unix(path) => connect_unix(&SocketAddrUnix::new(path)?, deadline).map(Self::Unix),
            Server::Abstract(name) => connect_unix(&SocketAddrUnix::new_abstract_name(name)?, deadline).map(Self::Unix),
        }
    }

    /// After this time without a byte, a call that receives or sends returns `WouldBlock`.
    pub fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        let time = Some(time);
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time)),
            Self::Unix(stream) => stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time)),
        }
    }

    /// Ends every call that receives or sends, now and later.
    pub fn shut_down(&self) {
        // An error says that the connection is gone already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Sends a part of the slices.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Without a time the call would wait for as long as the server's queue is full.
fn connect_unix(address: &SocketAddrUnix, deadline: Instant) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)))?;
    rustix::net::connect(&socket, address)?;
    Ok(UnixStream::from(socket))
}

/// At least a millisecond: no time at all would mean for ever.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// A stream with a time by which everything has to be done: for the handshake.
pub struct Timed<'a> {
    pub stream: &'a Stream,
    pub deadline: Instant,
}

impl Timed<'_> {
    fn prepare(&self) -> io::Result<()> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeouts(left(self.deadline))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.prepare()?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.prepare()?;
        self.stream.send(&[IoSlice::new(data)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
