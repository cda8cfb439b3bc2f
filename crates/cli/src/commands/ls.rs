//! `xfskit ls`.

use super::attributes::{Mark, label, mark};
use super::list::{device, is_dir, is_symlink, stat_json};
use crate::args::LsArgs;
use crate::interrupt;
use crate::open::paths::find;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::error::{CommandError, Failures, Result};
use crate::output::screen::{self, Screen, out};
use crate::output::text::{human_size, mode_string, set_json, short_time_string};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::FileType;
use xfskit_engine::{Error, Stat, Volume};
use xfskit_ondisk::InodeNumber;
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
pub fn ls(session: &Session, args: &LsArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let (mut failures, mut files, mut dirs) = (Failures::default(), Vec::new(), Vec::new());
    for path in &args.paths {
        match find(&filesystem, path) {
            Ok(stat) if is_dir(&stat) && !args.directory => dirs.push((path.as_bytes().to_vec(), stat.inode)),
            Ok(stat) => files.push((path.as_bytes().to_vec(), stat.inode)),
            Err(error) => failures.note(Err(error))?,
        }
    }
    if args.by_time || args.by_size {
        sort(&filesystem, args, &mut files);
        sort(&filesystem, args, &mut dirs);
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

/// Brings entries, which are in the order of their names, into that of `-t`, `-S` and `-r`. Those that cannot be read
/// are the last.
fn sort(filesystem: &Volume, args: &LsArgs, entries: &mut [NamedInode]) {
    let stat = |inode: &InodeNumber| filesystem.stat(*inode).ok();
    if args.by_time {
        entries.sort_by_cached_key(|(_, inode)| Reverse(stat(inode).map(|stat| stat.mtime)));
    } else if args.by_size {
        entries.sort_by_cached_key(|(_, inode)| Reverse(stat(inode).map(|stat| stat.size)));
    }
    if args.reverse {
        entries.reverse();
    }
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
        sort(self.filesystem, self.args, &mut entries);
        if self.has_headings && !self.as_json {
            let gap: &[u8] = if self.has_begun { b"\n" } else { b"" };
            self.out.write_all(&[gap, &screen::name(path), b":\n"].concat())?;
            self.has_begun = true;
        }
        failures.note(self.entries(path, &entries))?;
        failures.into_result()
    }

    /// The error of a path, whose path is recorded.
    fn failure(&mut self, path: &[u8], error: Error) -> CommandError {
        let path = String::from_utf8_lossy(path).into_owned();
        self.failed.insert(path.clone());
        CommandError::from(error).at(path)
    }

    fn entries(&mut self, dir: &[u8], entries: &[NamedInode]) -> Result<()> {
        let mut failures = Failures::default();
        let marks = self.marks(dir, entries, &mut failures)?;
        for (at, (name, inode)) in entries.iter().enumerate() {
            self.has_begun = true;
            let mark = marks.get(at).map_or("", Mark::sign);
            let shown = match self.entry(dir, name, *inode, mark) {
                Ok(line) => Ok(self.out.write_all(&line)?),
                Err(error) => {
                    self.out.write_all(&self.unreadable(name, *inode, mark))?;
                    Err(self.failure(&below(dir, name), error))
                }
            };
            failures.note(shown)?;
        }
        failures.into_result()
    }

    /// What stands behind the permissions of each entry. Where nothing does there is no column for it.
    fn marks(&mut self, dir: &[u8], entries: &[NamedInode], failures: &mut Failures) -> Result<Vec<Mark>> {
        if self.as_json || !self.args.is_long() {
            return Ok(Vec::new());
        }
        let mut marks = Vec::with_capacity(entries.len());
        for (name, inode) in entries {
            // An inode that cannot be read is reported with its line.
            let found = self.filesystem.stat(*inode).ok().map(|stat| mark(self.filesystem, &stat));
            marks.push(match found.transpose() {
                Ok(mark) => mark.unwrap_or(Mark::Nothing),
                Err(error) => {
                    failures.note(Err(self.failure(&below(dir, name), error)))?;
                    Mark::Unknown
                }
            });
        }
        if marks.iter().all(|mark| *mark == Mark::Nothing) {
            marks.clear();
        }
        Ok(marks)
    }

    /// The line of an entry.
    fn entry(&mut self, dir: &[u8], name: &[u8], inode: InodeNumber, mark: &str) -> Result<Vec<u8>, Error> {
        let mut line = self.number(inode);
        if self.as_json {
            let mut value = stat_json(self.filesystem, &self.filesystem.stat(inode)?)?;
            set_json(&mut value, "name", name);
            if self.has_headings {
                set_json(&mut value, "path", &below(dir, name));
            }
            if let Some(label) = self.label(inode)? {
                set_json(&mut value, "label", &label);
            }
            if !self.args.recursive {
                self.values.push(value);
                return Ok(Vec::new());
            }
            return Ok(format!("{value}\n").into_bytes());
        }
        if self.args.is_long() {
            self.long_line(&mut line, &self.filesystem.stat(inode)?, name, mark)?;
        } else {
            if let Some(label) = self.label(inode)? {
                line.extend_from_slice(&[&screen::name(&label), &b" "[..]].concat());
            }
            line.extend_from_slice(&screen::name(name));
            if self.args.classify {
                line.extend_from_slice(indicator(&self.filesystem.stat(inode)?).as_bytes());
            }
        }
        line.push(b'\n');
        Ok(line)
    }

    /// The label of SELinux, if it is asked for.
    fn label(&self, inode: InodeNumber) -> Result<Option<Vec<u8>>, Error> {
        if !self.args.context {
            return Ok(None);
        }
        let label = label(self.filesystem, inode)?;
        Ok(if self.as_json { label } else { Some(label.unwrap_or_else(|| b"?".to_vec())) })
    }

    fn number(&self, inode: InodeNumber) -> Vec<u8> {
        if self.args.inode { format!("{:>10} ", inode.0).into_bytes() } else { Vec::new() }
    }

    /// The line of an entry whose inode cannot be read.
    fn unreadable(&self, name: &[u8], inode: InodeNumber, mark: &str) -> Vec<u8> {
        if self.as_json {
            return Vec::new();
        }
        let mark = mark.replace(|_| true, " ");
        let unknown = format!("??????????{mark} {0:>3} {0:>5} {0:>5} {0:>8} {0:>25} ", "?");
        [&self.number(inode), unknown.as_bytes(), &screen::name(name), b"\n"].concat()
    }

    fn long_line(&self, line: &mut Vec<u8>, stat: &Stat, name: &[u8], mark: &str) -> Result<(), Error> {
        let size = match device(stat) {
            Some((major, minor)) => format!("{major}, {minor}"),
            None if self.args.human_readable => human_size(stat.size),
            None => stat.size.to_string(),
        };
        let mode = mode_string(stat.mode());
        let time = short_time_string(stat.mtime);
        let owners = format!("{mode}{mark} {:>3} {:>5} {:>5} ", stat.links, stat.uid, stat.gid);
        line.extend_from_slice(owners.as_bytes());
        if let Some(label) = self.label(stat.inode)? {
            line.extend_from_slice(&[&screen::name(&label), &b" "[..]].concat());
        }
        line.extend_from_slice(format!("{size:>8} {time} ").as_bytes());
        line.extend_from_slice(&screen::name(name));
        if is_symlink(stat) {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&screen::name(&self.filesystem.read_link(stat.inode)?));
        } else if self.args.classify {
            line.extend_from_slice(indicator(stat).as_bytes());
        }
        Ok(())
    }
}

/// What `-F` shows behind a name.
fn indicator(stat: &Stat) -> &'static str {
    match stat.file_type {
        FileType::Dir => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::File if stat.permissions.bits() & 0o111 != 0 => "*",
        _ => "",
    }
}

/// The path of a name in a directory.
fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
