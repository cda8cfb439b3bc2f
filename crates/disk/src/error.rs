//! Why a disk, or a part of one, cannot be opened.

use std::io;
use std::path::{Path, PathBuf};
use xfskit_device::OpenError;

/// An error of this crate. Each says what a person can do about it.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file or block device could not be opened; `Busy` for one that another program uses.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A format, or a feature of one, that xfskit does not handle.
    #[error("{}: {what}: {advice}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
        /// Another way.
        advice: String,
    },
    /// A structure that contradicts itself.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The structure, and what is wrong with it.
        what: String,
    },
    /// The part that was named does not exist, or cannot be used.
    #[error("{operand}: {why}{there_is}")]
    Part {
        /// What kind of reason `why` is.
        fault: PartFault,
        /// The operand, as the user named it.
        operand: String,
        /// Why it cannot be used.
        why: String,
        /// What there is instead: a line each, or nothing.
        there_is: String,
    },
    /// An operand that cannot be understood.
    #[error("{operand}: {why}")]
    Syntax {
        /// The operand.
        operand: String,
        /// What is wrong with it.
        why: String,
    },
    /// Any other error of the system.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What is wrong with the part that an operand names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartFault {
    /// There is none, or none that can be told from others.
    NotOne,
    /// No part is named, and there is no XFS filesystem.
    NoXfs,
    /// It is there and cannot be used.
    Unusable,
}

impl DiskError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}

/// How QEMU serves an image in `format`, so that it can be used through NBD.
pub(crate) fn attach(path: &Path, format: &str) -> String {
    let path = path.display();
    format!(
        "serve it with: qemu-nbd -t -f {format} -k /tmp/nbd.sock {path}; then name nbd+unix:///?socket=/tmp/nbd.sock"
    )
}
