//! Looking for data and holes, in a thread of its own.
//!
//! The kernel asks without having written what it holds, and takes what it is told for the truth. So it is made to write first, and
//! whoever waits for that must not be one of those who answer. One thread does it for all: none is made while the mount is used, when
//! there may be none left to make.

use crate::contents;
use crate::server::Server;
use fuser::{Errno, INodeNo, ReplyLseek};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

struct Question {
    node: INodeNo,
    offset: i64,
    whence: i32,
    reply: ReplyLseek,
}

/// Who answers; it ends when this is dropped.
pub(crate) struct Seeks(Sender<Question>);

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
        if let Err(refused) = self.0.send(Question { node, offset, whence, reply }) {
            refused.0.reply.error(Errno::EIO);
        }
    }
}

fn answer(server: &Server, questions: &Receiver<Question>) {
    for Question { node, offset, whence, reply } in questions {
        server.call_in_writes(node);
        let number = server.inode(node);
        match server.with(|fs| contents::seek(fs, number, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }
}
