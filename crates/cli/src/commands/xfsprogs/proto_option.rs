//! The option `-p` of mkfs.xfs: a folder or a protofile, and how it is taken.

use crate::args::ProtoArgs;
use crate::output::causes::Usage;

impl ProtoArgs {
    /// Adds the sub-options of one `-p`, or one line of a configuration file.
    pub(super) fn apply(&mut self, list: &str) -> Result<(), Usage> {
        for item in list.split(',') {
            let switch = |value: &str| match value {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err(Usage(format!("-p {item}: expected 0 or 1"))),
            };
            match item.split_once('=') {
                Some(("atime", value)) => self.keeps_atime = switch(value)?,
                Some(("slashes_are_spaces", value)) => self.slashes_are_spaces = switch(value)?,
                Some(("file", path)) => self.set_path(path)?,
                _ => self.set_path(item)?,
            }
        }
        if self.path.as_os_str().is_empty() {
            return Err(Usage("-p: expected a folder or a protofile".into()));
        }
        Ok(())
    }

    fn set_path(&mut self, path: &str) -> Result<(), Usage> {
        if !self.path.as_os_str().is_empty() {
            return Err(Usage(format!("-p {path}: there is one source already; a path cannot have a comma here")));
        }
        self.path = path.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_with_or_without_a_prefix() {
        let parse = |list: &str| {
            let mut option = ProtoArgs::default();
            option.apply(list).map(|()| option)
        };
        let expected = ProtoArgs { path: "/root".into(), keeps_atime: true, slashes_are_spaces: false };
        assert_eq!(parse("file=/root,atime=1").unwrap(), expected);
        assert_eq!(parse("/root").unwrap(), ProtoArgs { keeps_atime: false, ..expected });
        for wrong in ["atime=1", "/a,/b", "/a,atime=2", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
