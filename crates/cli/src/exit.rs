//! Exit codes, by which a script distinguishes results. `--help` and the man pages show these tables.
//!
//! The first cause of an error that has a code decides ([`code`]). Errors of the host's filesystem or a device below an
//! image get their code in one place (`of_io`): lack of space is a failed operation, wherever it occurs, and an end of
//! file that is too early is damage.

use crate::image::wait;
use crate::interrupt::{self, Interrupted};
use std::io;
use xfskit::device::OpenError;
use xfskit::device::probe::Kind;
use xfskit::ondisk::SuperblockError;
use xfskit::volume::Error;
use xfskit_check::CheckError;
use xfskit_disk::{DiskError, PartFault};
use xfskit_fuse::MountError;
use xfskit_mkfs::MakeError;
use xfskit_transfer::{NotReplaced, TransferError};

/// The exit codes of every command but `check`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed (no such file, nothing is mounted there, no space left in the image or on
     the host, standard output that cannot be written, ...)
  2  wrong usage, or a file or device that is only overwritten with -f
  3  the image is damaged or cut short, its journal or its first superblock too, or a part of it
     cannot be read (the rest was listed or copied), or it is not an XFS image
  4  the image is in use by another program or the kernel
  5  the source of cp, import or mkfs --from is damaged, unsafe, no tar archive, or it changed
     meanwhile; or a manifest or a file of contexts makes no sense
  6  the image cannot be opened or read (missing, a folder, an I/O error)
  7  the image uses a feature that xfskit does not support
  8  this machine cannot mount it (no /dev/fuse, no fusermount3, a bad mount point)
  9  copied, but for what was refused: device nodes, attributes; with -p or -a, owners
  130, 143, 129, 141  in a shell: ended by SIGINT, SIGTERM or SIGHUP, with the image closed in good
     order; or by SIGPIPE, where the reader of cat, export, xattr get or xattr dump has gone";

/// The exit codes of `check`.
pub const CHECK_EXIT_CODES: &str = "\
Exit codes (those of fsck):
  0   nothing is wrong
  1   faults were found; nothing was changed, xfs_repair mends them
  4   the journal is dirty and was not replayed: faults may disappear after a replay
  8   the image could not be checked (missing, in use, not supported, an I/O error), or the report
      could not be written
  16  wrong usage, the device of an external journal that is missing among it";

const FAILED: u8 = 1;
/// The arguments are wrong.
pub const USAGE: u8 = 2;
/// The image is damaged.
pub const DAMAGED: u8 = 3;
const BUSY: u8 = 4;
const BAD_SOURCE: u8 = 5;
/// The image cannot be opened or read.
pub const UNREADABLE: u8 = 6;
const UNSUPPORTED: u8 = 7;
const NO_MOUNT: u8 = 8;
/// Something was copied, but parts were refused.
pub const LOSSES: u8 = 9;

/// A wrong argument that only the command itself can detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The contents of a file that is not an image.
#[derive(Debug, thiserror::Error)]
#[error("this is not an XFS image: it holds {0}{hint}", hint = hint_at(*.0))]
pub struct NotAnImage(pub Kind);

/// What the user can do about it.
fn hint_at(contents: Kind) -> &'static str {
    match contents {
        Kind::Mbr => {
            "; name the device of the partition, or a part of the disk (disk.img#1). No copy of a superblock was found \
             near the start and where an AG is likely to start: an XFS image that the table was written over with \
             other AGs is found by xfs_repair -n"
        }
        Kind::Zeros => {
            "; 'xfskit mkfs' makes an image of it, unless it is the external journal of an image: one that was \
             cleared is zeros too"
        }
        Kind::XfsLog => "; name that image, and this with --logdev (of a mount: -o logdev=)",
        _ => "",
    }
}

/// An image that a server of xfskit uses.
#[derive(Debug, thiserror::Error)]
#[error(
    "{image}: the image is in use by {holders}, which has it mounted on {place}: its files can be read and changed \
     there; for this command, 'xfskit umount {place}' comes first"
)]
pub struct Mounted {
    /// The image.
    pub image: String,
    /// The server.
    pub holders: String,
    /// The mount point.
    pub place: String,
}

/// A path on a mount of xfskit that is not an image.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct OnMount {
    /// What it is, and what to do instead.
    pub message: String,
    /// The exit code.
    pub code: u8,
}

/// A failure that is already reported: by a server in a process of its own, or by a command with exit codes of its own.
#[derive(Debug, thiserror::Error)]
#[error("it was reported already")]
pub struct Reported(pub u8);

/// Errors of some of several operands; the others were carried out.
#[derive(Debug, Default)]
pub struct Failures {
    errors: Vec<anyhow::Error>,
    /// Number of errors beyond [`MAX_ERRORS`].
    more: u64,
    /// At least one operand succeeded.
    done: bool,
}

/// Most errors that are recorded for the report.
const MAX_ERRORS: usize = 1000;

impl Failures {
    /// Records the result of an operand. A signal ends the work: its error is not recorded but returned.
    ///
    /// # Errors
    /// `Interrupted`; one of standard output.
    pub fn note(&mut self, result: anyhow::Result<()>) -> anyhow::Result<()> {
        match result {
            Ok(()) => self.done = true,
            // An error of standard output is returned too, since nothing more can be printed.
            Err(error) if is_interrupted(&error) || error.is::<io::Error>() => return Err(error),
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

    /// What a step gave, or nothing: its error is noted.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub fn unless_failed<T>(&mut self, result: Result<T, impl Into<anyhow::Error>>) -> anyhow::Result<Option<T>> {
        match result {
            Ok(given) => Ok(Some(given)),
            Err(error) => self.note(Err(error.into())).map(|()| None),
        }
    }

    fn keep(&mut self, error: anyhow::Error) {
        if self.errors.len() < MAX_ERRORS { self.errors.push(error) } else { self.more += 1 }
    }

    /// The result of all operands.
    ///
    /// # Errors
    /// These failures, if there are any.
    pub fn into_result(self) -> anyhow::Result<()> {
        if self.errors.is_empty() { Ok(()) } else { Err(self.into()) }
    }

    /// Whether at least one operand succeeded.
    pub fn are_partial(&self) -> bool {
        self.done
    }

    /// The exit code: that of the first error, unless a part of the image could not be read and the rest could.
    fn code(&self) -> Option<u8> {
        let mut codes = self.errors.iter().map(code);
        let is_unreadable = |code| matches!(code, DAMAGED | UNREADABLE);
        if self.done && codes.clone().any(is_unreadable) { Some(DAMAGED) } else { codes.next() }
    }

    /// The messages, to be printed one by one, each with its exit code.
    pub fn messages(&self) -> impl Iterator<Item = (String, u8)> + '_ {
        let more = (self.more > 0).then(|| (format!("and {} more errors", self.more), FAILED));
        self.errors.iter().map(|error| (message(error), code(error))).chain(more)
    }
}

impl std::error::Error for Failures {}

impl std::fmt::Display for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.messages().map(|(message, _)| message).collect::<Vec<_>>().join("; "))
    }
}

/// Runs an action for each of several operands; an error of one does not prevent the others.
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

/// The message of an error: its causes from the outside in, without those that the text before contains, and without a
/// name that the next cause begins with; then what the user can do about it with this command.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() || cause.starts_with(&format!("{message}: ")) {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    if let Some(advice) = error.chain().find_map(advice) {
        message.push_str(advice);
    }
    message
}

/// What a user of the command can do about an error of the libraries, which do not know its options.
fn advice(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let is_log_missing = matches!(cause.downcast_ref(), Some(CheckError::NoLogDevice));
    if matches!(cause.downcast_ref(), Some(OpenError::Busy(_))) && wait().is_zero() {
        return Some("; --wait SECONDS waits until it is not");
    }
    if cause.is::<Mounted>() && wait().is_zero() {
        return Some(", or --wait SECONDS waits for that");
    }
    match cause.downcast_ref::<Error>() {
        Some(Error::Corrupt(damage)) if damage.structure.starts_with("log") => Some(
            "; commands that only read show with --norecovery what is on disk without the journal, and `xfskit check` \
             says what is damaged",
        ),
        Some(Error::Corrupt(_)) => {
            Some("; run `xfskit check` on the image, or xfs_repair -n, to see the extent of the damage")
        }
        Some(Error::NoLogDevice) => Some(": name it with --logdev DEVICE, or -o logdev=DEVICE for mount"),
        _ if is_log_missing => Some(": name it with --logdev DEVICE"),
        _ => None,
    }
}

/// Whether the reader of the output has closed the pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    error.chain().find_map(io) == Some(std::io::ErrorKind::BrokenPipe)
}

/// Whether a signal has ended the work.
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
        return Some(of_opening(error));
    }
    if let Some(error) = cause.downcast_ref::<DiskError>() {
        return Some(of_disk(error));
    }
    if cause.is::<xfskit_nbd::OpenError>() {
        return Some(UNREADABLE);
    }
    if let Some(error) = cause.downcast_ref::<MakeError>() {
        return Some(if let MakeError::Io(source) = error { of_io(source) } else { USAGE });
    }
    if let Some(error) = cause.downcast_ref::<CheckError>() {
        return Some(match error {
            CheckError::Superblock(error) => of_superblock(error),
            CheckError::Io(source) => of_io(source),
            CheckError::NoLogDevice => USAGE,
        });
    }
    if let Some(error) = cause.downcast_ref::<MountError>() {
        return Some(match error {
            MountError::Close(error) => of_engine(error),
            _ => NO_MOUNT,
        });
    }
    if let Some(TransferError::LostNames { lost, .. }) = cause.downcast_ref::<TransferError>() {
        return Some(of_engine(&lost.error));
    }
    if let Some(TransferError::NotReplaced { why, .. }) = cause.downcast_ref::<TransferError>() {
        return Some(of_kept(why));
    }
    if let Some(why) = cause.downcast_ref::<NotReplaced>() {
        return Some(of_kept(why));
    }
    if let Some(error) = cause.downcast_ref::<TransferError>()
        && error.is_bad_source()
    {
        return Some(BAD_SOURCE);
    }
    #[cfg(feature = "bench")]
    if let Some(error) = cause.downcast_ref::<xfskit_bench::BenchError>() {
        use xfskit_bench::BenchError;
        return Some(match error {
            BenchError::Usage(_) => USAGE,
            BenchError::Missing(_) | BenchError::NotWritable { .. } => UNREADABLE,
            BenchError::NoKernel(_) => NO_MOUNT,
            BenchError::NoTool(_) | BenchError::Interrupted => FAILED,
        });
    }
    if let Some(failures) = cause.downcast_ref::<Failures>() {
        return failures.code();
    }
    if let Some(reported) = cause.downcast_ref::<Reported>() {
        return Some(reported.0);
    }
    if cause.is::<Mounted>() {
        return Some(BUSY);
    }
    if let Some(on_mount) = cause.downcast_ref::<OnMount>() {
        return Some(on_mount.code);
    }
    if cause.is::<NotAnImage>() {
        return Some(DAMAGED);
    }
    cause.is::<Usage>().then_some(USAGE)
}

fn of_opening(error: &OpenError) -> u8 {
    match error {
        OpenError::Busy(_) => BUSY,
        OpenError::Io { source, .. } => of_io(source),
        OpenError::Missing(_)
        | OpenError::NoFolder(_)
        | OpenError::NotAnImage { .. }
        | OpenError::ReadOnlyDevice(_) => UNREADABLE,
    }
}

fn of_disk(error: &DiskError) -> u8 {
    match error {
        DiskError::Open(error) => of_opening(error),
        DiskError::Refused { .. } => UNSUPPORTED,
        DiskError::Damaged { .. } => DAMAGED,
        DiskError::Part { fault: PartFault::NotOne, .. } | DiskError::Syntax { .. } => USAGE,
        DiskError::Part { fault: PartFault::NoXfs, .. } => DAMAGED,
        DiskError::Part { fault: PartFault::Unusable, .. } => UNSUPPORTED,
        DiskError::Io { source, .. } => of_io(source),
    }
}

fn of_kept(why: &NotReplaced) -> u8 {
    match why {
        NotReplaced::InUse(_) => BUSY,
        NotReplaced::Contents(_) => USAGE,
    }
}

fn of_engine(error: &Error) -> u8 {
    match error {
        Error::Corrupt(_) => DAMAGED,
        Error::Superblock(error) => of_superblock(error),
        Error::Unsupported(_) => UNSUPPORTED,
        Error::DeviceInUse => BUSY,
        Error::NoLogDevice => USAGE,
        Error::Io { source, .. } => of_io(source),
        _ => FAILED,
    }
}

/// The exit code of a system error of an image or device.
fn of_io(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => FAILED,
        io::ErrorKind::UnexpectedEof => DAMAGED,
        _ => UNREADABLE,
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

    #[test]
    fn advice_stands_at_the_end_of_a_message() {
        let missing = anyhow::Error::from(Error::NoLogDevice).context("a.img");
        let text = message(&missing);
        assert!(
            text.starts_with("a.img: ") && text.ends_with("--logdev DEVICE, or -o logdev=DEVICE for mount"),
            "{text}"
        );
        let damage = Error::from(xfskit::ondisk::Corruption::new("AGF", "checksum"));
        let text = message(&anyhow::Error::from(damage).context("/etc").context("a.img"));
        assert_eq!(text.matches("AGF").count(), 1, "{text}");
        assert!(text.starts_with("a.img: /etc: ") && text.contains("; run `xfskit check` on the image"), "{text}");
        assert!(!message(&Error::NotFound.into()).contains("xfskit"));
    }
}
