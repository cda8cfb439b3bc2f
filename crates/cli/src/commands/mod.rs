//! One file for each group of commands.

pub mod check;
pub mod crash_test;
pub mod files;
pub mod generate;
pub mod info;
pub mod list;
pub mod log;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod parents;
pub mod stats;
pub mod xattr;
