//! Opens images, and what else a command reads and writes.

pub mod file_mode;
pub mod header;
pub mod image;
pub mod in_progress;
pub mod inherited;
pub mod mount_query;
pub mod mounted;
pub mod network;
pub mod new_file;
pub mod operand;
pub mod overwrite;
pub mod policy;
pub mod qemu;
pub mod sandbox;
pub mod standard_input;
