//! Why a device could not be opened, why it is lost, and what a server's errors are as errors of this system.

use crate::address::Address;
use crate::wire;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How many names of exports a message shows.
const SHOWN_NAMES: usize = 20;

/// Why an export could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {problem}")]
pub struct OpenError {
    address: Box<Address>,
    problem: Problem,
}

impl OpenError {
    pub(crate) fn new(address: &Address, problem: Problem) -> Self {
        Self { address: Box::new(address.clone()), problem }
    }

    /// What the problem is.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

/// What is wrong with a server or an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No connection to the server.
    #[error("the server cannot be reached: {0}")]
    Unreachable(io::Error),
    /// What answers does not speak NBD.
    #[error("what answers there is not an NBD server")]
    NotNbd,
    /// The handshake of servers before 2011, which cannot name an export.
    #[error("the server speaks the oldstyle handshake, which is not supported: start it without that (nbdkit: no -o)")]
    Oldstyle,
    /// A server without a part of the protocol that is needed.
    #[error("the server is too old: it does not offer {0}")]
    TooOld(&'static str),
    /// The server speaks TLS only.
    #[error("the server requires TLS: use nbds:// (nbds+unix:// for a Unix socket)")]
    TlsRequired,
    /// TLS was asked for, and the server does not have it.
    #[error("the server has no TLS, and nothing was sent to it without: {0}")]
    NoTls(String),
    /// Certificates for TLS are missing, or cannot be used.
    #[error("TLS: {0}")]
    Credentials(String),
    /// The server has no export of this name.
    #[error("the server has no export {name:?}{}", Known(known))]
    UnknownExport {
        /// The name that was asked for.
        name: String,
        /// The names that the server says it has; not all servers say so.
        known: Vec<String>,
    },
    /// The server refuses the export.
    #[error("the server refuses {what}: {why}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// The kind of the refusal, and the server's own words.
        why: String,
    },
    /// Writing was asked for, and the server does not allow it.
    #[error("the server offers this export read-only")]
    ReadOnly,
    /// Writing was asked for, and nothing could be made durable.
    #[error("the server has no flush, so nothing could be made durable: it can be read only")]
    NoFlush,
    /// Writing was asked for, in blocks larger than the largest sector of XFS.
    #[error("the server takes writes of {0} bytes at least, more than a sector of XFS can have: it can be read only")]
    MinimumBlock(u32),
    /// The server breaks the protocol.
    #[error("the server breaks the protocol: {0}")]
    Protocol(String),
    /// The server does not answer.
    #[error("no answer for {} seconds", .0.as_secs())]
    Silent(Duration),
    /// The connection ended in the handshake.
    #[error("the server closed the connection in the handshake: it may allow fewer clients at once")]
    Closed,
    /// Another error of the connection.
    #[error("{0}")]
    Io(io::Error),
}

/// The names of exports, in a message.
struct Known<'a>(&'a [String]);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, name) in self.0.iter().take(SHOWN_NAMES).enumerate() {
            write!(f, "{}{name:?}", if n == 0 { "; it has " } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN_NAMES) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// Why a connection is lost. All requests after it fail with it.
#[derive(Clone, Debug)]
pub struct Loss {
    kind: io::ErrorKind,
    text: Arc<str>,
}

impl Loss {
    pub fn protocol(what: &str) -> Self {
        Self { kind: io::ErrorKind::InvalidData, text: format!("the server breaks the protocol: {what}").into() }
    }

    pub fn closed() -> Self {
        Self { kind: io::ErrorKind::ConnectionAborted, text: "the server closed the connection".into() }
    }

    pub fn silent(silence: Duration) -> Self {
        let text = format!("the server has not answered for {} seconds", silence.as_secs_f32());
        Self { kind: io::ErrorKind::TimedOut, text: text.into() }
    }

    pub fn shutting_down() -> Self {
        let text = "the server stops, or another client has taken the image and this one is shut out (ESHUTDOWN)";
        Self { kind: io::ErrorKind::ConnectionAborted, text: text.into() }
    }

    pub fn of(error: &io::Error) -> Self {
        Self { kind: error.kind(), text: format!("the connection failed: {error}").into() }
    }

    /// As an error of a request on the device `name`.
    pub fn error(&self, name: &str) -> io::Error {
        let text = &self.text;
        io::Error::new(
            self.kind,
            format!("{name}: the connection is lost: {text}; what was not flushed is in doubt: open the image again"),
        )
    }
}

/// Why a request failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The server's answer.
    Server(ServerError),
    /// There is no answer, and there will be none.
    Lost(Loss),
}

/// An error that a server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    pub number: u32,
    /// The server's words, escaped; empty if it sent none.
    pub message: String,
}

impl ServerError {
    pub fn kind(&self) -> io::ErrorKind {
        match self.number {
            wire::EPERM => io::ErrorKind::PermissionDenied,
            wire::ENOMEM => io::ErrorKind::OutOfMemory,
            wire::EINVAL | wire::EOVERFLOW => io::ErrorKind::InvalidInput,
            wire::ENOSPC => io::ErrorKind::StorageFull,
            wire::ENOTSUP => io::ErrorKind::Unsupported,
            wire::ESHUTDOWN => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::Other,
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            wire::EPERM => f.write_str("not permitted (EPERM)"),
            wire::EIO => f.write_str("I/O error (EIO)"),
            wire::ENOMEM => f.write_str("the server is out of memory (ENOMEM)"),
            wire::EINVAL => f.write_str("invalid request (EINVAL)"),
            wire::ENOSPC => f.write_str("the server has no space left (ENOSPC)"),
            wire::EOVERFLOW => f.write_str("too large a request (EOVERFLOW)"),
            wire::ENOTSUP => f.write_str("not supported (ENOTSUP)"),
            wire::ESHUTDOWN => f.write_str("the server stops, or has shut this client out (ESHUTDOWN)"),
            number => write!(f, "error {number}"),
        }?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// A server's words, as they may be shown: no control characters.
pub fn escaped(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}
