//! Contents of files.
//!
//! `docs/design/contents.md` tells how bytes reach the device and what a crash may show.

mod read;
mod write;

pub use read::read;
pub use write::write;
