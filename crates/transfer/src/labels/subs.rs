//! Beginnings of paths that stand for others when labels are looked up: `/lib64 /usr/lib`.

use crate::error::{Result, TransferError};
use std::borrow::Cow;
use std::path::Path;

/// Pairs of a beginning and what stands for it.
#[derive(Debug, Default)]
pub(super) struct Substitutes {
    /// Those of the distribution, and those of the machine, which are applied first.
    pairs: [Vec<(Vec<u8>, Vec<u8>)>; 2],
}

const DISTRIBUTION: usize = 0;
const LOCAL: usize = 1;

impl Substitutes {
    pub(super) fn add(&mut self, path: &Path, text: &[u8], is_local: bool) -> Result<()> {
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
            let (Some(from), Some(to), None) = (fields.next(), fields.next(), fields.next()) else {
                let (file, what) = (path.display().to_string(), "expected two paths".to_owned());
                return Err(TransferError::BadText { file, line: number, what });
            };
            self.pairs[if is_local { LOCAL } else { DISTRIBUTION }].push((from.to_vec(), to.to_vec()));
        }
        Ok(())
    }

    /// The path whose label a path has.
    pub(super) fn apply<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        let mut path = Cow::Borrowed(path);
        for kind in [LOCAL, DISTRIBUTION] {
            // The last line that fits decides.
            let fits = |from: &[u8]| path.strip_prefix(from).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
            if let Some((from, to)) = self.pairs[kind].iter().rfind(|(from, _)| fits(from)) {
                let rest = &path[from.len()..];
                // A root in place of the beginning has a slash already.
                let rest = if to == b"/" { rest.strip_prefix(b"/").unwrap_or(rest) } else { rest };
                path = Cow::Owned([to, rest].concat());
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_path_is_replaced() {
        let mut subs = Substitutes::default();
        subs.add(Path::new("subs"), b"# dist\n/lib64 /usr/lib\n/root2 /\n", false).unwrap();
        subs.add(Path::new("subs"), b"/mine /lib64\n", true).unwrap();
        for (path, expected) in [
            ("/lib64/a", "/usr/lib/a"),
            ("/lib64", "/usr/lib"),
            ("/lib642", "/lib642"),
            ("/mine/a", "/usr/lib/a"),
            ("/root2/etc", "/etc"),
        ] {
            assert_eq!(subs.apply(path.as_bytes()), expected.as_bytes(), "{path}");
        }
        assert!(subs.add(Path::new("subs"), b"/a\n", false).is_err());
    }
}
