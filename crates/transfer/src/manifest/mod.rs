//! Owners, permissions, times, attributes and special files of single paths, from a manifest in the format of mtree(5).
//!
//! ```text
//! #mtree
//! /set uid=0 gid=0
//! ./usr/bin/ping mode=0755 xattr.security.capability=AQAAAgAgAAAAAAAAAAAAAAAAAAA=
//! ./dev/console  type=char mode=0600 device=5,1
//! ./var/cache    type=dir mode=0755 uid=42 gid=42
//! ```
//! Builders have it: bsdtar writes and reads it, the rules of bazel and makefs of the BSDs make images by it, and lines
//! for a few paths are written by hand. Attributes have the keywords of go-mtree, `xattr.NAME=BASE64`; what follows
//! from contents (`size`, `sha256digest`, `nlink`, ...) says nothing here and is passed over.
//!
//! A path that the tree lacks is made, if its type is one without contents; for a regular file it is an error, unless
//! the line says `optional`.

mod entry;
mod mtree;

use crate::error::{Result, TransferError};
use crate::event::{FileKind, Kind, Node};
use entry::Entry;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The largest file that is read.
const MAX_BYTES: u64 = 256 << 20;

/// What a manifest says of paths.
#[derive(Debug)]
pub struct Manifest {
    file: String,
    entries: BTreeMap<Vec<u8>, Line>,
}

/// An entry, and where it stands.
#[derive(Debug)]
pub(crate) struct Line {
    number: usize,
    pub(crate) entry: Entry,
    /// The tree has the path.
    seen: AtomicBool,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// `Host` for a file that cannot be read, `BadText` for a line that makes no sense.
    pub fn read(path: &Path) -> Result<Self> {
        use std::io::Read;
        let file = path.display().to_string();
        let host = |source| TransferError::Host { path: file.clone(), what: "reading it", source };
        let mut text = Vec::new();
        std::fs::File::open(path).map_err(host)?.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(host)?;
        if text.len() as u64 > MAX_BYTES {
            let what = format!("the file has more than {} MiB", MAX_BYTES >> 20);
            return Err(TransferError::BadText { file, line: 1, what });
        }
        Self::parse(file, &text)
    }

    /// Parses a manifest. The name of its file is for messages.
    ///
    /// # Errors
    /// `BadText` for a line that makes no sense.
    pub fn parse(file: String, text: &[u8]) -> Result<Self> {
        let bad = |(line, what)| TransferError::BadText { file: file.clone(), line, what };
        let mut entries = BTreeMap::new();
        for (number, path, entry) in mtree::parse(text).map_err(bad)? {
            let twice = format!("{} stands in the manifest twice", String::from_utf8_lossy(&path));
            let line = Line { number, entry, seen: AtomicBool::new(false) };
            if entries.insert(path, line).is_some() {
                return Err(bad((number, twice)));
            }
        }
        Ok(Self { file, entries })
    }

    /// Forgets which paths a tree had, before another one is read.
    pub(crate) fn begin(&self) {
        self.entries.values().for_each(|line| line.seen.store(false, Ordering::Relaxed));
    }

    /// Changes a file as its entry says.
    pub(crate) fn apply(&self, node: &mut Node) -> Result<()> {
        let Some(line) = self.entries.get(&node.path) else { return Ok(()) };
        line.seen.store(true, Ordering::Relaxed);
        if matches!(node.kind, Kind::Link(_)) {
            return Ok(());
        }
        let entry = &line.entry;
        if let Some(expected) = entry.file_type.filter(|expected| *expected != FileKind::from(&node.kind)) {
            return Err(self.bad(line, format!("{}: the tree has no {expected} there", self.shown(&node.path))));
        }
        entry.apply(&mut node.meta);
        match (&mut node.kind, &entry.target, entry.device) {
            (Kind::Symlink(target), Some(given), _) => *target = given.clone(),
            (Kind::Char(device) | Kind::Block(device), _, Some(given)) => *device = given,
            _ => {}
        }
        Ok(())
    }

    /// The entries for paths that the tree did not have.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = (&Vec<u8>, &Line)> {
        self.entries.iter().filter(|(_, line)| !line.seen.load(Ordering::Relaxed))
    }

    pub(crate) fn bad(&self, line: &Line, what: String) -> TransferError {
        TransferError::BadText { file: self.file.clone(), line: line.number, what }
    }

    pub(crate) fn shown(&self, path: &[u8]) -> String {
        format!("./{}", String::from_utf8_lossy(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (line, what) in [
            ("./a mode=9", "mode"),
            ("./a uid=x", "uid"),
            ("./a uid=4294967295", "uid"),
            ("./a type=thing", "type"),
            ("./a colour=red", "colour"),
            ("./a device=5", "device"),
            ("./a xattr.user.x=%", "base64"),
            ("./../a mode=1", ".."),
            ("./a uname=root", "uname"),
            ("./a time=x", "time"),
            ("./a time=16299260426.0", "time"),
            ("./a time=-2147483649", "time"),
            ("./a uid=1 mode=1 uid=2", "twice"),
            ("./a xattr.user.a=YQ== xattrs.user.a=YQ==", "twice"),
        ] {
            let error = Manifest::parse("m".into(), format!("#mtree\n{line}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("m: line 2: ") && error.contains(what), "{line}: {error}");
        }
        let twice = Manifest::parse("m".into(), b"./a mode=1\na mode=2\n./a mode=3\n").unwrap_err().to_string();
        assert!(twice.contains("twice"), "{twice}");
    }
}
