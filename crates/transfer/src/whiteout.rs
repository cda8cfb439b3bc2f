//! Names by which a layer of a container image removes what the layers below it have.
//!
//! ```text
//! dir/.wh.NAME        dir/NAME is removed, with everything in it
//! dir/.wh..wh..opq    what is in dir is removed
//! ```
//! They say nothing about files of their own layer, in whatever order these come. As the OCI image specification
//! (layer.md, "Whiteouts") has it.

use crate::error::{Result, TransferError, shown};
use crate::event::{Hidden, Node, join, split};

const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What names of whiteouts mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whiteouts {
    /// They are names like others.
    #[default]
    AreFiles,
    /// They remove what lower layers have.
    Hide,
}

impl Whiteouts {
    /// What a file removes, if it is a whiteout.
    pub(crate) fn hidden(self, node: &Node) -> Result<Option<Hidden>> {
        let (dir, name) = split(&node.path);
        if self == Self::AreFiles || !name.starts_with(PREFIX) {
            return Ok(None);
        }
        match &name[PREFIX.len()..] {
            _ if name == OPAQUE => Ok(Some(Hidden::Contents(dir.to_vec()))),
            // Other names of this form belong to AUFS, and are left out of the tree as by every other program.
            hidden if hidden.starts_with(PREFIX) => Ok(Some(Hidden::Path(join(dir, name)))),
            b"" | b"." | b".." => {
                let what = "a whiteout that names no file";
                Err(TransferError::BadLayer { path: shown(&node.path), what })
            }
            hidden => Ok(Some(Hidden::Path(join(dir, hidden)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Contents, Kind, Meta};

    #[test]
    fn names_of_whiteouts_are_taken_apart() {
        let hidden = |path: &str| {
            let kind = Kind::File { size: 0, contents: Contents::Whole(Vec::new()) };
            Whiteouts::Hide.hidden(&Node { path: path.into(), kind, meta: Meta::default() })
        };
        assert_eq!(hidden("a/.wh.b").unwrap(), Some(Hidden::Path(b"a/b".to_vec())));
        assert_eq!(hidden(".wh.b").unwrap(), Some(Hidden::Path(b"b".to_vec())));
        assert_eq!(hidden("a/.wh..wh..opq").unwrap(), Some(Hidden::Contents(b"a".to_vec())));
        assert_eq!(hidden(".wh..wh..opq").unwrap(), Some(Hidden::Contents(Vec::new())));
        assert_eq!(hidden("a/wh.b").unwrap(), None);
        assert!(hidden("a/.wh.").is_err() && hidden("a/.wh...").is_err());
    }
}
