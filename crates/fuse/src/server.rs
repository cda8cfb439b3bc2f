//! The filesystem that a session serves, until it is closed.
//!
//! Requests share the lock. Closing takes it exclusively until the image is closed. So no request runs meanwhile, later
//! requests are answered with an I/O error, and a second caller that closes it waits for the first.

use crate::cached::CachedFiles;
use crate::ending::EndReport;
use crate::unused::UnusedSoon;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use xfskit_fuse_session::{Counters, Errno, Notifier};
use xfskit_vfs::{Error, Extras, Handles, InodeNumber};

use crate::convert::{errno, inode};

/// What can be served.
pub trait Servable: Handles + Extras + 'static {}

impl<V: Handles + Extras + 'static> Servable for V {}

/// A filesystem that can be closed while requests arrive.
pub(crate) struct Server<V> {
    filesystem: RwLock<Option<V>>,
    root: InodeNumber,
    /// Sends notifications to the kernel.
    notifier: OnceLock<Notifier>,
    requests: OnceLock<Arc<Counters>>,
    /// What rights the process has given up.
    sandbox: OnceLock<String>,
    /// Where the program that unmounts reads how closing went.
    end_report: OnceLock<EndReport>,
    commit_failures: Mutex<Failures>,
    /// Files whose cached contents were refused when the kernel wrote them back, with the error, until a program gets
    /// it.
    refusals: Mutex<HashMap<u64, Errno>>,
    /// Requests with cached contents that were refused.
    refused: AtomicU64,
    /// Files whose cached contents the kernel is asked to drop, by a thread that has not begun with it.
    dropping: Mutex<HashSet<u64>>,
    /// What the kernel may have in its cache.
    pub(crate) cached: CachedFiles,
    /// Files that the kernel is to forget when no program has them open.
    unused: UnusedSoon,
}

/// Commits that failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    pub count: u64,
    /// The message of the last one.
    pub last: String,
}

impl<V: Servable> Server<V> {
    pub(crate) fn new(filesystem: V) -> Self {
        Self {
            root: filesystem.root(),
            filesystem: RwLock::new(Some(filesystem)),
            notifier: OnceLock::new(),
            requests: OnceLock::new(),
            sandbox: OnceLock::new(),
            end_report: OnceLock::new(),
            commit_failures: Mutex::default(),
            refusals: Mutex::default(),
            refused: AtomicU64::new(0),
            dropping: Mutex::default(),
            cached: CachedFiles::default(),
            unused: UnusedSoon::default(),
        }
    }

    /// Runs an action on the filesystem.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&V) -> Result<T, Error>) -> Result<T, Errno> {
        let guard = self.filesystem.read();
        let filesystem = guard.as_ref().ok_or(Errno::IO)?;
        action(filesystem).map_err(|error| errno(&error))
    }

    /// The inode of a node.
    pub(crate) fn inode(&self, node: u64) -> InodeNumber {
        inode(node, self.root)
    }

    /// Takes what the session offers besides requests.
    pub(crate) fn set_session(&self, notifier: Notifier, requests: Arc<Counters>) {
        // There is one session for a server, so this is the only call.
        let _ = self.notifier.set(notifier);
        let _ = self.requests.set(requests);
    }

    pub(crate) fn set_sandbox(&self, sandbox: String) {
        // There is one session for a server, so this is the only call.
        let _ = self.sandbox.set(sandbox);
    }

    /// What rights the process has given up.
    pub(crate) fn sandbox(&self) -> &str {
        self.sandbox.get().map_or("none", String::as_str)
    }

    /// Counts of requests; `None` before the session has begun.
    pub(crate) fn requests(&self) -> Option<&Counters> {
        self.requests.get().map(|counters| &**counters)
    }

    /// Makes the kernel write back the dirty pages of a file. Its writes are requests themselves, so a thread that
    /// answers requests must not wait for this.
    pub(crate) fn call_in_writes(&self, node: u64) {
        if let Some(notifier) = self.notifier.get() {
            // If the kernel does not know the file, it has nothing to write.
            let _ = notifier.inval_inode(node, 0, 0);
        }
    }

    /// Makes the kernel drop the cached contents of a file, after it has written back dirty pages. A thread that
    /// answers requests must not wait for this.
    pub(crate) fn forget_contents(&self, node: u64) {
        // What is refused from now on needs another call.
        self.dropping.lock().remove(&node);
        if let Some(notifier) = self.notifier.get() {
            // If the kernel does not know the file, it has nothing to drop.
            let _ = notifier.inval_inode(node, 0, -1);
        }
    }

    /// Makes the kernel ask for the attributes of an inode when it needs them again. The caller answers a request of a
    /// program that has the inode open, so this cannot drop the kernel's last reference to the inode and wait for its
    /// end.
    pub(crate) fn forget_attributes(&self, node: u64) {
        if let Some(notifier) = self.notifier.get() {
            let _ = notifier.inval_inode(node, -1, 0);
        }
    }

    /// Makes the kernel forget a file as soon as no program has it open: of one that it knows it keeps ctime itself,
    /// with the cache for writes, and learns of no other. The program that has changed it will close it in a moment;
    /// one that stays open keeps its old ctime.
    pub(crate) fn forget_when_unused(self: &Arc<Self>, node: u64) {
        if !self.unused.add(node) {
            return;
        }
        let server = Arc::clone(self);
        let prune = move || {
            let is_known = |node| server.with(|fs| Ok(fs.has_references(server.inode(node)))) == Ok(true);
            server.unused.prune(is_known, |nodes| match server.notifier.get() {
                Some(notifier) => notifier.prune(nodes),
                None => Ok(()),
            });
        };
        if std::thread::Builder::new().name("fuse-prune".into()).spawn(prune).is_err() {
            // The kernel keeps what it knows.
            self.unused.give_up();
        }
    }

    /// Makes the kernel drop a cached range of a file. A thread that answers requests must not wait for this.
    pub(crate) fn forget_range(&self, node: u64, offset: u64, length: usize) {
        if let Some(notifier) = self.notifier.get() {
            // If the kernel does not know the file, it has nothing to drop.
            let _ = notifier.inval_inode(node, offset as i64, length as i64);
        }
    }

    /// Called when the kernel has forgotten a file. It may have looked it up again since.
    pub(crate) fn forgotten(&self, node: u64) {
        if self.refusals.lock().is_empty() && !self.cached.knows(node) {
            return;
        }
        // Who looks it up refers to it first, and notes what it has in its cache afterwards. A later file with this
        // number has neither refusals nor cached contents.
        let number = self.inode(node);
        if self.with(|fs| Ok(self.cached.forget(node, || fs.has_references(number)))) == Ok(true) {
            self.take_refusal(node);
        }
    }

    /// Notes that contents from the kernel's cache were refused. Returns whether the kernel is to be asked to drop what
    /// it has of the file, or will be asked anyhow.
    pub(crate) fn refuse(&self, node: u64, why: Errno) -> bool {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // No program may ask: the mount's log has it in any case, once for each time that programs can be told.
        if self.refusals.lock().insert(node, why).is_none() {
            let inode = self.inode(node).0;
            tracing::error!(inode, error = %why, "what a program has written is lost: there was no place for it");
        }
        self.dropping.lock().insert(node)
    }

    /// How many requests with cached contents were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Removes and returns the error for refused contents of a file, so that one program gets it.
    pub(crate) fn take_refusal(&self, node: u64) -> Option<Errno> {
        let mut refusals = self.refusals.lock();
        if refusals.is_empty() { None } else { refusals.remove(&node) }
    }

    pub(crate) fn root(&self) -> InodeNumber {
        self.root
    }

    pub(crate) fn set_end_report(&self, end_report: EndReport) {
        // There is one session for a server, so this is the only call.
        let _ = self.end_report.set(end_report);
    }

    /// Makes everything durable. A failure is counted, and reported to the program that unmounts; unless it is the same
    /// as the last one, it is also logged.
    pub(crate) fn commit(&self) {
        let guard = self.filesystem.read();
        let Some(Err(error)) = guard.as_ref().map(|filesystem| filesystem.sync()) else { return };
        let mut failures = self.commit_failures.lock();
        failures.count += 1;
        let error = error.to_string();
        if failures.last != error {
            tracing::error!(%error, "what was done could not be made durable");
            failures.last = error;
        }
    }

    /// Makes everything durable and leaves nothing to recover, while no request runs.
    pub(crate) fn quiesce(&self) -> Result<(), Errno> {
        let mut guard = self.filesystem.write();
        guard.as_mut().ok_or(Errno::IO)?.quiesce().map_err(|error| errno(&error))
    }

    pub(crate) fn commit_failures(&self) -> Failures {
        self.commit_failures.lock().clone()
    }

    /// Waits for running requests and closes the image. A second call waits for the first and does nothing.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut guard = self.filesystem.write();
        let Some(filesystem) = guard.take() else { return Ok(()) };
        let closed = Box::new(filesystem).unmount();
        if let Err(error) = &closed {
            tracing::error!(%error, "the image was not closed: what was not durable is lost");
        }
        let Failures { count, last } = self.commit_failures();
        let notes = if count == 0 { String::new() } else { format!("{count} commits had failed before: {last}") };
        if let Some(end_report) = self.end_report.get() {
            end_report.write(closed.as_ref().err().map(ToString::to_string).as_deref(), &notes);
        }
        closed
    }
}
