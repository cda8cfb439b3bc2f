//! What all threads of a session use, and its settings.

use crate::abi::{self, Features};
use crate::channel::Channel;
use crate::counters::Counters;
use crate::filesystem::Filesystem;
use crate::follower::Place;
use crate::forgets::Forgets;
use crate::init::Agreed;
use crate::readers::{Readers, Ticks};
use crate::request::{Operation, Request};
use crate::waiters::Waiters;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};

/// Room for a reply that is no contents of a file: names and values of extended attributes, listings.
pub(crate) const MIN_REPLY_BYTES: usize = 128 << 10;
/// Room for the header and the structure of a request with contents.
pub(crate) const HEAD_BYTES: usize = 4096;

/// Whose requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Those of every user that the kernel admits.
    All,
    /// Those of root and this user.
    RootAnd(u32),
}

/// On which processors requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Where the scheduler puts the threads.
    Scheduler,
    /// Those of a client that is alone on its own processor, where that saves the waking of another one.
    #[default]
    WithLoneClient,
}

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that answer requests; those that wait are more. One only for a socket.
    pub threads: usize,
    /// The most bytes of a read or a write, a multiple of a page.
    pub max_write: u32,
    /// Whose requests are answered.
    pub access: Access,
    /// On which processors. A session with one thread leaves that to the scheduler.
    pub placement: Placement,
}

/// What all threads of a session use.
pub(crate) struct Shared<F> {
    pub filesystem: F,
    pub counters: Arc<Counters>,
    pub waiters: Waiters,
    pub connection: Channel,
    pub config: Config,
    pub has_panicked: AtomicBool,
    /// Replies that are held back until other requests are answered.
    pub held_back: AtomicUsize,
    /// Requests that wait, on whatever thread.
    pub waiting: AtomicUsize,
    pub forgets: Forgets,
    pub agreed: Agreed,
    pub readers: Readers,
    /// For the thread that looks after the follower.
    pub guard: OnceLock<Mutex<Guard>>,
}

/// What the thread of the pool needs that looks after the follower.
pub(crate) struct Guard {
    pub place: Arc<Place>,
    pub ticks: Ticks,
}

impl<F: Filesystem> Shared<F> {
    /// Room for a request.
    pub(crate) fn request_bytes(&self) -> usize {
        abi::MIN_READ_BUFFER.max(self.config.max_write as usize + HEAD_BYTES)
    }

    /// Room for a reply.
    pub(crate) fn reply_bytes(&self) -> usize {
        MIN_REPLY_BYTES.max(self.config.max_write as usize)
    }

    pub(crate) fn has_setxattr_ext(&self) -> bool {
        self.agreed.features.contains(Features::SETXATTR_EXT)
    }
}

/// Whether the answer to a request waits for other requests.
pub(crate) fn waits_for_requests(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Lseek { .. } | Operation::Ioctl(_))
}
