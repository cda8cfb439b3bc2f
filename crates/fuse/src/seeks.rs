//! Looking for data and holes, and whatever else waits for what the kernel writes or has cached, in a thread of its
//! own.
//!
//! The kernel asks without having written what it holds, and takes what it is told for the truth. So it is made to
//! write first, and whoever waits for that must not be one of those who answer. One thread does it for all: none is
//! made while the mount is used, when there may be none left to make.

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

/// A direct write that was done.
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

/// Who answers; it ends when this is dropped.
pub(crate) struct Seeks(Sender<Task>);

impl Seeks {
    /// # Errors
    /// When there are no more threads.
    pub(crate) fn start(server: Arc<Server>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("seeks".into()).spawn(move || answer(&server, &receiver))?;
        Ok(Self(sender))
    }

    /// Has a question answered. Each waits in a call of its own, so there are never more than calls.
    pub(crate) fn ask(&self, node: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        if let Err(SendError(Task::Answer(question))) =
            self.0.send(Task::Answer(Question { node, offset, whence, reply }))
        {
            question.reply.error(Errno::EIO);
        }
    }

    /// Has the kernel forget the contents that it holds of a file: some were refused, and are not in the image. That
    /// waits for pages which are still being written, so it is not for those who answer.
    pub(crate) fn forget(&self, node: INodeNo) {
        // It fails when nobody answers any more.
        let _ = self.0.send(Task::Forget(node));
    }

    /// Answers a direct write to a file that the kernel's cache may hold, after that has forgotten the range. The
    /// kernel does so itself when such a write begins, but not after one that does not wait: what was read meanwhile
    /// would stay.
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
