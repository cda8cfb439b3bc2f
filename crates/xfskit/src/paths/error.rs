//! Errors that say which path.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use xfskit_device::OpenError;
use xfskit_engine::Error as Cause;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, of which path, and why.
///
/// [`kind`](Self::kind), [`errno`](Self::errno) and [`cause`](Self::cause) are for programs, the message is for people.
/// `?` turns the error into a [`std::io::Error`] that has the number and not the message.
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
    /// A file is to be changed that was opened to read only.
    #[error("{verb} {}: the file was opened to read only", Shown(.path))]
    OpenToRead {
        /// What was to be done.
        verb: &'static str,
        /// The path in the image.
        path: Vec<u8>,
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

    /// The number of the error that the system call would have had, as `ENOENT`; `EIO` (5) where the system has none.
    ///
    /// ```
    /// use std::io::Write;
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    ///
    /// let missing = fs.read("/none").unwrap_err();
    /// assert_eq!(missing.errno(), 2); // ENOENT
    /// assert_eq!(missing.to_string(), "open /none: no such file or directory");
    /// assert_eq!(std::io::Error::from(missing).raw_os_error(), Some(2));
    ///
    /// let full = fs.create_file("/log")?.write_all(&[0; 64 << 20]).unwrap_err();
    /// assert_eq!(full.raw_os_error(), Some(28)); // ENOSPC
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    pub fn errno(&self) -> i32 {
        let of_system = |error: &io::Error| error.raw_os_error().unwrap_or(EIO);
        match self {
            Self::Path { source, .. } | Self::Rename { source, .. } | Self::Image { source, .. } => source.errno(),
            Self::Volume(source) => source.errno(),
            Self::OpenToRead { .. } => EBADF,
            Self::Open(error) => match error {
                OpenError::Missing(_) | OpenError::NoFolder(_) => ENOENT,
                OpenError::NotAnImage { .. } => EINVAL,
                OpenError::Busy(_) => EBUSY,
                OpenError::ReadOnlyDevice(_) => EROFS,
                OpenError::Io { source, .. } => of_system(source),
            },
            Self::InUse => EBUSY,
            Self::HoldsData { .. } => EEXIST,
            #[cfg(feature = "mkfs")]
            Self::Make(xfskit_mkfs::MakeError::Io(source)) => of_system(source),
            #[cfg(feature = "mkfs")]
            Self::Make(_) => EINVAL,
        }
    }

    /// The kind that [`std::io::Error`] has for this, but for damage, which is `InvalidData`, and for attributes, where
    /// the system has no kind of its own.
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
            Self::OpenToRead { .. } => io::ErrorKind::PermissionDenied,
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
            Self::OpenToRead { verb, path } => {
                f.debug_struct("OpenToRead").field("verb", verb).field("path", &text(path)).finish()
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

/// With the number of the system call's error in [`raw_os_error`](io::Error::raw_os_error), as the errors of `std::fs`.
/// It has no room for more: the path, the message and the damage stay behind. `io::Error::new(error.kind(), error)`
/// keeps those, and not the number, and so does the end of a file that came too early. What says that the image or the
/// device is in trouble goes to `tracing` first.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        if error.cause().is_some_and(Cause::is_damage) {
            tracing::error!(%error, "an error is reported by its number alone");
        }
        // The end of a file is no error of the system, and has no number in `std` either.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::new(io::ErrorKind::UnexpectedEof, error);
        }
        Self::from_raw_os_error(error.errno())
    }
}
