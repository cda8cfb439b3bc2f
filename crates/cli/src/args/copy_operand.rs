//! The operands of `cp`.

use super::apart::split;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A path in the arguments of `cp`.
pub enum CopyOperand {
    /// On the host.
    Host(PathBuf),
    /// Within an image.
    Image(PathBuf, OsString),
}

impl CopyOperand {
    /// `IMAGE:/PATH`, or `IMAGE:` for its root. Everything else is a path of the host, and so is a name of this form
    /// that exists there.
    pub fn parse(text: &OsStr) -> Self {
        match split(text) {
            Some((image, path)) => Self::Image(image, path),
            None => Self::Host(text.into()),
        }
    }

    /// The path, on the host or within the image.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Host(path) => path.as_os_str().as_bytes(),
            Self::Image(_, path) => path.as_bytes(),
        }
    }

    /// The name that a copy gets in a directory; empty if only the contents of a directory are copied.
    pub fn name(&self) -> &[u8] {
        let path = self.path();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        match path.rsplit(|&byte| byte == b'/').next() {
            Some(b"." | b"..") | None => b"",
            Some(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_and_a_slash_make_a_path_within_an_image() {
        let image = |text: &str| match CopyOperand::parse(OsStr::new(text)) {
            CopyOperand::Image(image, path) => Some((image.display().to_string(), path.into_string().unwrap())),
            CopyOperand::Host(_) => None,
        };
        assert_eq!(image("a.img:/etc"), Some(("a.img".into(), "/etc".into())));
        assert_eq!(image("d/a.img:"), Some(("d/a.img".into(), "/".into())));
        assert_eq!(image("a:b"), None);
        assert_eq!(image(":/etc"), None);
    }

    #[test]
    fn copies_are_named_like_their_source() {
        let name = |text: &str| String::from_utf8(CopyOperand::parse(OsStr::new(text)).name().to_vec()).unwrap();
        assert_eq!(name("a.img:/etc/"), "etc");
        assert_eq!(name("a.img:/etc/."), "");
        assert_eq!(name("a.img:/"), "");
        assert_eq!((name("dir/file").as_str(), name(".").as_str()), ("file", ""));
    }
}
