//! What the record of a run consists of: writes, flushes, and what the filesystem acknowledged between them.

use crate::node::NodeId;
use std::sync::Arc;

/// What happened on a device, and between its operations.
#[derive(Clone, Debug)]
pub enum Event {
    /// Whole sectors were written at an offset.
    Write(u64, Arc<[u8]>),
    /// The write just before became durable.
    WriteDurable,
    /// Everything written before became durable.
    Flush,
    /// Operation number n began.
    Began(usize),
    /// The workload has prepared the image; cuts are made from here on.
    Prepared,
    /// Everything up to operation n, except the contents of files, was acknowledged to be durable.
    Acknowledged(usize),
    /// The contents of one file, or of all if none is named, were acknowledged to be durable as operation n left them.
    FileDurable(Option<NodeId>, usize, DurableParts),
}

/// What is durable of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableParts {
    /// Its contents.
    Contents,
    /// Its contents and its times.
    ContentsAndTimes,
}
