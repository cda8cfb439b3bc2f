//! Trees of the host. Every file is opened relative to the open directory that it lies in, and no symbolic link is
//! followed, so that nobody who changes the tree meanwhile leads a copy out of it.

mod attributes;
mod contents;
mod durable;
mod sink;
mod source;

pub use durable::{Durability, Written};
pub use sink::{HostSink, Keeper};
pub use source::HostSource;
