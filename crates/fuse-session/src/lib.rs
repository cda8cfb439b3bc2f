//! The FUSE protocol, and the threads that answer it.
//!
//! ```text
//! abi, opcode   the structures and numbers of the protocol
//! request       bytes ──▶ Request, of borrowed parts; no bytes make it panic
//! filesystem    the trait that answers: typed requests in, Result<Entry, Errno> and the like (answer) out
//! reply         what it answers ──▶ bytes
//! init          the first request: what both sides can do
//! channel       a descriptor of the connection
//! ring          the same by io_uring, with a queue for each processor
//! answering     here, or by a thread that may wait
//! session       threads that read, let answer and reply; waiters: threads for requests that wait; shared: what all use
//! readers       which threads read: the pool, or the follower of a client that is alone (follower, processor)
//! forgets       which are on their way: the space of removed files comes with them
//! spare         a thread that a sandbox can name: the follower
//! notify        what the kernel is to drop from its cache
//! question      what a program asks the server of a mount by an ioctl
//! ```
//! The crate mounts nothing: it gets a connection. It has five uses of `unsafe`: the request to the kernel for a
//! further descriptor of a connection (`channel.rs`), the policy of a thread (`processor.rs`); of io_uring, giving
//! memory to the kernel, and a field of a submission (`ring/mod.rs`); and, in the program that asks, the ioctl of a
//! question (`question.rs`).
//!
//! docs/design/fuse.md has the states of a request and what each feature is for.
//!
//! Source of facts: `include/uapi/linux/fuse.h` and `fs/fuse/` of Linux 6.18.

pub mod abi;
mod answer;
mod answering;
mod channel;
mod counters;
mod filesystem;
mod follower;
mod forgets;
mod init;
mod listing;
mod notify;
pub mod opcode;
mod processor;
mod question;
mod readers;
mod reply;
pub mod request;
mod ring;
mod session;
mod shared;
mod spare;
mod waiters;

pub use abi::{Features, OpenFlags, WriteFlags};
pub use answer::{Answer, Attr, Entry, Opened, ReplyLater, Then, Version, WithOthers, Work};
pub use counters::Counters;
pub use filesystem::Filesystem;
pub use listing::{Listed, Listing, ListingPlus, Room};
pub use notify::Notifier;
pub use question::{QUESTION, QUESTION_BYTES, ask, question_in};
pub use request::{NewTime, Requester, Time};
pub use rustix::io::Errno;
pub use session::Session;
pub use shared::{Access, Config, Placement};
pub use spare::SpareThread;
