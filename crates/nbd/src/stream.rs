//! A socket, over TCP or of the Unix kind, with TLS over it or without.
//!
//! Bytes are sent with `MSG_NOSIGNAL`: a server that has gone is an error, not a signal that ends the process.

use crate::address::Server;
use crate::tls::Session;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What bytes of the protocol are sent over. One thread at a time may send, and one receive.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    tls: Option<Session>,
}

#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects, before `deadline`.
    pub fn connect(server: &Server, deadline: Instant) -> io::Result<Self> {
        let socket = match server {
            Server::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port, deadline)?),
            Server::Unix(path) => Socket::Unix(connect_unix(&SocketAddrUnix::new(path)?, deadline)?),
            Server::Abstract(name) => Socket::Unix(connect_unix(&SocketAddrUnix::new_abstract_name(name)?, deadline)?),
        };
        Ok(Self { socket, tls: None })
    }

    /// A socket that is connected.
    pub fn over(socket: UnixStream) -> Self {
        Self { socket: Socket::Unix(socket), tls: None }
    }

    /// Puts TLS over the socket. Nothing that was received before may wait for its reader.
    pub fn secure(&mut self, start: impl FnOnce(&Socket) -> io::Result<Session>) -> io::Result<()> {
        self.tls = Some(start(&self.socket)?);
        Ok(())
    }

    /// After this time without a byte, a call that receives or sends returns `WouldBlock`.
    pub fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        self.socket.set_timeouts(time)
    }

    /// Ends every call that receives or sends, now and later.
    pub fn shut_down(&self) {
        // An error says that the connection is gone already.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Takes a part of the slices: none while bytes of an earlier call are on their way. What was taken is sent when
    /// [`Self::send_rest`] returns 0.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.send(slices),
            Some(session) => session.send(&self.socket, slices),
        }
    }

    /// Sends a part of what was taken and not sent; 0 when that is nothing.
    pub fn send_rest(&self) -> io::Result<usize> {
        match &self.tls {
            None => Ok(0),
            Some(session) => session.send_rest(&self.socket),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.receive(buffer),
            Some(session) => session.receive(&self.socket, buffer),
        }
    }
}

impl Socket {
    /// As [`Stream::set_timeouts`].
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

/// Waits until something can be sent or received, at most until `deadline`.
fn prepare(socket: &Socket, deadline: Instant) -> io::Result<()> {
    if Instant::now() >= deadline {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_timeouts(left(deadline))
}

/// A stream with a time by which everything has to be done: for the handshake of NBD.
pub struct Timed<'a> {
    pub stream: &'a Stream,
    pub deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        prepare(&self.stream.socket, self.deadline)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        prepare(&self.stream.socket, self.deadline)?;
        let taken = self.stream.send(&[IoSlice::new(data)])?;
        while self.stream.send_rest()? > 0 {
            prepare(&self.stream.socket, self.deadline)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The same for a socket: for the handshake of TLS.
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
