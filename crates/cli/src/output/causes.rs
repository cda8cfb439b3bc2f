//! The kinds of errors: of those that the command makes itself, and of those of the libraries.
//!
//! Errors of the host's filesystem or a device below an image get their kind in one place ([`of_io`]): lack of space is
//! a failed operation, wherever it occurs, and an end of file that is too early is damage.

use super::error::{CommandError, Hint, Kind};
use crate::interrupt::Interrupted;
use std::io;
use xfskit_check::CheckError;
use xfskit_device::{OpenError, probe};
use xfskit_disk::{DiskError, PartFault};
use xfskit_engine::Error;
use xfskit_fuse::MountError;
use xfskit_mkfs::MakeError;
use xfskit_ondisk::SuperblockError;
use xfskit_transfer::{NotReplaced, TransferError};
use xfskit_vfs::SuperblockFault;

/// A wrong argument that only the command itself can detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The contents of a file that is not an image.
#[derive(Debug, thiserror::Error)]
#[error("this is not an XFS image: it holds {0}{hint}", hint = hint_at(*.0))]
pub struct NotAnImage(pub probe::Kind);

/// What the user can do about it.
fn hint_at(contents: probe::Kind) -> &'static str {
    match contents {
        probe::Kind::Mbr => {
            "; name the device of the partition, or a part of the disk (disk.img#1). No copy of a superblock was found \
             near the start and where an AG is likely to start: an XFS image that the table was written over with \
             other AGs is found by xfs_repair -n"
        }
        probe::Kind::Zeros => {
            "; 'xfskit mkfs' makes an image of it, unless it is the external journal of an image: one that was \
             cleared is zeros too"
        }
        probe::Kind::XfsLog => "; name that image, and this with --logdev (of a mount: -o logdev=)",
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

/// A failure that is already reported, with its exit code: by a server in a process of its own, or by a command with
/// exit codes of its own.
#[derive(Debug, thiserror::Error)]
#[error("it was reported already")]
pub struct Reported(pub u8);

/// Errors that have a kind, whatever they say.
macro_rules! of_kind {
    ($($error:ty: $kind:expr),* $(,)?) => {
        $(impl From<$error> for CommandError {
            fn from(error: $error) -> Self {
                Self::new($kind, error)
            }
        })*
    };
}

of_kind! {
    Usage: Kind::Usage,
    NotAnImage: Kind::NotAnImage,
    Interrupted: Kind::Interrupted,
    xfskit_nbd::OpenError: Kind::Unreadable,
    xfskit_sandbox::SandboxError: Kind::Failed,
    xfskit_transfer::NotSeen: Kind::Failed,
    serde_json::Error: Kind::Failed,
}

impl From<Reported> for CommandError {
    fn from(reported: Reported) -> Self {
        Self::new(Kind::Reported(reported.0), reported)
    }
}

impl From<Mounted> for CommandError {
    fn from(mounted: Mounted) -> Self {
        Self::new(Kind::Busy, mounted).with_hint(Hint::UnlessWaiting(", or --wait SECONDS waits for that"))
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::BrokenPipe } else { Kind::System };
        Self::new(kind, error)
    }
}

impl From<rustix::io::Errno> for CommandError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::new(Kind::Failed, error)
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let (kind, hint) = (of_engine(&error), hint_of_engine(&error));
        with(kind, error, hint)
    }
}

impl From<SuperblockError> for CommandError {
    fn from(error: SuperblockError) -> Self {
        Self::new(of_superblock(&error), error)
    }
}

impl From<OpenError> for CommandError {
    fn from(error: OpenError) -> Self {
        let is_busy = matches!(error, OpenError::Busy(_));
        let hint = is_busy.then_some(Hint::UnlessWaiting("; --wait SECONDS waits until it is not"));
        with(of_opening(&error), error, hint)
    }
}

impl From<DiskError> for CommandError {
    fn from(error: DiskError) -> Self {
        let kind = match &error {
            DiskError::Open(error) => of_opening(error),
            DiskError::Refused { .. } => Kind::Unsupported,
            DiskError::Damaged { .. } => Kind::Damaged,
            DiskError::Part { fault: PartFault::NotOne, .. } | DiskError::Syntax { .. } => Kind::Usage,
            DiskError::Part { fault: PartFault::NoXfs, .. } => Kind::Damaged,
            DiskError::Part { fault: PartFault::Unusable, .. } => Kind::Unsupported,
            DiskError::Io { source, .. } => of_io(source),
        };
        Self::new(kind, error)
    }
}

impl From<MakeError> for CommandError {
    fn from(error: MakeError) -> Self {
        Self::new(of_making(&error), error)
    }
}

impl From<CheckError> for CommandError {
    fn from(error: CheckError) -> Self {
        let (kind, hint) = match &error {
            CheckError::Superblock(error) => (of_superblock(error), None),
            CheckError::Io(source) => (of_io(source), None),
            CheckError::NoLogDevice => (Kind::Usage, Some(Hint::Always(": name it with --logdev DEVICE"))),
        };
        with(kind, error, hint)
    }
}

impl From<MountError> for CommandError {
    fn from(error: MountError) -> Self {
        let (kind, hint) = match &error {
            MountError::Close(error) => (of_engine(error), hint_of_engine(error)),
            _ => (Kind::NoMount, None),
        };
        with(kind, error, hint)
    }
}

impl From<TransferError> for CommandError {
    fn from(error: TransferError) -> Self {
        let (kind, hint) = match &error {
            TransferError::Image { source, .. } => (of_engine(source), hint_of_engine(source)),
            TransferError::LostNames { lost, .. } => (of_engine(&lost.error), None),
            TransferError::NotReplaced { why, .. } => (of_kept(why), None),
            TransferError::Interrupted => (Kind::Interrupted, None),
            TransferError::Host { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                (Kind::BrokenPipe, None)
            }
            error if error.is_bad_source() => (Kind::BadSource, None),
            _ => (Kind::Failed, None),
        };
        let begins_in_image = matches!(error, TransferError::Image { .. } | TransferError::LostNames { .. });
        let error = with(kind, error, hint);
        if begins_in_image { error.with_path_of_image() } else { error }
    }
}

impl From<NotReplaced> for CommandError {
    fn from(why: NotReplaced) -> Self {
        Self::new(of_kept(&why), why)
    }
}

/// An experiment may fail by its own errors, and by those of the images that it makes and opens.
#[cfg(feature = "bench")]
impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        use xfskit_bench::BenchError;
        let kind = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(BenchError::Usage(_)) => Some(Kind::Usage),
            Some(BenchError::Missing(_) | BenchError::NotWritable { .. }) => Some(Kind::Unreadable),
            Some(BenchError::NoKernel(_)) => Some(Kind::NoMount),
            Some(BenchError::NoTool(_) | BenchError::Interrupted) => Some(Kind::Failed),
            None => {
                let of_image = cause.downcast_ref().map(of_opening).or_else(|| cause.downcast_ref().map(of_engine));
                of_image
                    .or_else(|| cause.downcast_ref().map(of_superblock))
                    .or_else(|| cause.downcast_ref().map(of_making))
            }
        });
        Self::new(kind.unwrap_or(Kind::Failed), error)
    }
}

fn with(kind: Kind, error: impl Into<anyhow::Error>, hint: Option<Hint>) -> CommandError {
    let error = CommandError::new(kind, error);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn of_opening(error: &OpenError) -> Kind {
    match error {
        OpenError::Busy(_) => Kind::Busy,
        OpenError::Io { source, .. } => of_io(source),
        OpenError::Missing(_) | OpenError::NoFolder(_) | OpenError::NotAnImage { .. } => Kind::Missing,
        OpenError::ReadOnlyDevice(_) => Kind::Unreadable,
    }
}

fn of_making(error: &MakeError) -> Kind {
    if let MakeError::Io(source) = error { of_io(source) } else { Kind::Usage }
}

fn of_kept(why: &NotReplaced) -> Kind {
    match why {
        NotReplaced::InUse(_) => Kind::Busy,
        NotReplaced::Contents(_) => Kind::Usage,
    }
}

fn of_engine(error: &Error) -> Kind {
    match error {
        Error::Corrupt(_) => Kind::Damaged,
        Error::Superblock { fault, .. } => match fault {
            SuperblockFault::OtherFormat => Kind::NotAnImage,
            SuperblockFault::Damaged => Kind::Damaged,
            SuperblockFault::Unsupported => Kind::Unsupported,
        },
        Error::Unsupported(_) => Kind::Unsupported,
        Error::DeviceInUse => Kind::Busy,
        Error::NoLogDevice => Kind::Usage,
        Error::Io { source, .. } => of_io(source),
        _ => Kind::Failed,
    }
}

fn hint_of_engine(error: &Error) -> Option<Hint> {
    Some(Hint::Always(match error {
        Error::Corrupt(damage) if damage.structure.starts_with("log") => {
            "; commands that only read show with --norecovery what is on disk without the journal, and `xfskit check` \
             says what is damaged"
        }
        Error::Corrupt(_) => "; run `xfskit check` on the image, or xfs_repair -n, to see the extent of the damage",
        Error::NoLogDevice => ": name it with --logdev DEVICE, or -o logdev=DEVICE for mount",
        _ => return None,
    }))
}

/// The kind of a system error of an image or device.
fn of_io(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Kind::Failed,
        io::ErrorKind::UnexpectedEof => Kind::Damaged,
        _ if is_of_dead_server(error) => Kind::Disconnected,
        _ => Kind::Unreadable,
    }
}

/// Whether the reason is the server of a mount that has ended.
pub fn is_of_dead_server(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}

fn of_superblock(error: &SuperblockError) -> Kind {
    if matches!(error, SuperblockError::Unsupported(_)) { Kind::Unsupported } else { Kind::Damaged }
}

#[cfg(test)]
mod tests {
    use super::super::error::{Context, Result};
    use super::super::exit;
    use super::*;
    use std::time::Duration;
    use xfskit_device::{Access, FileDevice};

    fn message(error: &CommandError) -> String {
        error.message(Duration::ZERO)
    }

    #[test]
    fn a_code_is_found_below_context() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let open = || FileDevice::open(image.path(), Access::Write);
        let _first = open().unwrap();
        let busy = open().context("a.img").unwrap_err();
        assert_eq!(busy.code(), exit::BUSY);
        assert!(message(&busy).ends_with("--wait SECONDS waits until it is not"), "{}", message(&busy));
        assert!(!busy.message(Duration::from_secs(1)).contains("--wait"));
        assert_eq!(CommandError::from(Error::NotFound).code(), exit::FAILED);
        assert_eq!(CommandError::from(Usage("x".into())).code(), exit::USAGE);
    }

    #[test]
    fn a_hint_stands_at_the_end_of_a_message() {
        let missing: Result<()> = Err(Error::NoLogDevice).context("a.img");
        let text = message(&missing.unwrap_err());
        assert!(
            text.starts_with("a.img: ") && text.ends_with("--logdev DEVICE, or -o logdev=DEVICE for mount"),
            "{text}"
        );
        let damage = Error::from(xfskit_ondisk::Corruption::new("AGF", "checksum"));
        let text = message(&CommandError::from(damage).context("/etc").context("a.img"));
        assert_eq!(text.matches("AGF").count(), 1, "{text}");
        assert!(text.starts_with("a.img: /etc: ") && text.contains("; run `xfskit check` on the image"), "{text}");
        assert!(!message(&Error::NotFound.into()).contains("xfskit"));
    }
}
