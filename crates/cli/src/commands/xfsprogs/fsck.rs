//! `fsck.xfs`: does nothing, since the journal is replayed when the image is mounted or opened.
//!
//! The programs that call it at boot want only to know that there is a checker for the type.

use super::version::version_line;
use crate::open::session::Session;
use crate::output::causes::{Reported, Usage};
use crate::output::error::Result;
use crate::output::screen::say;

/// The exit code of a checker that failed.
const FSCK_FAILED: u8 = 8;

/// Runs the program. Of its options only `-V` does something; `-a`, `-p` and `-y` mean that no person reads its
/// message.
pub fn run(session: &Session) -> Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let is_option = |letters: &str| words.iter().any(|word| letters.split(' ').any(|option| word == option));
    if is_option("-V") {
        say!(session.output, "{}", version_line("fsck.xfs"));
        return Ok(());
    }
    let device = words.iter().rfind(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let device = device.ok_or_else(|| Usage("expected a device".into()))?;
    if let Err(error) = std::fs::metadata(device) {
        session.messages().report(&format!("{}: {error}", device.display()));
        return Err(Reported(FSCK_FAILED).into());
    }
    if !is_option("-a -A -p -y") {
        say!(session.output, "To check an XFS image run 'xfskit check', to repair one xfs_repair.");
    }
    Ok(())
}
