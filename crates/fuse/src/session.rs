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
use crate::error::MountError;
use crate::handler::Handler;
use crate::mounting::Mounting;
use crate::options::Options;
use crate::server::Server;
use crate::unmount::{Served, Unmounter};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use xfskit_engine::Volume;
use xfskit_fuse_session as fuse;

/// A mounted filesystem.
pub struct Session {
    serving: Serving,
    mounting: Mounting,
}

/// A server over a connection that is mounted already, perhaps by another process.
pub struct Serving {
    session: fuse::Session<Handler>,
    end: Arc<End>,
    commit_seconds: u64,
}

/// The server in this process, and whether the kernel has ended its connection.
struct End {
    server: Arc<Server>,
    has_ended: Mutex<bool>,
    ends: Condvar,
}

impl Served for End {
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
pub fn serve(filesystem: Volume, connection: OwnedFd, options: &Options) -> Result<(), MountError> {
    let server = Arc::new(Server::new(filesystem));
    let served = serve_connection(&server, connection, options);
    server.close()?;
    served.map_err(MountError::Connection)
}

fn serve_connection(server: &Arc<Server>, connection: OwnedFd, options: &Options) -> io::Result<()> {
    let handler = Handler::new(Arc::clone(server), options);
    let config = fuse::Config { threads: 1, ..options.session() };
    let session = fuse::Session::begin(handler, connection, config)?;
    server.set_session(session.notifier(), session.counters());
    let _committer = Committer::start(Arc::clone(server), options.commit_seconds);
    session.run()
}

impl Session {
    /// Mounts `filesystem` at `mount_point`. When this returns, the mount can be used; requests wait until
    /// [`Self::run`].
    ///
    /// # Errors
    /// [`MountError`]; the image is then closed again.
    pub fn mount(filesystem: Volume, mount_point: &Path, options: &Options) -> Result<Self, MountError> {
        let (mounting, connection, report) = match Mounting::new(mount_point, options) {
            Ok(mounted) => mounted,
            Err(error) => {
                filesystem.unmount()?;
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

impl Serving {
    /// Begins to serve a mount that [`Mounting::new`] has made, by its connection and the file for the report of how it
    /// ends. Requests wait until [`Self::run`].
    ///
    /// # Errors
    /// `Mount`; the image is then closed again.
    pub fn over(
        filesystem: Volume,
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

/// Makes everything durable every few seconds, until it is dropped.
struct Committer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Committer {
    fn start(server: Arc<Server>, seconds: u64) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = (seconds > 0).then(|| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || commit_until(&stop, &server, Duration::from_secs(seconds)))
        });
        Self { stop, thread }
    }
}

fn commit_until(stop: &(Mutex<bool>, Condvar), server: &Server, interval: Duration) {
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
