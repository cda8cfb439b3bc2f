//! Unmounting from another thread, or another process, while a server may still answer.

use crate::error::MountError;
use crate::place::{Abort, Place};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How often a busy mount is tried again before it is detached, and the pause between two attempts.
const BUSY_LOOKS: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long programs' cached writes may take to reach the image before a mount in use is detached.
const CALL_IN: Duration = Duration::from_secs(10);
/// How long the kernel may take to end the connection of an unmounted mount before the mount counts as used elsewhere.
const LET_GO: Duration = Duration::from_secs(2);

/// What serves a mount, for the one who unmounts it.
pub trait Served: Send + Sync {
    /// Closes the image in good order, when the requests that run are answered; later ones get errors.
    ///
    /// # Errors
    /// `Close`, unless the server reports it itself.
    fn close(&self) -> Result<(), MountError>;

    /// Whether the server ends within a time, since the kernel has ended the connection.
    fn ends_within(&self, time: Duration) -> bool;
}

/// The result of [`Unmounter::unmount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The mount is gone; [`Session::run`](crate::Session::run) closes the image and returns.
    Gone,
    /// A program still uses the mount, perhaps in another mount namespace. The mount was removed from the tree if it
    /// was there, and the image is closed. [`Session::run`](crate::Session::run) continues until no program uses the
    /// mount; the process may exit before.
    Detached,
}

/// Unmounts from another thread, or another process.
#[derive(Clone)]
pub struct Unmounter {
    served: Arc<dyn Served>,
    /// The mount that was made.
    place: Arc<Place>,
    abort: Option<Arc<Abort>>,
}

impl Unmounter {
    pub(crate) fn new(served: Arc<dyn Served>, place: Arc<Place>, abort: Option<Arc<Abort>>) -> Self {
        Self { served, place, abort }
    }

    /// Unmounts.
    ///
    /// # Errors
    /// `Mount` when the kernel refuses (the image is closed all the same), `Close` when the image could not be closed.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        for _ in 0..BUSY_LOOKS {
            if !self.is_there() {
                break;
            }
            match self.place.unmount(false) {
                Ok(()) => break,
                // A forked process has all open files of its parent until it executes a program.
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(_) => break,
            }
        }
        let is_left = self.is_there();
        if !is_left && self.served.ends_within(LET_GO) {
            return Ok(Unmounted::Gone);
        }
        if is_left {
            self.call_in_writes();
        }
        let detached = if is_left { self.place.unmount(true).map_err(MountError::Mount) } else { Ok(()) };
        // Even if the mount stays, the image is closed while that is still possible in good order.
        self.served.close()?;
        detached.map(|()| Unmounted::Detached)
    }

    /// Makes the kernel send what it still has in its cache: programs that have files open are told of no error for
    /// what is not on the image when it is closed. The threads of the session answer meanwhile; if they do not, this
    /// waits no longer than it has to.
    fn call_in_writes(&self) {
        let (done, is_done) = mpsc::channel();
        let place = Arc::clone(&self.place);
        let started = std::thread::Builder::new().name("call-in".into()).spawn(move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let synced = rustix::fs::open(place.path(), flags, Mode::empty()).and_then(rustix::fs::syncfs);
            if let Err(error) = synced {
                tracing::warn!(%error, "what programs have written may be lost");
            }
            // Where no program waits any more, nothing is to be said.
            let _ = done.send(());
        });
        if started.is_ok() {
            let _ = is_done.recv_timeout(CALL_IN);
        }
    }

    /// Makes the kernel end the connection, so that no thread of this process waits for it in the kernel: such a thread
    /// would keep the process, and with it the mount and all who wait for it, for ever. For a process that is about to
    /// end without answering requests any more.
    pub fn abort(&self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }

    /// Whether the mount at the folder is the one that this session made. Assumed if this process cannot see mounts.
    fn is_there(&self) -> bool {
        self.place.is_there().unwrap_or_else(|| !self.served.ends_within(Duration::ZERO))
    }
}
