//! What the two processes of a mount say to each other, over a pair of sockets that preserve message boundaries.
//!
//! ```text
//! byte 0   kind
//! 1...     text of a log message
//! aside    descriptors, with "mounted"
//! ```
//! docs/design/sandbox.md has the processes and the messages.

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The longest text; of a longer one the rest is left out.
const MAX_TEXT_BYTES: usize = 8 << 10;
const MAX_DESCRIPTORS: usize = 2;

/// A message.
#[derive(Debug)]
pub(super) enum Message {
    /// The server has the image open; it can only be read.
    OpenedToRead,
    /// The server has the image open, to write too.
    OpenedToWrite,
    /// The mount is there: the connection to the kernel, and the file for the report of how it ends.
    Mounted(OwnedFd, Option<OwnedFd>),
    /// Requests are answered.
    Serving,
    /// An error, for the system's log.
    Log(String),
    /// The server got a signal that asks it to end.
    AskedToEnd,
    /// The image is to be closed now.
    Close,
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<OwnedFd>);

impl Connection {
    /// Both ends.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(Arc::new(ours)), theirs))
    }

    /// The end that this process has as its standard input.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn of_standard_input() -> io::Result<Self> {
        Ok(Self(Arc::new(io::stdin().as_fd().try_clone_to_owned()?)))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `BrokenPipe` if the other process has ended; the system's.
    pub(super) fn send(&self, message: &Message) -> io::Result<()> {
        let (kind, text, descriptors) = match message {
            Message::OpenedToRead => (b'r', "", vec![]),
            Message::OpenedToWrite => (b'w', "", vec![]),
            Message::Mounted(connection, report) => {
                let all = [Some(connection), report.as_ref()];
                (b'm', "", all.into_iter().flatten().map(AsFd::as_fd).collect::<Vec<BorrowedFd<'_>>>())
            }
            Message::Serving => (b's', "", vec![]),
            Message::Log(text) => (b'l', beginning(text), vec![]),
            Message::AskedToEnd => (b'e', "", vec![]),
            Message::Close => (b'c', "", vec![]),
        };
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut aside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(aside.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for two");
        }
        let kind = [kind];
        let parts = [IoSlice::new(&kind), IoSlice::new(text.as_bytes())];
        loop {
            match sendmsg(&*self.0, &parts, &mut aside, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }

    /// Sends an error to the system's log. If the parent has ended, there is none.
    pub(crate) fn log(&self, text: &str) {
        let _ = self.send(&Message::Log(text.to_owned()));
    }

    /// Receives a message; `None` when the other process has ended.
    ///
    /// # Errors
    /// `InvalidData` for what is no message; the system's.
    pub(super) fn receive(&self) -> io::Result<Option<Message>> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut aside = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; 1 + MAX_TEXT_BYTES];
        let length = loop {
            match recvmsg(&*self.0, &mut [IoSliceMut::new(&mut bytes)], &mut aside, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                other => break other?.bytes,
            }
        };
        let mut descriptors = aside.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let Some((kind, text)) = bytes[..length].split_first() else { return Ok(None) };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the other process of the mount sent no message");
        Ok(Some(match kind {
            b'r' => Message::OpenedToRead,
            b'w' => Message::OpenedToWrite,
            b'm' => Message::Mounted(descriptors.next().ok_or_else(wrong)?, descriptors.next()),
            b's' => Message::Serving,
            b'l' => Message::Log(String::from_utf8_lossy(text).into_owned()),
            b'e' => Message::AskedToEnd,
            b'c' => Message::Close,
            _ => return Err(wrong()),
        }))
    }
}

/// As much of a text as a message has room for.
fn beginning(text: &str) -> &str {
    let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (ours, theirs) = Connection::pair().unwrap();
        let theirs = Connection(Arc::new(theirs));
        let mut file: File = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
        file.write_all(b"contents").unwrap();
        ours.send(&Message::Mounted(file.into(), None)).unwrap();
        ours.send(&Message::Log("é".repeat(MAX_TEXT_BYTES))).unwrap();
        ours.send(&Message::Close).unwrap();
        let Some(Message::Mounted(file, None)) = theirs.receive().unwrap() else { panic!("not mounted") };
        let (mut file, mut text) = (File::from(file), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "contents");
        let Some(Message::Log(text)) = theirs.receive().unwrap() else { panic!("no log") };
        assert_eq!(text, "é".repeat(MAX_TEXT_BYTES / 2));
        assert!(matches!(theirs.receive().unwrap(), Some(Message::Close)));
        drop(ours);
        assert!(theirs.receive().unwrap().is_none());
        assert_eq!(theirs.send(&Message::Serving).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
