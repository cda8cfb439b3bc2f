//! SELinux labels by paths, from a file of contexts as setfiles(8) reads it.
//!
//! ```text
//! # regular expression    type    label, or <<none>>
//! /usr/bin(/.*)?                  system_u:object_r:bin_t:s0
//! /dev/null               -c      system_u:object_r:null_device_t:s0
//! ```
//! The last line that matches a path and its type decides, but any line without a special character, which is for one
//! path, comes before all with one. `FILE.homedirs` and `FILE.local` are read after FILE, and `FILE.subs_dist` and
//! `FILE.subs` replace the beginnings of paths: all as libselinux does it (its selabel_file(5), and what matchpathcon
//! prints; `crates/cli/tests/labels.rs` compares).
//!
//! Expressions are those of the crate regex, whose time is linear in the path, in place of PCRE: one with a
//! back-reference or a look-around is an error that names the line.

mod line;
mod subs;

use crate::error::{Result, TransferError};
use crate::event::FileKind;
use line::Spec;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use subs::Substitutes;

/// The largest file that is read; that of a whole distribution has less than 1 MiB.
const MAX_BYTES: u64 = 64 << 20;
/// Most lines with a pattern, each of which may be compiled. Distributions have less than 10,000.
const MAX_PATTERNS: usize = 20_000;
/// Most lines for single paths.
const MAX_EXACT: usize = 1_000_000;

/// The labels of paths.
#[derive(Debug, Default)]
pub struct FileContexts {
    /// For single paths, in the order of the files.
    exact: Vec<Spec>,
    /// With special characters, in the order of the files.
    patterns: Vec<Spec>,
    subs: Substitutes,
    /// Expressions that were compiled and take much memory.
    large: AtomicUsize,
}

impl FileContexts {
    /// Reads a file, and those that belong to it.
    ///
    /// # Errors
    /// `Host` for a file that cannot be read, `BadText` for a line that makes no sense, and where no line gives a
    /// label.
    pub fn read(path: &Path) -> Result<Self> {
        let mut contexts = Self::default();
        contexts.add(path, &read_text(path)?)?;
        for suffix in [".homedirs", ".local"] {
            if let Some((path, text)) = read_beside(path, suffix)? {
                contexts.add(&path, &text)?;
            }
        }
        for (suffix, is_local) in [(".subs_dist", false), (".subs", true)] {
            if let Some((path, text)) = read_beside(path, suffix)? {
                contexts.subs.add(&path, &text, is_local)?;
            }
        }
        if contexts.exact.is_empty() && contexts.patterns.is_empty() {
            // Every file would lose the label that it has.
            let what = "no line of it gives a label".into();
            return Err(TransferError::BadText { file: path.display().to_string(), line: 1, what });
        }
        Ok(contexts)
    }

    /// The labels in a text alone. The name of its file is for messages.
    ///
    /// # Errors
    /// `BadText` for a line that makes no sense.
    pub fn parse(file: &Path, text: &[u8]) -> Result<Self> {
        let mut contexts = Self::default();
        contexts.add(file, text).map(|()| contexts)
    }

    fn add(&mut self, path: &Path, text: &[u8]) -> Result<()> {
        let file = path.display().to_string();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let bad = |what| TransferError::BadText { file: file.clone(), line: number, what };
            if let Some(spec) = Spec::parse(line, &file, number).map_err(bad)? {
                let specs = if spec.is_exact() { &mut self.exact } else { &mut self.patterns };
                specs.push(spec);
                if self.patterns.len() > MAX_PATTERNS {
                    return Err(bad(format!("there are more than {MAX_PATTERNS} lines with patterns")));
                }
                if self.exact.len() > MAX_EXACT {
                    return Err(bad(format!("there are more than {MAX_EXACT} lines for single paths")));
                }
            }
        }
        Ok(())
    }

    /// The label for a path, which begins with a slash: the value of the attribute, which ends with a zero as setfiles
    /// stores it. `None` if no line matches, or the one that does says that there is to be none.
    ///
    /// # Errors
    /// `BadText` for an expression that would take too much memory.
    pub fn label(&self, path: &[u8], kind: FileKind) -> Result<Option<Vec<u8>>> {
        let path = self.subs.apply(path);
        for spec in self.exact.iter().rev().chain(self.patterns.iter().rev()) {
            if spec.matches(&path, kind, &self.large)? {
                return Ok(spec.label().map(|label| [label, b"\0"].concat()));
            }
        }
        Ok(None)
    }
}

fn read_text(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let host = |source| TransferError::Host { path: path.display().to_string(), what: "reading it", source };
    let mut text = Vec::new();
    std::fs::File::open(path).map_err(host)?.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(host)?;
    if text.len() as u64 > MAX_BYTES {
        let what = format!("the file has more than {} MiB", MAX_BYTES >> 20);
        return Err(TransferError::BadText { file: path.display().to_string(), line: 1, what });
    }
    Ok(text)
}

/// Reads the file whose name has a suffix behind that of `path`, if there is one.
fn read_beside(path: &Path, suffix: &str) -> Result<Option<(PathBuf, Vec<u8>)>> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    let path = PathBuf::from(name);
    if path.exists() { read_text(&path).map(|text| Some((path, text))) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(text: &str) -> Result<FileContexts> {
        FileContexts::parse(Path::new("contexts"), text.as_bytes())
    }

    fn label(text: &str, path: &str, kind: FileKind) -> Option<String> {
        let label = contexts(text).unwrap().label(path.as_bytes(), kind).unwrap();
        label.map(|label| String::from_utf8(label).unwrap())
    }

    #[test]
    fn the_last_line_decides_and_single_paths_come_first() {
        let text = "/etc/a u:r:exact\n/.* u:r:all\n/etc(/.*)? u:r:etc\n/etc/b -d u:r:dir\n/etc/c <<none>>\n";
        let file = |path| label(text, path, FileKind::File);
        assert_eq!(file("/etc/a").as_deref(), Some("u:r:exact\0"));
        assert_eq!(file("/etc/b").as_deref(), Some("u:r:etc\0"));
        assert_eq!(label(text, "/etc/b", FileKind::Directory).as_deref(), Some("u:r:dir\0"));
        assert_eq!(file("/etc/c"), None);
        assert_eq!(file("/x").as_deref(), Some("u:r:all\0"));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (line, what) in [
            ("/a", "no label"),
            ("/a -x u:r:t", "type"),
            ("/a -- u:r:t more", "three"),
            ("/a( u:r:t", "unclosed"),
            ("/(a)\\1 u:r:t", "backreference"),
            ("a u:r:t", "slash"),
            ("/a label", "user:role:type"),
            ("/a u:r", "user:role:type"),
            ("/a u::t:s0", "user:role:type"),
            ("/a <<non>>", "user:role:type"),
        ] {
            let error = contexts(&format!("# fine\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("contexts: line 2: ") && error.contains(what), "{line}: {error}");
        }
        assert!(contexts("/a u:r:t:s0-s15:c0.c1023\n/b u:r:t\n/c <<none>>\n").is_ok());
    }

    #[test]
    fn many_large_expressions_and_many_patterns_are_errors() {
        let large: String = (0..300).map(|n| format!("/(x{n})?(.{{200}}){{20}} u:r:t\n")).collect();
        let error = contexts(&large).unwrap().label(b"/a", FileKind::File).unwrap_err().to_string();
        assert!(error.starts_with("contexts: line "), "{error}");
        let many: String = (0..20_001).map(|n| format!("/{n}.* u:r:t\n")).collect();
        let error = contexts(&many).unwrap_err().to_string();
        assert!(error.starts_with("contexts: line 20001: "), "{error}");
    }

    #[test]
    fn an_expression_that_is_too_large_is_an_error() {
        let contexts = contexts("/a((.{500}){500}){50} u:r:t").unwrap();
        let error = contexts.label(b"/ab", FileKind::File).unwrap_err().to_string();
        assert!(error.starts_with("contexts: line 1: "), "{error}");
    }
}
