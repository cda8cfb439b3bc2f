//! What a path may be written as.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod sealed {
    pub trait Sealed {}
}

/// Something that is a path in an image: bytes, since that is what XFS stores; text, `Path` and `OsStr` have them.
///
/// Only the types listed here are paths. Paths count from the image's root, with a leading slash or without.
///
/// ```
/// use xfskit::AsPath;
///
/// assert_eq!("/etc".as_path_bytes(), b"/etc");
/// assert_eq!(std::path::Path::new("/etc").as_path_bytes(), b"/etc");
/// assert_eq!(b"caf\xe9".as_path_bytes().len(), 4);
/// ```
pub trait AsPath: sealed::Sealed {
    /// The bytes of the path.
    fn as_path_bytes(&self) -> &[u8];
}

macro_rules! paths {
    ($($type:ty => |$path:ident| $bytes:expr;)+) => {$(
        impl sealed::Sealed for $type {}
        impl AsPath for $type {
            fn as_path_bytes(&self) -> &[u8] {
                let $path = self;
                $bytes
            }
        }
    )+};
}

paths! {
    [u8] => |path| path;
    Vec<u8> => |path| path;
    str => |path| path.as_bytes();
    String => |path| path.as_bytes();
    OsStr => |path| path.as_bytes();
    OsString => |path| path.as_bytes();
    Path => |path| path.as_os_str().as_bytes();
    PathBuf => |path| path.as_os_str().as_bytes();
}

impl<const N: usize> sealed::Sealed for [u8; N] {}
impl<const N: usize> AsPath for [u8; N] {
    fn as_path_bytes(&self) -> &[u8] {
        self
    }
}

impl<T: sealed::Sealed + ?Sized> sealed::Sealed for &T {}
impl<T: AsPath + ?Sized> AsPath for &T {
    fn as_path_bytes(&self) -> &[u8] {
        (**self).as_path_bytes()
    }
}
