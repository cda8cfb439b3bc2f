//! Fsyncs that wait together.
//!
//! ```text
//! a thread that answers: begin, join ──▶ waiting ──┐
//! a thread that answers: begin, join ──▶ waiting ──┴─▶ one of two threads: await_durable, reply to all ─▶ again
//! ```
//! A thread for each fsync would be woken twice for it: when it gets the request, and when the flush is done. Here the
//! thread that waits for the flush takes along all that have begun until then. There are two, so that one waits for the
//! device while the other one replies.
//!
//! Invariant: if something waits, a thread is on its way to it. Locking: one mutex, under which nothing is done.

use crate::server::Server;
use parking_lot::Mutex;
use std::sync::Arc;
use xfskit::volume::SyncPoint;
use xfskit_fuse_session::{ReplyLater, Work};

const MOST_THREADS: usize = 2;

#[derive(Default)]
struct State {
    waiting: Vec<(SyncPoint, ReplyLater)>,
    threads: usize,
}

/// The fsyncs that have begun.
#[derive(Default)]
pub(crate) struct SyncGroup(Mutex<State>);

impl SyncGroup {
    /// Adds one; returns work for a thread that may wait, if those that are there are not enough.
    pub(crate) fn join(self: &Arc<Self>, server: &Arc<Server>, point: SyncPoint, reply: ReplyLater) -> Option<Work> {
        let mut state = self.0.lock();
        state.waiting.push((point, reply));
        if state.threads == MOST_THREADS {
            return None;
        }
        state.threads += 1;
        let thread = GroupThread { group: Arc::clone(self), server: Arc::clone(server) };
        Some(Box::new(move || thread.run()))
    }
}

/// A thread that waits for others' fsyncs, until none is left.
struct GroupThread {
    group: Arc<SyncGroup>,
    server: Arc<Server>,
}

impl GroupThread {
    fn run(&self) {
        while let Some((point, replies)) = self.take() {
            let answer = self.server.with(|fs| fs.await_durable(point));
            replies.into_iter().for_each(|reply| reply.send(answer));
        }
    }

    /// All that wait, and the point at which they are done. `None` when this thread is not needed any more.
    fn take(&self) -> Option<(SyncPoint, Vec<ReplyLater>)> {
        let mut state = self.group.0.lock();
        let (points, replies): (Vec<_>, Vec<_>) = std::mem::take(&mut state.waiting).into_iter().unzip();
        let point = points.into_iter().reduce(SyncPoint::and);
        if point.is_none() {
            state.threads -= 1;
        }
        point.zip(Some(replies))
    }
}
