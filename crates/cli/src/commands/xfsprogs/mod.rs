//! The programs of xfsprogs by whose names xfskit can be called, so that other programs find them in `PATH`:
//! `mkfs.xfs`, `fsck.xfs` and `xfs_info`. They take the arguments of the originals and, like these, end with 1 after
//! any error.

mod arguments;
mod fsck;
mod info;
mod mkfs;
mod proto_option;

use crate::output::exit::{Reported, is_broken_pipe, is_interrupted, message};
use crate::output::screen::report;
use anyhow::Result;

/// The exit code of programs other than checkers after an error.
const FAILED: u8 = 1;
/// That of a checker that was called wrongly.
const FSCK_USAGE: u8 = 16;

/// `mkfs.xfs`.
pub fn mkfs() -> Result<()> {
    ending_with(FAILED, mkfs::run())
}

/// `xfs_info`.
pub fn info() -> Result<()> {
    ending_with(FAILED, info::run())
}

/// `fsck.xfs`.
pub fn fsck() -> Result<()> {
    ending_with(FSCK_USAGE, fsck::run())
}

/// Reports an error, and gives it the exit code of the original.
fn ending_with(code: u8, result: Result<()>) -> Result<()> {
    match result {
        Err(error) if is_broken_pipe(&error) || is_interrupted(&error) => Err(error),
        Err(error) if code == FSCK_USAGE && error.is::<Reported>() => Err(error),
        Err(error) => {
            if !error.is::<Reported>() {
                report(&message(&error));
            }
            Err(Reported(code).into())
        }
        done => done,
    }
}

/// The version of xfsprogs whose options and defaults `mkfs.xfs` has.
const XFSPROGS_VERSION: &str = "7.2.0";

/// The version as the original prints it, with this program's behind it.
fn version_line(program: &str) -> String {
    format!("{program} version {XFSPROGS_VERSION} (xfskit {})", env!("CARGO_PKG_VERSION"))
}
