//! Exit codes: what a script can tell apart. They are documented in `--help`.

use crate::interrupt::{self, Interrupted};
use xfskit::Error;
use xfskit::device::OpenError;
use xfskit::ondisk::SuperblockError;
use xfskit_bench::BenchError;
use xfskit_fuse::MountError;
use xfskit_mkfs::MakeError;
use xfskit_transfer::TransferError;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// The image is damaged.
pub const DAMAGED: u8 = 3;
const BUSY: u8 = 4;
const BAD_SOURCE: u8 = 5;
const UNREADABLE: u8 = 6;
const UNSUPPORTED: u8 = 7;
const NO_MOUNT: u8 = 8;
/// Something was copied, but for what was refused.
pub const LOSSES: u8 = 9;

/// A wrong argument that only the command itself could see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// What a file holds instead of an image.
#[derive(Debug, thiserror::Error)]
#[error("this is not an XFS image: it holds {0}")]
pub struct NotAnImage(pub &'static str);

/// An image that a server of ours has.
#[derive(Debug, thiserror::Error)]
#[error(
    "{image}: the image is in use by {holders}, which has it mounted on {place}: its files can be read and changed there; \
     for this command, 'xfskit umount {place}' comes first"
)]
pub struct Mounted {
    /// The image.
    pub image: String,
    /// The server.
    pub holders: String,
    /// The mount point.
    pub place: String,
}

/// A failure that was reported already, by a server that runs on its own or by a command with exit codes of its own.
#[derive(Debug, thiserror::Error)]
#[error("it was reported already")]
pub struct Reported(pub u8);

/// Some of several operands failed; what could be done for the others was done.
#[derive(Debug, Default)]
pub struct Failures {
    errors: Vec<anyhow::Error>,
    /// Those that are not kept.
    more: u64,
    /// Something was done.
    done: bool,
}

/// Errors that are kept to be told.
const MOST_ERRORS: usize = 1000;

impl Failures {
    /// Takes what an operand came to. A signal ends the work: that error is not kept but returned.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn note(&mut self, result: anyhow::Result<()>) -> anyhow::Result<()> {
        match result {
            Ok(()) => self.done = true,
            Err(error) if is_interrupted(&error) => return Err(error),
            Err(error) => match error.downcast::<Self>() {
                Ok(inner) => {
                    self.done |= inner.done;
                    self.more += inner.more;
                    inner.errors.into_iter().for_each(|error| self.keep(error));
                }
                Err(error) => self.keep(error),
            },
        }
        Ok(())
    }

    fn keep(&mut self, error: anyhow::Error) {
        if self.errors.len() < MOST_ERRORS { self.errors.push(error) } else { self.more += 1 }
    }

    /// What all of them came to.
    ///
    /// # Errors
    /// Itself, if there was any error.
    pub fn into_result(self) -> anyhow::Result<()> {
        if self.errors.is_empty() { Ok(()) } else { Err(self.into()) }
    }

    /// Whether something was done all the same.
    pub fn are_partial(&self) -> bool {
        self.done
    }

    /// The messages, each to be told by itself.
    pub fn messages(&self) -> impl Iterator<Item = String> + '_ {
        let more = (self.more > 0).then(|| format!("and {} more errors", self.more));
        self.errors.iter().map(message).chain(more)
    }
}

impl std::error::Error for Failures {}

impl std::fmt::Display for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.messages().collect::<Vec<_>>().join("; "))
    }
}

/// Does something for each of several operands; an error of one keeps it from no other.
///
/// # Errors
/// [`Failures`], and `Interrupted`.
pub fn for_each<T>(
    operands: impl IntoIterator<Item = T>,
    mut action: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut failures = Failures::default();
    for operand in operands {
        interrupt::check()?;
        failures.note(action(operand))?;
    }
    failures.into_result()
}

/// The exit code of an error: that of the first cause that has one.
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(of_cause).unwrap_or(FAILED)
}

/// The message of an error: its causes from the outside in, but for those that tell what was told already.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// Whether output went to a reader that does not read any more.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    error.chain().find_map(io) == Some(std::io::ErrorKind::BrokenPipe)
}

/// Whether a signal ended the work.
pub fn is_interrupted(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<Interrupted>() || matches!(cause.downcast_ref::<TransferError>(), Some(TransferError::Interrupted))
    })
}

fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(of_engine(error));
    }
    if let Some(error) = cause.downcast_ref::<SuperblockError>() {
        return Some(of_superblock(error));
    }
    if let Some(error) = cause.downcast_ref::<OpenError>() {
        return Some(if matches!(error, OpenError::Busy(_)) { BUSY } else { UNREADABLE });
    }
    if let Some(error) = cause.downcast_ref::<MakeError>() {
        return Some(if matches!(error, MakeError::Io(_)) { UNREADABLE } else { USAGE });
    }
    if let Some(error) = cause.downcast_ref::<MountError>() {
        return Some(match error {
            MountError::Close(error) => of_engine(error),
            _ => NO_MOUNT,
        });
    }
    if matches!(cause.downcast_ref::<TransferError>(), Some(TransferError::NotReplaced { .. })) {
        return Some(USAGE);
    }
    if let Some(error) = cause.downcast_ref::<TransferError>()
        && error.is_bad_source()
    {
        return Some(BAD_SOURCE);
    }
    if let Some(error) = cause.downcast_ref::<BenchError>() {
        return Some(match error {
            BenchError::Usage(_) => USAGE,
            BenchError::Missing(_) | BenchError::NotWritable { .. } => UNREADABLE,
            BenchError::NoKernel(_) => NO_MOUNT,
            BenchError::NoTool(_) | BenchError::Interrupted => FAILED,
        });
    }
    if let Some(failures) = cause.downcast_ref::<Failures>() {
        return failures.errors.first().map(code);
    }
    if let Some(reported) = cause.downcast_ref::<Reported>() {
        return Some(reported.0);
    }
    if cause.is::<Mounted>() {
        return Some(BUSY);
    }
    if cause.is::<NotAnImage>() {
        return Some(DAMAGED);
    }
    cause.is::<Usage>().then_some(USAGE)
}

fn of_engine(error: &Error) -> u8 {
    match error {
        Error::Corrupt(_) => DAMAGED,
        Error::Superblock(error) => of_superblock(error),
        Error::Unsupported(_) => UNSUPPORTED,
        Error::DeviceInUse => BUSY,
        Error::Io { .. } => UNREADABLE,
        _ => FAILED,
    }
}

fn of_superblock(error: &SuperblockError) -> u8 {
    if matches!(error, SuperblockError::Unsupported(_)) { UNSUPPORTED } else { DAMAGED }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use xfskit::device::{Access, FileDevice};

    #[test]
    fn a_code_is_found_below_context() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let open = || FileDevice::open(image.path(), Access::Write);
        let _first = open().unwrap();
        assert_eq!(code(&open().context("a.img").unwrap_err()), BUSY);
        assert_eq!(code(&anyhow::Error::from(Error::NotFound)), FAILED);
        assert_eq!(code(&anyhow::Error::from(Usage("x".into()))), USAGE);
    }
}
