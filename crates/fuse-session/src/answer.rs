//! What a filesystem answers.

use crate::abi::{OpenFlags, RawAttr, RawEntryOut};
use rustix::io::Errno;
use std::time::Duration;

/// The answer to a request.
pub type Answer<T> = Result<T, Errno>;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

/// An inode with its name in a directory, as the kernel takes it into its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number by which requests name the inode; 0 for a name that does not exist.
    pub node: u64,
    /// Node and generation together are never used for another inode.
    pub generation: u64,
    /// How long the name, or its absence, may be cached.
    pub name_valid: Duration,
    /// How long the attributes may be cached.
    pub attr_valid: Duration,
    /// The attributes.
    pub attr: RawAttr,
}

impl Entry {
    /// The entry as the kernel reads it.
    pub(crate) fn raw(&self) -> RawEntryOut {
        RawEntryOut {
            nodeid: self.node,
            generation: self.generation,
            entry_valid: self.name_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.name_valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: self.attr,
        }
    }
}

/// Attributes, and how long they may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Attr {
    pub valid: Duration,
    pub attr: RawAttr,
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Opened {
    pub handle: u64,
    pub flags: OpenFlags,
}

/// Work that may wait for other requests, so that no thread that answers requests may do it.
pub type Work = Box<dyn FnOnce() + Send>;

/// When work is done that comes with a reply.
pub enum Then {
    /// There is none.
    Nothing,
    /// The reply is sent when the work is done.
    BeforeReply(Work),
    /// The work begins when the reply has been sent.
    AfterReply(Work),
}

/// The reply to a request that is answered later, without contents. Without an answer when it is dropped, as by a
/// panic, the request gets EIO.
pub struct ReplyLater(Option<Box<dyn FnOnce(Answer<()>) + Send>>);

impl ReplyLater {
    /// A reply that `send` sends.
    pub fn new(send: impl FnOnce(Answer<()>) + Send + 'static) -> Self {
        Self(Some(Box::new(send)))
    }

    /// Answers.
    pub fn send(mut self, answer: Answer<()>) {
        if let Some(send) = self.0.take() {
            send(answer);
        }
    }
}

impl Drop for ReplyLater {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(Err(Errno::IO));
        }
    }
}

/// What becomes of an fsync that is to share its wait with others.
pub enum WithOthers {
    /// The filesystem has replied, or will. The work, if there is some, is for a thread that may wait.
    Later(Option<Work>),
    /// It takes long by itself: a thread that may wait is to carry out the whole of it.
    Alone(ReplyLater),
}
