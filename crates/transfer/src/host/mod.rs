//! Trees of the host. Every file is opened relative to the open directory that contains it, and no symbolic link is
//! followed. So a program that changes the tree meanwhile cannot lead a copy out of it.

mod attributes;
mod contents;
mod durable;
mod pretended;
mod proto;
mod sink;
mod source;

pub use durable::{Durability, Written};
pub use pretended::{NotSeen, ask_pretender, refuse_other_names};
pub use proto::{ProtoSource, Slashes};
pub use sink::{HostSink, Keeper};
pub use source::HostSource;
