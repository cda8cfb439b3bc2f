//! Paths as bytes.

use crate::{Error, Result};

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// It is: the path leads to what the link leads to.
    Follow,
    /// It is not: the path leads to the link itself.
    Keep,
}

/// Cuts a path into its folder and its last name.
///
/// # Errors
/// `Invalid` for the root, which has no name.
pub fn split_path(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = path.iter().rposition(|&b| b != b'/').ok_or(Error::Invalid("the root has no name"))? + 1;
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    Ok((&path[..start], &path[start..end]))
}

/// Whether only a directory has such a path.
pub fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_before_its_last_name() {
        assert_eq!(split_path(b"/a/b").unwrap(), (b"/a/".as_slice(), b"b".as_slice()));
        assert_eq!(split_path(b"b//").unwrap(), (b"".as_slice(), b"b".as_slice()));
        assert!(split_path(b"//").is_err());
    }
}
