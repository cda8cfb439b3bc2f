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

/// An error tag in an option: its name, and the number of the pass at which it fails.
pub fn error_tag(text: &str) -> Result<(&'static str, u32), String> {
    let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
    let tag = xfskit::volume::error_tags::find(name);
    let tag = tag.ok_or_else(|| format!("{name:?} is not an error tag: docs/mounting.md lists them"))?;
    let nth = nth.parse::<std::num::NonZeroU32>();
    let nth = nth.map_err(|_| format!("{text:?}: expected NAME or NAME:NTH, from 1 on"))?;
    Ok((tag, nth.get()))
}
