//! Sends errors of a server in the background to the system's log, since it has no terminal.
//!
//! A message goes to the socket of syslogd or journald, or else into the kernel's log. After a few messages in a row,
//! further ones are dropped for a while: a filesystem that was shut down fails every request.

use super::connection::Connection;
use crate::output::screen;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Write, stderr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

const SOCKET: &str = "/dev/log";
const KERNEL_LOG: &str = "/dev/kmsg";
/// Facility "daemon", severity "error".
const PRIORITY: u8 = 3 << 3 | 3;
/// Most messages in a row, and the time after which one more is sent.
const BURST: u32 = 10;
const ONE_MORE: Duration = Duration::from_secs(30);

/// Writes all messages to standard error, and errors to the system's log by the parent of the mount.
pub struct SystemLog {
    parent: Connection,
    budget: Mutex<Budget>,
}

/// How many messages may still be sent. The server of a mount has one, so that it does not wait for a parent that waits
/// for it; and the parent one of its own, for the server may be an attacker's.
#[derive(Debug)]
pub struct Budget {
    left: u32,
    since: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: BURST, since: Instant::now() }
    }
}

impl Budget {
    /// Takes one message from it, if there is one left.
    pub fn may_spend(&mut self) -> bool {
        let earned = (self.since.elapsed().as_secs() / ONE_MORE.as_secs()).min(u64::from(BURST)) as u32;
        if earned > 0 {
            (self.left, self.since) = ((self.left + earned).min(BURST), Instant::now());
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// One message.
pub struct Message<'a> {
    log: &'a SystemLog,
    is_error: bool,
    text: Vec<u8>,
}

impl SystemLog {
    /// A log of a server.
    pub fn new(parent: Connection) -> Self {
        Self { parent, budget: Mutex::default() }
    }

    fn send(&self, text: &str) {
        if self.budget.lock().is_ok_and(|mut budget| budget.may_spend()) {
            self.parent.log(text);
        }
    }
}

/// Sends a message about an image to the system's log, if there is one.
pub fn send(image: &str, text: &str) {
    let message = format!("<{PRIORITY}>xfskit[{}]: {image}: {text}", std::process::id());
    let message = screen::log_line(message.as_bytes());
    let to_daemon = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(&message, SOCKET)
    });
    if to_daemon.is_err() {
        let flags = OFlags::NONBLOCK.bits() as i32;
        // An ordinary user must not write there, which is ignored.
        let log = OpenOptions::new().write(true).custom_flags(flags).open(KERNEL_LOG);
        let _ = log.and_then(|mut log| log.write_all(&message));
    }
}

impl Write for Message<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        let line = screen::log_line(&self.text);
        // An error of standard error is ignored, since the system's log gets errors too.
        let _ = stderr().write_all(&line);
        if self.is_error {
            let text = String::from_utf8_lossy(&line);
            self.log.send(text.trim().strip_prefix("ERROR ").unwrap_or(text.trim()));
        }
    }
}

impl<'a> MakeWriter<'a> for SystemLog {
    type Writer = Message<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Message { log: self, is_error: false, text: Vec::new() }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Self::Writer {
        Message { log: self, is_error: *meta.level() == Level::ERROR, text: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_off() {
        let mut budget = Budget::default();
        assert_eq!((0..100).filter(|_| budget.may_spend()).count(), BURST as usize);
    }
}
