//! The programs of xfsprogs by whose names xfskit can be called, so that other programs find them in `PATH`:
//! `mkfs.xfs`, `fsck.xfs` and `xfs_info`. They take the arguments of the originals and, like these, end with 1 after
//! any error.

mod arguments;
mod fsck;
mod info;
mod mkfs;
mod proto_option;
mod version;

use crate::open::session::Session;
use crate::output::causes::Reported;
use crate::output::error::{Kind, Result};

/// The exit code of programs other than checkers after an error.
const FAILED: u8 = 1;
/// That of a checker that was called wrongly.
const FSCK_USAGE: u8 = 16;

/// `mkfs.xfs`.
pub fn mkfs(session: &Session) -> Result<()> {
    ending_with(session, FAILED, mkfs::run(session))
}

/// `xfs_info`.
pub fn info(session: &Session) -> Result<()> {
    ending_with(session, FAILED, info::run(session))
}

/// `fsck.xfs`.
pub fn fsck(session: &Session) -> Result<()> {
    ending_with(session, FSCK_USAGE, fsck::run(session))
}

/// Reports an error, and gives it the exit code of the original.
fn ending_with(session: &Session, code: u8, result: Result<()>) -> Result<()> {
    match result {
        Err(error) if matches!(error.kind(), Kind::BrokenPipe) || matches!(error.kind(), Kind::Interrupted) => {
            Err(error)
        }
        Err(error) if code == FSCK_USAGE && matches!(error.kind(), Kind::Reported(_)) => Err(error),
        Err(error) => {
            if !matches!(error.kind(), Kind::Reported(_)) {
                session.messages().report(&error.message(session.wait.time()));
            }
            Err(Reported(code).into())
        }
        done => done,
    }
}
