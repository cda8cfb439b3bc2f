//! The filesystem that a session serves, until it is closed.
//!
//! Requests share the lock; closing takes it alone and keeps it until the image is closed, so that nothing runs any
//! more then, what comes later is answered with an I/O error, and whoever closes it a second time waits for the first.

use crate::ending::EndReport;
use fuser::Errno;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Error, Volume};

use crate::convert::errno;

/// FUSE's number of the root.
const ROOT_NODE: u64 = 1;

/// A filesystem that can be taken away.
pub(crate) struct Server {
    filesystem: RwLock<Option<Volume>>,
    root: InodeNumber,
    /// The way to tell the kernel something that it has not asked.
    notifier: OnceLock<fuser::Notifier>,
    /// Where whoever unmounts looks how closing went.
    end_report: OnceLock<EndReport>,
    commit_failures: Mutex<Failures>,
    /// Files of which the kernel's cache has brought what was refused, and why, until a program was told.
    refusals: Mutex<HashMap<u64, Errno>>,
    /// Files of which the kernel's cache may hold contents.
    cached: RwLock<HashSet<u64>>,
}

/// Commits that failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    pub count: u64,
    /// What the last one said.
    pub last: String,
}

impl Server {
    pub(crate) fn new(filesystem: Volume) -> Self {
        Self {
            root: filesystem.root(),
            filesystem: RwLock::new(Some(filesystem)),
            notifier: OnceLock::new(),
            end_report: OnceLock::new(),
            commit_failures: Mutex::default(),
            refusals: Mutex::default(),
            cached: RwLock::default(),
        }
    }

    /// Does something with the filesystem.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&Volume) -> Result<T, Error>) -> Result<T, Errno> {
        let guard = self.filesystem.read();
        let filesystem = guard.as_ref().ok_or(Errno::EIO)?;
        action(filesystem).map_err(|error| errno(&error))
    }

    /// The inode of a node: FUSE calls the root 1, which is never the number of an XFS inode.
    pub(crate) fn inode(&self, node: fuser::INodeNo) -> InodeNumber {
        if node.0 == ROOT_NODE { self.root } else { InodeNumber(node.0) }
    }

    pub(crate) fn set_notifier(&self, notifier: fuser::Notifier) {
        // There is one session for a server, so this is the first and only call.
        let _ = self.notifier.set(notifier);
    }

    /// Makes the kernel write what it holds of a file and has not written yet. Its writes are requests like others, so
    /// whoever waits for them must not keep those who answer from doing so.
    pub(crate) fn call_in_writes(&self, node: fuser::INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            // A kernel that knows nothing of the file has nothing to write.
            let _ = notifier.inval_inode(node, 0, 0);
        }
    }

    /// Makes the kernel read a file anew, after it has written what it had not. Whoever waits for this must not be one
    /// of those who answer.
    pub(crate) fn forget_contents(&self, node: fuser::INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            // A kernel that knows nothing of the file has nothing to forget.
            let _ = notifier.inval_inode(node, 0, -1);
        }
    }

    /// Makes the kernel ask for the attributes of an inode when it needs them again. Whoever waits for this has the
    /// inode open, so that the kernel does not end it here.
    pub(crate) fn forget_attributes(&self, node: fuser::INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            let _ = notifier.inval_inode(node, -1, 0);
        }
    }

    /// Makes the kernel read a part of a file anew. Whoever waits for this must not be one of those who answer.
    pub(crate) fn forget_range(&self, node: fuser::INodeNo, offset: u64, length: usize) {
        if let Some(notifier) = self.notifier.get() {
            // A kernel that knows nothing of the file has nothing to forget.
            let _ = notifier.inval_inode(node, offset as i64, length as i64);
        }
    }

    /// The kernel's cache gets contents of a file.
    pub(crate) fn note_cached(&self, node: fuser::INodeNo) {
        if !self.is_cached(node) {
            self.cached.write().insert(node.0);
        }
    }

    /// Whether the kernel's cache may hold contents of a file.
    pub(crate) fn is_cached(&self, node: fuser::INodeNo) -> bool {
        self.cached.read().contains(&node.0)
    }

    /// The kernel remembers nothing of a file any more.
    pub(crate) fn forgotten(&self, node: fuser::INodeNo) {
        // The next file of that number has neither.
        self.take_refusal(node);
        if self.is_cached(node) {
            self.cached.write().remove(&node.0);
        }
    }

    /// Remembers that what came from the kernel's cache was refused. Says whether that is news.
    pub(crate) fn refuse(&self, node: fuser::INodeNo, why: Errno) -> bool {
        self.refusals.lock().insert(node.0, why).is_none()
    }

    /// Why contents of a file were refused, for one program to be told.
    pub(crate) fn take_refusal(&self, node: fuser::INodeNo) -> Option<Errno> {
        let mut refusals = self.refusals.lock();
        if refusals.is_empty() { None } else { refusals.remove(&node.0) }
    }

    pub(crate) fn root(&self) -> InodeNumber {
        self.root
    }

    pub(crate) fn set_end_report(&self, end_report: EndReport) {
        // There is one session for a server, so this is the first and only call.
        let _ = self.end_report.set(end_report);
    }

    /// Makes everything durable that was done. A failure is told in the log at once, in the figures, and to who
    /// unmounts.
    pub(crate) fn commit(&self) {
        let guard = self.filesystem.read();
        let Some(Err(error)) = guard.as_ref().map(Volume::sync) else { return };
        let mut failures = self.commit_failures.lock();
        failures.count += 1;
        let error = error.to_string();
        if failures.last != error {
            tracing::error!(%error, "what was done could not be made durable");
            failures.last = error;
        }
    }

    pub(crate) fn commit_failures(&self) -> Failures {
        self.commit_failures.lock().clone()
    }

    /// Waits for running requests and closes the image. A second time it waits for the first, and does nothing.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut guard = self.filesystem.write();
        let Some(filesystem) = guard.take() else { return Ok(()) };
        let closed = filesystem.unmount();
        if let Err(error) = &closed {
            tracing::error!(%error, "the image was not closed: what was not durable is lost");
        }
        let Failures { count, last } = self.commit_failures();
        let notes = if count == 0 { String::new() } else { format!("{count} commits had failed before: {last}") };
        if let Some(end_report) = self.end_report.get() {
            end_report.tell(closed.as_ref().err().map(ToString::to_string).as_deref(), &notes);
        }
        closed
    }
}
