//! What can go wrong, for everyone who uses a filesystem.
//!
//! A message says the cause as well, so `source` returns none: who prints a chain of causes would print it twice.
//! (`r#source` is a field of that name which is no source to `thiserror`.) A program asks the variant.

use crate::{Corruption, DiskAddress};

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockFault {
    /// It is none: the device has something else, or is too short.
    OtherFormat,
    /// It is damaged.
    Damaged,
    /// It asks for what is not supported.
    Unsupported,
}

/// What can go wrong. The first group is what POSIX operations answer; the second says that the image, the device or
/// the journal is in trouble.
///
/// The message says the cause, and [`source`](std::error::Error::source) does not return it again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such name or inode (`ENOENT`).
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already (`EEXIST`).
    #[error("the name exists already")]
    Exists,
    /// No such attribute (`ENODATA`).
    #[error("no such attribute")]
    NoAttribute,
    /// Not a directory (`ENOTDIR`).
    #[error("not a directory")]
    NotADirectory,
    /// A directory where none may be (`EISDIR`).
    #[error("is a directory")]
    IsADirectory,
    /// The directory holds entries (`ENOTEMPTY`).
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is too long (`ENAMETOOLONG`).
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// The target of a symbolic link is too long (`ENAMETOOLONG`).
    #[error("the target is longer than 1023 bytes")]
    TargetTooLong,
    /// An attribute's name is too long (`ERANGE`).
    #[error("the attribute's name is longer than 255 bytes")]
    AttributeNameTooLong,
    /// An attribute's value is too long (`E2BIG`).
    #[error("the value is longer than 65536 bytes")]
    ValueTooLong,
    /// An argument makes no sense (`EINVAL`).
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The caller may not do this (`EPERM` for ownership, `EACCES` for permission bits).
    #[error("permission denied")]
    AccessDenied,
    /// Only the owner or root may do this, or no caller, for the file is immutable or append-only (`EPERM`).
    #[error("operation not permitted")]
    NotPermitted,
    /// A link or a rename into a directory whose project everything in it has, and the file has another (`EXDEV`).
    #[error("the directory keeps to its project, and the file belongs to another: copy it instead")]
    CrossesProjects,
    /// A path leads through more than 40 symbolic links, or through one that leads to itself (`ELOOP`).
    #[error("too many symbolic links on the way")]
    TooManySymlinks,
    /// Too many links (`EMLINK`).
    #[error("too many links to the file")]
    TooManyLinks,
    /// No space (`ENOSPC`).
    #[error("no space left in the image")]
    NoSpace,
    /// A file would grow beyond what its format or its map can hold (`EFBIG`).
    #[error("the file would be too large")]
    TooLarge,
    /// Nothing of what was looked for lies behind this place of the file (`ENXIO`).
    #[error("no more data in the file")]
    NoMoreData,
    /// Not supported for this kind of file or image (`EOPNOTSUPP`).
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// The image was opened read-only (`EROFS`).
    #[error("the image is open read-only")]
    ReadOnly,
    /// The inode number does not name an inode in use, or its generation has passed (`ESTALE`).
    #[error("stale inode {0}")]
    Stale(u64),

    /// A structure on disk is damaged (`EUCLEAN`).
    #[error(transparent)]
    Corrupt(#[from] Box<Corruption>),
    /// The superblock cannot be used.
    #[error("{why}")]
    Superblock {
        /// In which way.
        fault: SuperblockFault,
        /// What the filesystem's own error said.
        why: String,
    },
    /// The image uses what xfskit does not do (`EOPNOTSUPP`).
    #[error("{0}")]
    Unsupported(String),
    /// The image has an external log, and its device was not given (`EINVAL`).
    #[error("the image has an external log, and its device was not given")]
    NoLogDevice,
    /// This process has another filesystem open on the device (`EBUSY`).
    #[error("this program has a filesystem open on the device already")]
    DeviceInUse,
    /// The device failed (`EIO`; `ENOSPC` and `EDQUOT` if the host says so).
    #[error("{}", describe_io(*offset, source))]
    Io {
        /// Where; 0 for a flush, which concerns the whole device.
        offset: u64,
        /// What the device said.
        r#source: std::io::Error,
    },
    /// The filesystem was shut down by an earlier error (`EIO`).
    #[error("the filesystem was shut down: {0}")]
    Shutdown(String),

    /// A lock could not be had without waiting (`EAGAIN`). The operation that meets it lets go of its own locks and
    /// tries again: no call of a `Volume` returns it.
    #[doc(hidden)]
    #[error("busy, try again")]
    WouldBlock,
}

/// What the device said of a flush.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct FlushRefused(std::io::Error);

fn describe_io(offset: u64, source: &std::io::Error) -> String {
    match source.get_ref().is_some_and(|inner| inner.is::<FlushRefused>()) {
        true => format!("the device did not flush, what was written to it may be lost: {source}"),
        false => format!("I/O error on the device at byte {offset}: {source}"),
    }
}

impl Error {
    /// The device refused a flush.
    pub fn of_flush(source: std::io::Error) -> Self {
        Self::Io { offset: 0, source: std::io::Error::new(source.kind(), FlushRefused(source)) }
    }

    /// Names where damage hangs from, unless its own place is known: the disk address of the inode or AG header through
    /// which the structure was found, and whose it is.
    #[doc(hidden)]
    #[must_use]
    pub fn below(self, address: DiskAddress, owner: u64) -> Self {
        match self {
            Self::Corrupt(corruption) => Self::Corrupt(corruption.below(address, owner)),
            other => other,
        }
    }

    /// The `errno` of the operation that failed, for FUSE and for exit codes.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => 2,
            Self::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::StorageFull => 28,
                std::io::ErrorKind::QuotaExceeded => 122,
                _ => 5,
            },
            Self::Shutdown(_) => 5,
            Self::DeviceInUse => 16,
            Self::AccessDenied => 13,
            Self::WouldBlock => {
                debug_assert!(false, "an operation returned a lock that was not waited for");
                5
            }
            Self::Exists => 17,
            Self::CrossesProjects => 18,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::Invalid(_) | Self::NoLogDevice => 22,
            Self::NoMoreData => 6,
            Self::TooLarge => 27,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
            Self::TooManyLinks => 31,
            Self::AttributeNameTooLong => 34,
            Self::NameTooLong | Self::TargetTooLong => 36,
            Self::NotEmpty => 39,
            Self::TooManySymlinks => 40,
            Self::NoAttribute => 61,
            Self::ValueTooLong => 7,
            Self::NotPermitted => 1,
            Self::NotSupported(_) | Self::Unsupported(_) => 95,
            Self::Stale(_) => 116,
            Self::Corrupt(_) | Self::Superblock { .. } => 117,
        }
    }

    /// The kind that [`std::io::Error`] has for this: what the system says of the same `errno`, `InvalidData` for
    /// damage, and `NotFound` and `InvalidInput` for attributes, where the system has no kind of its own.
    ///
    /// ```
    /// use std::io::{self, ErrorKind};
    /// use xfskit_vfs::Error;
    ///
    /// let error = io::Error::from(Error::NotEmpty);
    /// assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    /// let inner = error.into_inner().unwrap().downcast::<Error>().unwrap();
    /// assert_eq!(inner.errno(), 39);
    /// ```
    pub fn kind(&self) -> std::io::ErrorKind {
        use std::io::ErrorKind;
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Corrupt(_) | Self::Superblock { .. } => ErrorKind::InvalidData,
            Self::NoAttribute => ErrorKind::NotFound,
            Self::ValueTooLong | Self::AttributeNameTooLong => ErrorKind::InvalidInput,
            Self::NoMoreData => ErrorKind::UnexpectedEof,
            Self::Shutdown(_) => ErrorKind::Other,
            other => std::io::Error::from_raw_os_error(other.errno()).kind(),
        }
    }

    /// Whether the error refuses a request, and says nothing of the image or the device. An operation finds out
    /// before its first change.
    pub fn is_refusal(&self) -> bool {
        !self.is_damage() && !matches!(self, Self::Unsupported(_))
    }

    /// Whether the error says that the image or the device is in trouble, rather than the request. A host
    /// without space for the device is such an error too.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Superblock { .. } | Self::Io { .. } | Self::Shutdown(_))
    }
}

/// With the [kind](Error::kind) of the error, and the error itself within: `into_inner` and a downcast give it
/// back, and [`errno`](Error::errno) says the number that the system would have used.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
