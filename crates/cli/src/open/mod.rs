//! Opens images, and what else a command reads and writes.

pub mod disks;
pub mod edit;
pub mod explain;
pub mod file_mode;
pub mod files;
pub mod grow;
pub mod header;
pub mod in_progress;
pub mod inherited;
pub mod mount_query;
pub mod mounted;
pub mod network;
pub mod new_file;
pub mod overwrite;
pub mod paths;
pub mod policy;
pub mod qemu;
pub mod rescue;
pub mod sandbox;
pub mod session;
pub mod standard_input;
pub mod unread;
pub mod volume;
pub mod wait;
