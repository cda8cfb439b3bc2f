//! A connection: a socket, with TLS over it or without.

use crate::address::Server;
use crate::socket::{Socket, left, prepare};
use crate::tls::Session;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What bytes of the protocol are sent over. One thread at a time may send, and one receive.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    tls: Option<Session>,
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
