//! Errors that say which path.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use xfskit_device::OpenError;
use xfskit_engine::Error as Cause;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, of which path, and why.
///
/// [`kind`](Self::kind) and [`cause`](Self::cause) are for programs, the message is for people. `?` turns the error
/// into a [`std::io::Error`] of the same kind.
///
/// The message says all, so [`source`](std::error::Error::source) is `None`: a report that prints a chain of causes
/// prints each once.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a path in the image failed.
    #[error("{verb} {}: {source}", Shown(.path))]
    Path {
        /// What was to be done, as in "create directory".
        verb: &'static str,
        /// The path in the image.
        path: Vec<u8>,
        /// Why it failed.
        r#source: Cause,
    },
    /// A rename failed.
    #[error("rename {} to {}: {source}", Shown(.from), Shown(.to))]
    Rename {
        /// The old path in the image.
        from: Vec<u8>,
        /// The new one.
        to: Vec<u8>,
        /// Why it failed.
        r#source: Cause,
    },
    /// A call that concerns no path of the image failed: opening, syncing, closing.
    #[error("{verb} the image: {source}")]
    Image {
        /// What was to be done.
        verb: &'static str,
        /// Why it failed.
        r#source: Cause,
    },
    /// A call of the level below failed, by [`Filesystem::volume`](crate::Filesystem::volume): `?` takes its errors.
    #[error(transparent)]
    Volume(#[from] Cause),
    /// The image's file cannot be opened or made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The image cannot be closed: another handle of it is open.
    #[error(
        "close the image: another Filesystem, a File or a listing of it is open still; it is closed with the last one"
    )]
    InUse,
    /// An image is to be made where something lies already.
    #[error("{}: it holds {what}; MkfsOptions::replace overwrites it", .path.display())]
    HoldsData {
        /// The file.
        path: PathBuf,
        /// What it holds.
        what: String,
    },
    /// An image cannot be made like this.
    #[cfg(feature = "mkfs")]
    #[error("make the image: {0}")]
    Make(xfskit_mkfs::MakeError),
}

#[cfg(feature = "mkfs")]
impl From<xfskit_mkfs::MakeError> for Error {
    fn from(error: xfskit_mkfs::MakeError) -> Self {
        Self::Make(error)
    }
}

impl Error {
    /// What the engine said, unless the error is of the host's files.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Path { source, .. } | Self::Rename { source, .. } | Self::Image { source, .. } => Some(source),
            Self::Volume(source) => Some(source),
            _ => None,
        }
    }

    /// The kind that [`std::io::Error`] has for this.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    ///
    /// let error = fs.read("/etc/motd").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// assert_eq!(error.to_string(), "open /etc/motd: no such file or directory");
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Path { source, .. } | Self::Rename { source, .. } | Self::Image { source, .. } => source.kind(),
            Self::Volume(source) => source.kind(),
            Self::Open(error) => match error {
                OpenError::Missing(_) | OpenError::NoFolder(_) => io::ErrorKind::NotFound,
                OpenError::NotAnImage { .. } => io::ErrorKind::InvalidInput,
                OpenError::Busy(_) => io::ErrorKind::ResourceBusy,
                OpenError::ReadOnlyDevice(_) => io::ErrorKind::ReadOnlyFilesystem,
                OpenError::Io { source, .. } => source.kind(),
            },
            Self::InUse => io::ErrorKind::ResourceBusy,
            Self::HoldsData { .. } => io::ErrorKind::AlreadyExists,
            #[cfg(feature = "mkfs")]
            Self::Make(xfskit_mkfs::MakeError::Io(source)) => source.kind(),
            #[cfg(feature = "mkfs")]
            Self::Make(_) => io::ErrorKind::InvalidInput,
        }
    }
}

/// The `errno` with which the system call would have failed, of an error of a [`File`](crate::File), and of what `?`
/// made of an [`Error`] or of a [`volume::Error`](crate::volume::Error). [`std::io::Error::raw_os_error`] is `None`
/// there, for the message of the system's number alone would name neither path nor damage. Of all other errors it is
/// the answer here. `None` where neither the engine nor the system gave a number.
///
/// ```
/// use std::io::Write;
/// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
///
/// let full = fs.create_file("/log")?.write_all(&[0; 64 << 20]).unwrap_err();
/// assert_eq!(xfskit::errno_of(&full), Some(28)); // ENOSPC
///
/// fn size(fs: &xfskit::Filesystem, path: &str) -> std::io::Result<u64> {
///     Ok(fs.metadata(path)?.len())
/// }
/// let missing = size(&fs, "/none").unwrap_err();
/// assert_eq!((missing.raw_os_error(), xfskit::errno_of(&missing)), (None, Some(2))); // ENOENT
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn errno_of(error: &io::Error) -> Option<i32> {
    let within = error.get_ref();
    let of_call = within.and_then(|within| within.downcast_ref::<Error>()).and_then(Error::cause);
    let cause = within.and_then(|within| within.downcast_ref::<Cause>()).or(of_call);
    cause.map(Cause::errno).or_else(|| error.raw_os_error())
}

/// A path in a message: escaped, and in quotes where it would be lost otherwise.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.is_empty() || self.0.contains(&b' ') { "\"" } else { "" };
        write!(f, "{quote}{}{quote}", self.0.escape_ascii())
    }
}

/// Paths are shown as text.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OsStr::from_bytes;
        match self {
            Self::Path { verb, path, source } => {
                let mut shown = f.debug_struct("Path");
                shown.field("verb", verb).field("path", &text(path)).field("source", source).finish()
            }
            Self::Rename { from, to, source } => {
                let mut shown = f.debug_struct("Rename");
                shown.field("from", &text(from)).field("to", &text(to)).field("source", source).finish()
            }
            Self::Image { verb, source } => {
                f.debug_struct("Image").field("verb", verb).field("source", source).finish()
            }
            Self::Volume(source) => f.debug_tuple("Volume").field(source).finish(),
            Self::Open(error) => f.debug_tuple("Open").field(error).finish(),
            Self::InUse => f.write_str("InUse"),
            Self::HoldsData { path, what } => {
                f.debug_struct("HoldsData").field("path", path).field("what", what).finish()
            }
            #[cfg(feature = "mkfs")]
            Self::Make(error) => f.debug_tuple("Make").field(error).finish(),
        }
    }
}

/// With the [kind](Error::kind) of the error, and the error itself within.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
