//! A mount, from attaching it to closing the image.
//!
//! ```text
//! ends by                                   what happens
//! umount, fusermount3 -u                    the kernel ends the connection, run() closes the image and returns
//! Unmounter::unmount, mount not in use      the same
//! Unmounter::unmount, mount in use          the mount is removed from the tree, the image is closed at once;
//!                                           programs with open files there get I/O errors
//!   ... it is no longer in the tree, or     the image is closed at once; what is mounted at the folder stays
//!   another mount lies over it, or it
//!   is still in another mount namespace
//! ```
//! The session unmounts only the mount that it made, which it knows by its number (`place.rs`): by now another mount
//! may be at the folder.
//!
//! Crash behaviour: a server that is killed leaves the image as a power cut would.

use crate::ending::EndReport;
use crate::handler::Handler;
use crate::mounting::Mounting;
use crate::options::Options;
use crate::place::{Abort, Place};
use crate::server::{Servable, Server};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use xfskit_fuse_session as fuse;
use xfskit_vfs::Error;

/// How often a busy mount is tried again before it is detached, and the pause between two attempts.
const BUSY_LOOKS: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long programs' cached writes may take to reach the image before a mount in use is detached.
const CALL_IN: Duration = Duration::from_secs(10);
/// How long the kernel may take to end the connection of an unmounted mount before the mount counts as used elsewhere.
const LET_GO: Duration = Duration::from_secs(2);

/// Why a mount could not be made, or failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is not a folder, or cannot be used.
    #[error("{path}: {source}")]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A mount whose server has ended is already there.
    #[error(
        "{0}: the server of the mount here has ended without unmounting; 'xfskit umount {0}' or 'fusermount3 -u {0}' \
             takes that mount away"
    )]
    DeadMount(PathBuf),
    /// This machine has no FUSE, or this user may not use it.
    #[error("/dev/fuse cannot be used: {0} ({hint})", hint = fuse_hint(.0))]
    NoFuse(io::Error),
    /// Any other error of the kernel or fusermount3.
    #[error("cannot mount: {0}")]
    Mount(io::Error),
    /// The connection to the kernel failed during the mount.
    #[error("the connection to the kernel failed: {0}")]
    Connection(io::Error),
    /// The image could not be closed in good order.
    #[error("closing the image: {0}")]
    Close(#[from] Error),
}

impl MountError {
    /// The error for a mount point that cannot be used.
    pub fn of_mount_point(path: &Path, source: io::Error) -> Self {
        match source.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) {
            true => Self::DeadMount(path.into()),
            false => Self::MountPoint { path: path.into(), source },
        }
    }
}

/// A hint why `/dev/fuse` cannot be opened.
fn fuse_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "a matter of permission, not of a missing module: its mode, or what this container or user may open"
        }
        _ => "is the fuse module loaded, and this container given the device?",
    }
}

/// A mounted filesystem.
pub struct Session<V: Servable> {
    serving: Serving<V>,
    mounting: Mounting,
}

/// A server over a connection that is mounted already, perhaps by another process.
pub struct Serving<V: Servable> {
    session: fuse::Session<Handler<V>>,
    end: Arc<End<V>>,
    commit_seconds: u64,
}

/// The server in this process, and whether the kernel has ended its connection.
struct End<V> {
    server: Arc<Server<V>>,
    has_ended: Mutex<bool>,
    ends: Condvar,
}

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

impl<V: Servable> Served for End<V> {
    fn close(&self) -> Result<(), MountError> {
        Ok(self.server.close()?)
    }

    fn ends_within(&self, time: Duration) -> bool {
        let mut has_ended = self.has_ended.lock();
        self.ends.wait_while_for(&mut has_ended, |ended| !*ended, time);
        *has_ended
    }
}

/// Serves `filesystem` over a connection that the caller has made: `/dev/fuse`, mounted already, or one end of a pair
/// of sockets that preserve message boundaries, whose other end behaves as the kernel does. One thread answers. Returns
/// when the other side ends the connection; the image is closed then.
///
/// # Errors
/// `Connection` if the connection ends without FUSE's last request or does not begin with FUSE's first one; `Close`.
pub fn serve<V: Servable>(filesystem: V, connection: OwnedFd, options: &Options) -> Result<(), MountError> {
    let server = Arc::new(Server::new(filesystem));
    let served = serve_connection(&server, connection, options);
    server.close()?;
    served.map_err(MountError::Connection)
}

fn serve_connection<V: Servable>(server: &Arc<Server<V>>, connection: OwnedFd, options: &Options) -> io::Result<()> {
    let handler = Handler::new(Arc::clone(server), options);
    let config = fuse::Config { threads: 1, ..options.session() };
    let session = fuse::Session::begin(handler, connection, config)?;
    server.set_session(session.notifier(), session.counters());
    let _committer = Committer::start(Arc::clone(server), options.commit_seconds);
    session.run()
}

/// The result of [`Unmounter::unmount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The mount is gone; [`Session::run`] closes the image and returns.
    Gone,
    /// A program still uses the mount, perhaps in another mount namespace. The mount was removed from the tree if it
    /// was there, and the image is closed. [`Session::run`] continues until no program uses the mount; the process may
    /// exit before.
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

impl<V: Servable> Session<V> {
    /// Mounts `filesystem` at `mount_point`. When this returns, the mount can be used; requests wait until
    /// [`Self::run`].
    ///
    /// # Errors
    /// [`MountError`]; the image is then closed again.
    pub fn mount(filesystem: V, mount_point: &Path, options: &Options) -> Result<Self, MountError> {
        let (mounting, connection, report) = match Mounting::new(mount_point, options) {
            Ok(mounted) => mounted,
            Err(error) => {
                Box::new(filesystem).unmount()?;
                return Err(error);
            }
        };
        match Serving::over(filesystem, connection, report, options) {
            Ok(serving) => {
                mounting.begin();
                Ok(Self { serving, mounting })
            }
            Err(error) => {
                mounting.undo();
                Err(error)
            }
        }
    }

    /// A handle for unmounting.
    pub fn unmounter(&self) -> Unmounter {
        self.mounting.unmounter(Arc::clone(&self.serving.end) as _)
    }

    /// Answers requests until the mount is gone, then closes the image.
    ///
    /// # Errors
    /// `Connection`, `Close`.
    pub fn run(self) -> Result<(), MountError> {
        // With `auto_unmount`, the helper unmounts when `mounting` is dropped.
        self.serving.run()
    }
}

impl<V: Servable> Serving<V> {
    /// Begins to serve a mount that [`Mounting::new`] has made, by its connection and the file for the report of how it
    /// ends. Requests wait until [`Self::run`].
    ///
    /// # Errors
    /// `Mount`; the image is then closed again.
    pub fn over(
        filesystem: V,
        connection: OwnedFd,
        report: Option<OwnedFd>,
        options: &Options,
    ) -> Result<Self, MountError> {
        let server = Arc::new(Server::new(filesystem));
        let handler = Handler::new(Arc::clone(&server), options);
        let session = match fuse::Session::begin(handler, connection, options.session()) {
            Ok(session) => session,
            Err(error) => {
                server.close()?;
                return Err(MountError::Mount(error));
            }
        };
        server.set_session(session.notifier(), session.counters());
        report.into_iter().for_each(|file| server.set_end_report(EndReport::over(file)));
        let end = Arc::new(End { server, has_ended: Mutex::new(false), ends: Condvar::new() });
        Ok(Self { session, end, commit_seconds: options.commit_seconds })
    }

    /// For a process that cannot open `/dev/fuse`: as many descriptors of it, each opened anew, as there are threads
    /// ([`Options::session`]).
    #[must_use]
    pub fn with_devices(mut self, devices: Vec<OwnedFd>) -> Self {
        self.session = self.session.with_devices(devices);
        self
    }

    /// For a process in a sandbox: a thread that its rules name, for [`fuse::Session::with_follower`].
    #[must_use]
    pub fn with_follower(mut self, spare: Option<fuse::SpareThread>) -> Self {
        if let Some(spare) = spare {
            self.session = self.session.with_follower(spare);
        }
        self
    }

    /// What closes the image from another thread.
    pub fn end(&self) -> Arc<dyn Served> {
        Arc::clone(&self.end) as _
    }

    /// Says in the figures of the mount what rights the server has given up.
    pub fn set_sandbox(&self, sandbox: String) {
        self.end.server.set_sandbox(sandbox);
    }

    /// Answers requests until the mount is gone, then closes the image.
    ///
    /// # Errors
    /// `Connection`, `Close`.
    pub fn run(self) -> Result<(), MountError> {
        let End { server, has_ended, ends } = &*self.end;
        let committer = Committer::start(Arc::clone(server), self.commit_seconds);
        let served = self.session.run();
        drop(committer);
        *has_ended.lock() = true;
        ends.notify_all();
        server.close()?;
        served.map_err(MountError::Connection)
    }
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

/// Makes everything durable every few seconds, until it is dropped.
struct Committer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Committer {
    fn start<V: Servable>(server: Arc<Server<V>>, seconds: u64) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = (seconds > 0).then(|| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || commit_until(&stop, &server, Duration::from_secs(seconds)))
        });
        Self { stop, thread }
    }
}

fn commit_until<V: Servable>(stop: &(Mutex<bool>, Condvar), server: &Server<V>, interval: Duration) {
    let mut stopped = stop.0.lock();
    while !*stopped {
        if stop.1.wait_for(&mut stopped, interval).timed_out() {
            server.commit();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and a panic of it changes nothing here.
            let _ = thread.join();
        }
    }
}
