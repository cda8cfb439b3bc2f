//! The programs that judge images in xfskit's tests, and means to compare their results.
//!
//! | judge | function |
//! |---|---|
//! | xfsprogs (mkfs.xfs, xfs_repair, xfs_db, ...) | [`Reference::tool`], [`Reference::repair_finds_nothing`] |
//! | this machine's kernel | [`kernel_mount`] |
//! | the newest kernel, as a process | [`Reference::uml`] |
//! | the kernel's own scrub, on an emulated machine | [`scrub()`] |
//!
//! The tools are installed into a folder of their own by `scripts/reference`. If they are missing, a test prints that
//! and returns; with `CI=true` in the environment it fails:
//!
//! ```no_run
//! let Some(reference) = xfskit_testkit::reference() else { return };
//! ```
//! These functions panic on failure, because only tests use them.
#![forbid(unsafe_code)]

mod far;
mod fuzzed;
mod mount;
mod noted;
mod reference;
mod scratch;
mod scrub;
mod tree;

pub use far::FarDevice;
pub use fuzzed::fuzzed_images;
pub use mount::{Mount, kernel_mount, kernel_mount_with, try_kernel_mount};
pub use noted::NotedDevice;
pub use reference::{Reference, UML_DISKS, UmlRun, reference};
pub use scratch::{Scratch, copy_image, scratch};
pub use scrub::scrub;
pub use tree::{TreeEntry, tree};

/// Prints that a test is skipped, and why. With `CI=true` no test may be skipped.
///
/// # Panics
/// With `CI=true` in the environment.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "a test cannot be skipped in CI: {why}");
    println!("skipped: {why}");
}
