//! Why an image cannot be made.

use std::io;
use xfskit_ondisk::SuperblockError;
use xfskit_ondisk::new_ag::NoRoom;

/// Why an image cannot be made. Every message names the option that a person can change, and says the cause;
/// [`source`](std::error::Error::source) does not return it again.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// An option that mkfs.xfs does not have.
    #[error("{option}: no such option")]
    Unknown {
        /// The option, as in `-d agcount`.
        option: String,
    },
    /// An option of mkfs.xfs that xfskit does not support.
    #[error("{option}: {what}: not supported by xfskit")]
    Unsupported {
        /// The option.
        option: String,
        /// What it asks for.
        what: &'static str,
    },
    /// A value that an option cannot have.
    #[error("{option}={value}: {why}")]
    Value {
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// Options that exclude each other.
    #[error("{option}: {why}")]
    Conflict {
        /// The option.
        option: String,
        /// What it excludes or needs.
        why: String,
    },
    /// The device is too small for the image.
    #[error("{0}")]
    Size(String),
    /// The options result in a superblock that xfskit itself would refuse.
    #[error("these options lead to an image that is not valid: {0}")]
    Invalid(SuperblockError),
    /// A read or write failed.
    #[error("cannot write the image: {0}")]
    Io(io::Error),
}

impl From<SuperblockError> for MakeError {
    fn from(error: SuperblockError) -> Self {
        Self::Invalid(error)
    }
}

impl From<io::Error> for MakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<NoRoom> for MakeError {
    fn from(error: NoRoom) -> Self {
        Self::Size(error.to_string())
    }
}

impl MakeError {
    pub(crate) fn value(option: impl Into<String>, value: impl ToString, why: impl Into<String>) -> Self {
        Self::Value { option: option.into(), value: value.to_string(), why: why.into() }
    }

    pub(crate) fn conflict(option: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Conflict { option: option.into(), why: why.into() }
    }
}
