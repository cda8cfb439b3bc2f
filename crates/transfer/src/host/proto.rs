//! A tree that a protofile describes, as mkfs.xfs(8) reads it.
//!
//! ```text
//! NAME
//! NUMBER NUMBER                      these two lines mean nothing any more
//! d--755 0 0                         the root: mode, owner, group
//! etc d--755 0 0                     a directory, up to its $
//! motd ---644 0 0 /home/me/motd      a file, and the file of the host that has its contents
//! $
//! null c--666 0 0 1 3
//! sh l--777 0 0 bash
//! : a comment
//! $
//! ```
//! Words are separated by blanks and ends of lines. Contents and extended attributes are those of the files of the
//! host; all times are the time now.

use super::attributes::{AttributeReader, Handle};
use super::contents;
use crate::error::{Losses, Result, TransferError, host};
use crate::event::{Contents, Event, Kind, MAX_INLINE_BYTES, MAX_TEXT_PATH_BYTES, Meta, Node, join};
use crate::pipe::{Outlet, Source};
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use xfskit_vfs::{DeviceNumber, Timestamp};

/// The largest file that is read.
const MAX_BYTES: u64 = 64 << 20;
/// Directories within one another.
const MAX_DEPTH: usize = 1024;

/// What a slash in a name means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// A name cannot have one.
    #[default]
    AreRefused,
    /// It stands for a blank, which could not be written otherwise.
    AreBlanks,
}

/// A tree that a protofile describes.
pub struct ProtoSource {
    entries: Vec<Entry>,
    now: Timestamp,
    losses: Losses,
}

struct Entry {
    path: Vec<u8>,
    kind: EntryKind,
    meta: Meta,
}

enum EntryKind {
    /// A regular file with the contents of this file of the host.
    File(PathBuf),
    Other(Kind),
}

impl ProtoSource {
    /// Reads the text of a protofile, which may be a pipe, and be needed several times.
    ///
    /// # Errors
    /// `Host` when it cannot be read, `BadText` when it is too long.
    pub fn read_text(path: &Path) -> Result<Vec<u8>> {
        let read = |source| TransferError::Host { path: path.display().to_string(), what: "reading it", source };
        let mut text = Vec::new();
        File::open(path).map_err(read)?.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(read)?;
        if text.len() as u64 > MAX_BYTES {
            let (file, what) = (path.display().to_string(), format!("the file has more than {} MiB", MAX_BYTES >> 20));
            return Err(TransferError::BadText { file, line: 1, what });
        }
        Ok(text)
    }

    /// Parses a protofile. The name of its file is for messages; `now` is the time of everything.
    ///
    /// # Errors
    /// `BadText` when it makes no sense.
    pub fn parse(path: &Path, text: &[u8], slashes: Slashes, now: Timestamp) -> Result<Self> {
        let bad = |(line, what)| TransferError::BadText { file: path.display().to_string(), line, what };
        let entries = parse(text, slashes).map_err(bad)?;
        Ok(Self { entries, now, losses: Losses::default() })
    }
}

impl Source for ProtoSource {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        let mut attributes = AttributeReader::new();
        for entry in &self.entries {
            let (path, meta) = (entry.path.clone(), Meta { atime: self.now, mtime: self.now, ..entry.meta.clone() });
            match &entry.kind {
                EntryKind::Other(kind) => out.send(Event::Node(Node { path, kind: kind.clone(), meta }))?,
                EntryKind::File(from) => send_file(from, (path, meta), &mut attributes, &mut self.losses, out)?,
            }
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}

fn send_file(
    from: &Path,
    (path, mut meta): (Vec<u8>, Meta),
    attributes: &mut AttributeReader,
    losses: &mut Losses,
    out: &mut Outlet,
) -> Result<()> {
    let name = from.as_os_str().as_bytes();
    // A pipe would be waited for.
    let opened = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(from);
    let file = opened.map_err(host(name, "opening it"))?;
    let stat = file.metadata().map_err(host(name, "reading its attributes"))?;
    if !stat.is_file() {
        let source = std::io::Error::from(std::io::ErrorKind::InvalidInput);
        return Err(host(name, "it is no regular file")(source));
    }
    meta.xattrs = attributes.read(Handle::Open(file.as_fd()), name, &mut losses.attributes)?;
    let size = stat.len();
    let parts = contents::parts(&file, size, name)?;
    let is_whole = size == 0 || parts.as_slice() == [(0, size)];
    if is_whole && size <= MAX_INLINE_BYTES {
        let contents = Contents::Whole(contents::whole(&file, size, name)?);
        return out.send(Event::Node(Node { path, kind: Kind::File { size, contents }, meta }));
    }
    let kind = Kind::File { size, contents: Contents::Parts(parts.clone()) };
    out.send(Event::Node(Node { path, kind, meta }))?;
    if out.wants_data() {
        contents::send(&file, &parts, name, out)?;
        out.send(Event::End)?;
    }
    Ok(())
}

/// The words of a protofile, with the numbers of their lines.
struct Words<'a> {
    words: std::vec::IntoIter<(usize, &'a [u8])>,
    line: usize,
}

type Bad = (usize, String);

impl<'a> Words<'a> {
    fn new(text: &'a [u8]) -> Self {
        let mut words = Vec::new();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            for word in line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()) {
                // A comment reaches to the end of the line.
                if word.starts_with(b":") {
                    break;
                }
                words.push((number, word));
            }
        }
        Self { words: words.into_iter(), line: 1 }
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let (line, word) = self.words.next()?;
        self.line = line;
        Some(word)
    }

    fn need(&mut self, what: &str) -> Result<&'a [u8], Bad> {
        self.next().ok_or_else(|| (self.line, format!("the file ends where {what} belongs")))
    }

    fn bad(&self, word: &[u8], what: &str) -> Bad {
        (self.line, format!("{}: {what}", String::from_utf8_lossy(word)))
    }

    /// A number as strtol reads it: decimal, octal behind 0, hexadecimal behind 0x.
    fn number(&mut self, what: &str) -> Result<u32, Bad> {
        let word = self.need(what)?;
        let text = std::str::from_utf8(word).unwrap_or_default();
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8),
            None => text.parse(),
        };
        number.map_err(|_| self.bad(word, &format!("expected {what}")))
    }
}

fn parse(text: &[u8], slashes: Slashes) -> Result<Vec<Entry>, Bad> {
    let mut words = Words::new(text);
    for what in ["a name, which means nothing", "a number", "a second number"] {
        words.need(what)?;
    }
    let root = entry(&mut words, Vec::new())?;
    if !root.is_directory() {
        return Err((words.line, "the first entry is the root, which is a directory: d--755 0 0".into()));
    }
    let mut entries = vec![root];
    let mut seen = HashSet::new();
    let mut dirs = vec![Vec::new()];
    while let (Some(dir), Some(word)) = (dirs.last(), words.next()) {
        if word == b"$" {
            dirs.pop();
            continue;
        }
        let name: Vec<u8> = match slashes {
            Slashes::AreBlanks => word.iter().map(|&byte| if byte == b'/' { b' ' } else { byte }).collect(),
            Slashes::AreRefused => word.to_vec(),
        };
        if name.contains(&b'/') || name == b"." || name == b".." || name.len() > 255 {
            return Err(words.bad(word, "it cannot be the name of a file"));
        }
        let path = join(dir, &name);
        if path.len() > MAX_TEXT_PATH_BYTES {
            let what = format!("a path of {} bytes; {MAX_TEXT_PATH_BYTES} are the most", path.len());
            return Err(words.bad(word, &what));
        }
        if !seen.insert(path.clone()) {
            return Err(words.bad(&path, "there are two files of this name"));
        }
        let entry = entry(&mut words, path)?;
        if entry.is_directory() {
            dirs.push(entry.path.clone());
        }
        if dirs.len() > MAX_DEPTH {
            return Err(words.bad(word, "it lies in too many directories"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn is_directory(&self) -> bool {
        matches!(self.kind, EntryKind::Other(Kind::Directory))
    }
}

/// What stands behind a name.
fn entry(words: &mut Words<'_>, path: Vec<u8>) -> Result<Entry, Bad> {
    let word = words.need("a mode such as d--755")?;
    let wrong = |words: &Words<'_>| words.bad(word, "expected a mode such as d--755, -u-755 or ---644");
    let &[kind, set_uid, set_gid, ref permissions @ ..] = word else { return Err(wrong(words)) };
    let set_id = match (set_uid, set_gid) {
        (b'-', b'-') => 0,
        (b'u', b'-') => 0o4000,
        (b'-', b'g') => 0o2000,
        (b'u', b'g') => 0o6000,
        _ => return Err(wrong(words)),
    };
    let permissions = std::str::from_utf8(permissions).ok().filter(|text| text.len() == 3);
    let permissions = permissions.and_then(|text| u16::from_str_radix(text, 8).ok()).ok_or_else(|| wrong(words))?;
    let uid = words.number("the number of an owner")?;
    let gid = words.number("the number of a group")?;
    let meta = Meta { mode: set_id | permissions, uid, gid, ..Meta::default() };
    let kind = match kind {
        b'd' => EntryKind::Other(Kind::Directory),
        b'-' => EntryKind::File(std::ffi::OsStr::from_bytes(words.need("the path of a file")?).into()),
        b'l' => EntryKind::Other(Kind::Symlink(words.need("the target of a link")?.to_vec())),
        b'p' => EntryKind::Other(Kind::Fifo),
        b'b' => EntryKind::Other(Kind::Block(device(words)?)),
        b'c' => EntryKind::Other(Kind::Char(device(words)?)),
        b'r' => return Err(words.bad(word, "files with reserved space are not supported")),
        _ => return Err(wrong(words)),
    };
    Ok(Entry { path, kind, meta })
}

fn device(words: &mut Words<'_>) -> Result<u32, Bad> {
    let number = DeviceNumber {
        major: words.number("the major number of a device")?,
        minor: words.number("the minor number of a device")?,
    };
    let packed = number.to_linux();
    if DeviceNumber::from_linux(packed) == number {
        return Ok(packed);
    }
    Err((words.line, format!("{} {}: there is no such device number", number.major, number.minor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(entries: &str) -> Bad {
        parse(format!("x\n0 0\n{entries}").as_bytes(), Slashes::default()).err().unwrap()
    }

    #[test]
    fn the_example_of_the_manual_is_read() {
        let text = b"/stand/diskboot\n4872 110\nd--777 3 1\nusr d--777 3 1\nsh ---755 3 1 /bin/sh\nken d--755 6 1\n$\n\
            b0 b--644 3 1 0 0\nfifo p--644 3 1\nslink l--644 3 1 /a/symbolic/link\n: This is a comment line\n$\n$\n";
        let paths: Vec<_> = parse(text, Slashes::default()).unwrap().into_iter().map(|entry| entry.path).collect();
        assert_eq!(paths.join(&b' '), b" usr usr/sh usr/ken usr/b0 usr/fifo usr/slink");
        let blank = parse(b"x 0 0 d--755 0 0 a/b p--600 0 0", Slashes::AreBlanks).unwrap();
        assert_eq!(blank[1].path, b"a b");
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line() {
        for (entries, line, what) in [
            ("---644 0 0 /etc/motd", 3, "the root"),
            ("d--755 0", 3, "a group"),
            ("d--755 0 0\na q--644 0 0", 4, "q--644"),
            ("d--755 0 0\na ---64 0 0 /x", 4, "---64"),
            ("d--755 0 0\na r--644 0 0 1m", 4, "reserved"),
            ("d--755 0 0\na p--644 x 0", 4, "an owner"),
            ("d--755 0 0\na p--644 0 0\na p--644 0 0", 5, "two files"),
            ("d--755 0 0\na/b p--644 0 0", 4, "the name"),
            ("d--755 0 0\n.. p--644 0 0", 4, "the name"),
            (&format!("d--755 0 0\n{}", format!("{} d--755 0 0\n", "n".repeat(250)).repeat(20)), 20, "a path of"),
        ] {
            let (number, why) = fails(entries);
            assert!(number == line && why.contains(what), "{entries:?}: line {number}: {why}");
        }
    }
}
