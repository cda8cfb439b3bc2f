//! `xfskit ls`.

use super::list::{device, is_dir, is_symlink, stat_json};
use crate::args::LsArgs;
use crate::exit::Failures;
use crate::image::{find, open_to_read};
use crate::interrupt;
use crate::screen::{self, Screen, out};
use crate::text::{human_size, mode_string, set_json, short_time_string};
use anyhow::Result;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Error, Stat, Volume};
use xfskit_transfer::{ImageWalk, TransferError, WalkEvent};

type NamedInode = (Vec<u8>, InodeNumber);

/// The state of a listing.
struct List<'a> {
    args: &'a LsArgs,
    as_json: bool,
    filesystem: &'a Volume,
    out: BufWriter<Screen>,
    /// The entries of a JSON list, which is printed at the end.
    values: Vec<Value>,
    /// Each directory's entries follow a line with its path.
    has_headings: bool,
    /// Something was printed, so an empty line precedes the next directory.
    has_begun: bool,
    /// Paths whose errors were recorded, as text: a walk finds again what was listed.
    failed: HashSet<String>,
}

/// Runs `ls`. Operands that are files precede operands that are directories.
pub fn ls(args: &LsArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(&args.read)?;
    let (mut failures, mut files, mut dirs) = (Failures::default(), Vec::new(), Vec::new());
    for path in &args.paths {
        match find(&filesystem, path) {
            Ok(stat) if is_dir(&stat) && !args.directory => dirs.push((path.as_bytes().to_vec(), stat.inode)),
            Ok(stat) => files.push((path.as_bytes().to_vec(), stat.inode)),
            Err(error) => failures.note(Err(error))?,
        }
    }
    let has_headings = args.recursive || args.paths.len() > 1;
    let out = out();
    let mut list = List {
        args,
        as_json,
        filesystem: &filesystem,
        out,
        values: Vec::new(),
        has_headings,
        has_begun: false,
        failed: HashSet::new(),
    };
    failures.note(list.entries(b"", &files))?;
    for (path, inode) in &dirs {
        let listed = if args.recursive { list.tree(path, *inode) } else { list.dir(path, *inode) };
        failures.note(listed)?;
    }
    if as_json && !args.recursive {
        writeln!(list.out, "{:#}", Value::Array(list.values))?;
    }
    list.out.flush()?;
    failures.into_result()
}

impl List<'_> {
    /// Lists a directory and everything below it.
    fn tree(&mut self, path: &[u8], start: InodeNumber) -> Result<()> {
        let mut failures = Failures::default();
        for step in ImageWalk::new(self.filesystem, start, path) {
            interrupt::check()?;
            match step {
                Ok(WalkEvent::Found(found)) if found.is_dir() => {
                    let listed = self.dir(&found.path, found.stat.inode);
                    failures.note(listed)?;
                }
                Ok(_) => {}
                Err(TransferError::Image { path, .. } | TransferError::LostNames { path, .. })
                    if self.failed.contains(&path) => {}
                Err(error) => failures.note(Err(error.into()))?,
            }
        }
        failures.into_result()
    }

    /// Lists the entries of a directory; of one that is lost in part, what is left.
    fn dir(&mut self, path: &[u8], inode: InodeNumber) -> Result<()> {
        let mut failures = Failures::default();
        let listed = self.filesystem.list_what_is_left(inode).map_err(|error| self.failure(path, error))?;
        let (listed, lost) = listed;
        if let Some(lost) = lost {
            let path = String::from_utf8_lossy(path).into_owned();
            self.failed.insert(path.clone());
            failures.note(Err(TransferError::LostNames { path, lost: lost.into() }.into()))?;
        }
        let mut entries: Vec<NamedInode> = listed.into_iter().map(|entry| (entry.name, entry.inode)).collect();
        entries.sort();
        if self.args.all {
            let above = self.filesystem.lookup(inode, b"..").map_err(|error| self.failure(path, error))?.inode;
            entries.splice(0..0, [(b".".to_vec(), inode), (b"..".to_vec(), above)]);
        }
        if self.has_headings && !self.as_json {
            let gap: &[u8] = if self.has_begun { b"\n" } else { b"" };
            self.out.write_all(&[gap, &screen::name(path), b":\n"].concat())?;
            self.has_begun = true;
        }
        failures.note(self.entries(path, &entries))?;
        failures.into_result()
    }

    /// The error of a path, whose path is recorded.
    fn failure(&mut self, path: &[u8], error: Error) -> anyhow::Error {
        let path = String::from_utf8_lossy(path).into_owned();
        self.failed.insert(path.clone());
        anyhow::Error::from(error).context(path)
    }

    fn entries(&mut self, dir: &[u8], entries: &[NamedInode]) -> Result<()> {
        let mut failures = Failures::default();
        for (name, inode) in entries {
            self.has_begun = true;
            let shown = match self.entry(dir, name, *inode) {
                Ok(line) => Ok(self.out.write_all(&line)?),
                Err(error) => {
                    self.out.write_all(&self.unreadable(name, *inode))?;
                    Err(self.failure(&below(dir, name), error))
                }
            };
            failures.note(shown)?;
        }
        failures.into_result()
    }

    /// The line of an entry.
    fn entry(&mut self, dir: &[u8], name: &[u8], inode: InodeNumber) -> Result<Vec<u8>, Error> {
        let mut line = self.number(inode);
        if self.as_json {
            let mut value = stat_json(self.filesystem, &self.filesystem.stat(inode)?)?;
            set_json(&mut value, "name", name);
            if self.has_headings {
                set_json(&mut value, "path", &below(dir, name));
            }
            if !self.args.recursive {
                self.values.push(value);
                return Ok(Vec::new());
            }
            return Ok(format!("{value}\n").into_bytes());
        }
        if self.args.long {
            self.long_line(&mut line, &self.filesystem.stat(inode)?, name)?;
        } else {
            line.extend_from_slice(&screen::name(name));
        }
        line.push(b'\n');
        Ok(line)
    }

    fn number(&self, inode: InodeNumber) -> Vec<u8> {
        if self.args.inode { format!("{:>10} ", inode.0).into_bytes() } else { Vec::new() }
    }

    /// The line of an entry whose inode cannot be read.
    fn unreadable(&self, name: &[u8], inode: InodeNumber) -> Vec<u8> {
        if self.as_json {
            return Vec::new();
        }
        let unknown = format!("?????????? {0:>3} {0:>5} {0:>5} {0:>8} {0:>25} ", "?");
        [&self.number(inode), unknown.as_bytes(), &screen::name(name), b"\n"].concat()
    }

    fn long_line(&self, line: &mut Vec<u8>, stat: &Stat, name: &[u8]) -> Result<(), Error> {
        let size = match device(stat) {
            Some((major, minor)) => format!("{major}, {minor}"),
            None if self.args.human_readable => human_size(stat.size),
            None => stat.size.to_string(),
        };
        let mode = mode_string(stat.mode());
        let time = short_time_string(stat.mtime);
        let text = format!("{mode} {:>3} {:>5} {:>5} {size:>8} {time} ", stat.links, stat.uid, stat.gid);
        line.extend_from_slice(text.as_bytes());
        line.extend_from_slice(&screen::name(name));
        if is_symlink(stat) {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&screen::name(&self.filesystem.read_link(stat.inode)?));
        }
        Ok(())
    }
}

/// The path of a name in a directory.
fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
