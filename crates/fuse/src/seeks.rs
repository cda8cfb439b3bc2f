//! A thread for seeks to data and holes, and for other requests that wait until the kernel has written or dropped
//! cached data.
//!
//! The kernel sends a seek without writing its cached data first, and relies on the answer. So the server first makes
//! it write. The writes are requests themselves, so a thread that answers requests must not wait for them. One thread
//! does this for all seeks. It is started with the mount, since later the system may have no threads left.

use crate::contents;
use crate::server::Server;
use fuser::{Errno, INodeNo, ReplyLseek, ReplyWrite};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};

enum Task {
    Answer(Question),
    Forget(INodeNo),
    Written(Written),
}

/// A completed direct write.
struct Written {
    node: INodeNo,
    offset: u64,
    length: usize,
    result: Result<(), Errno>,
    reply: ReplyWrite,
}

struct Question {
    node: INodeNo,
    offset: i64,
    whence: i32,
    reply: ReplyLseek,
}

/// The way to the thread, which ends when this is dropped.
pub(crate) struct Seeks(Sender<Task>);

impl Seeks {
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(server: Arc<Server>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("seeks".into()).spawn(move || answer(&server, &receiver))?;
        Ok(Self(sender))
    }

    /// Queues a seek. Each belongs to a call that waits, so there are never more than such calls.
    pub(crate) fn ask(&self, node: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        if let Err(SendError(Task::Answer(question))) =
            self.0.send(Task::Answer(Question { node, offset, whence, reply }))
        {
            question.reply.error(Errno::EIO);
        }
    }

    /// Makes the kernel drop the cached contents of a file: some were refused, and are not in the image. This waits for
    /// pages that are still being written, so threads that answer requests must not do it.
    pub(crate) fn forget(&self, node: INodeNo) {
        // This fails when the thread has ended.
        let _ = self.0.send(Task::Forget(node));
    }

    /// Answers a direct write to a file that may be in the kernel's cache, after the kernel has dropped the range. The
    /// kernel drops it when such a write begins, but not after an asynchronous one: data that was read meanwhile would
    /// stay in the cache.
    pub(crate) fn answer_after_forgetting(
        &self,
        node: INodeNo,
        offset: u64,
        length: usize,
        result: Result<(), Errno>,
        reply: ReplyWrite,
    ) {
        let task = Task::Written(Written { node, offset, length, result, reply });
        if let Err(SendError(Task::Written(written))) = self.0.send(task) {
            written.reply.error(Errno::EIO);
        }
    }
}

fn answer(server: &Server, tasks: &Receiver<Task>) {
    for task in tasks {
        let Question { node, offset, whence, reply } = match task {
            Task::Answer(question) => question,
            Task::Forget(node) => {
                server.forget_contents(node);
                continue;
            }
            Task::Written(Written { node, offset, length, result, reply }) => {
                server.forget_range(node, offset, length);
                match result {
                    Ok(()) => reply.written(length as u32),
                    Err(error) => reply.error(error),
                }
                continue;
            }
        };
        server.call_in_writes(node);
        let number = server.inode(node);
        match server.with(|fs| contents::seek(fs, number, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }
}
