//! One file for each group of commands.

pub mod admin;
pub mod attributes;
#[cfg(feature = "bench")]
pub mod bench;
pub mod check;
pub mod contents;
pub mod copy;
mod copy_volume;
#[cfg(feature = "bench")]
pub mod crash_test;
pub mod export;
pub mod files;
pub mod fill;
pub mod find;
pub mod generate;
pub mod import;
pub mod info;
pub mod label;
pub mod list;
pub mod log;
pub mod ls;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod parents;
pub mod stats;
pub mod trees;
pub mod umount;
pub mod usage;
pub mod xattr;
pub mod xfsprogs;
