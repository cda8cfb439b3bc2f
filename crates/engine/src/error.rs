//! Errors: those of the floor that all filesystems share, and a macro for checks of structures on disk.

pub use xfskit_vfs::{Error, Result};

/// Fails with a [`Corruption`](xfskit_ondisk::Corruption) built by [`ensure!`](xfskit_ondisk::ensure)'s rules, from a
/// function that returns [`Result`].
macro_rules! ensure_on_disk {
    ($condition:expr, $structure:expr, $check:expr $(, $($found:tt)+)?) => {
        if !$condition {
            return Err($crate::error::Error::Corrupt(
                xfskit_ondisk::Corruption::new($structure, $check)$(.found(format_args!($($found)+)))?
            ));
        }
    };
}
pub(crate) use ensure_on_disk;
