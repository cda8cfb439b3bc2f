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
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::InodeNumber;
use xfskit::{Filesystem, Stat};
use xfskit_transfer::{ImageWalk, Step};

type Entry = (Vec<u8>, InodeNumber);

/// What is listed, and how.
struct List<'a> {
    args: &'a LsArgs,
    as_json: bool,
    filesystem: &'a Filesystem,
    out: BufWriter<Screen>,
    /// The entries of a JSON list, which is printed as a whole.
    values: Vec<Value>,
    /// Directories are named before what is in them.
    has_headings: bool,
    /// Something was printed, which an empty line separates from the next directory.
    has_begun: bool,
}

/// Runs `ls`. Files that are named come before the directories that are.
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
    let mut list =
        List { args, as_json, filesystem: &filesystem, out, values: Vec::new(), has_headings, has_begun: false };
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
    /// A directory and all below it.
    fn tree(&mut self, path: &[u8], start: InodeNumber) -> Result<()> {
        let mut failures = Failures::default();
        for step in ImageWalk::new(self.filesystem, start, path) {
            interrupt::check()?;
            failures.note(match step {
                Ok(Step::Found(found)) if found.is_dir() => self.dir(&found.path, found.stat.inode),
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            })?;
        }
        failures.into_result()
    }

    /// What is in a directory.
    fn dir(&mut self, path: &[u8], inode: InodeNumber) -> Result<()> {
        let listed = self.filesystem.list_dir(inode)?;
        let mut entries: Vec<Entry> = listed.into_iter().map(|entry| (entry.name, entry.inode)).collect();
        entries.sort();
        if self.args.all {
            let above = self.filesystem.lookup(inode, b"..")?.inode;
            entries.splice(0..0, [(b".".to_vec(), inode), (b"..".to_vec(), above)]);
        }
        if self.has_headings && !self.as_json {
            let gap: &[u8] = if self.has_begun { b"\n" } else { b"" };
            self.out.write_all(&[gap, &screen::name(path), b":\n"].concat())?;
            self.has_begun = true;
        }
        self.entries(path, &entries)
    }

    fn entries(&mut self, dir: &[u8], entries: &[Entry]) -> Result<()> {
        for (name, inode) in entries {
            self.has_begun = true;
            if self.as_json {
                let mut value = stat_json(self.filesystem, &self.filesystem.stat(*inode)?)?;
                set_json(&mut value, "name", name);
                if self.has_headings {
                    set_json(&mut value, "path", &below(dir, name));
                }
                match self.args.recursive {
                    true => writeln!(self.out, "{value}")?,
                    false => self.values.push(value),
                }
                continue;
            }
            if self.args.inode {
                write!(self.out, "{:>10} ", inode.0)?;
            }
            if self.args.long {
                self.long_line(&self.filesystem.stat(*inode)?, name)?;
            } else {
                self.out.write_all(&[&screen::name(name), &b"\n"[..]].concat())?;
            }
        }
        Ok(())
    }

    fn long_line(&mut self, stat: &Stat, name: &[u8]) -> Result<()> {
        let size = match device(stat) {
            Some((major, minor)) => format!("{major}, {minor}"),
            None if self.args.human_readable => human_size(stat.size),
            None => stat.size.to_string(),
        };
        let mode = mode_string(stat.mode);
        let time = short_time_string(stat.mtime);
        write!(self.out, "{mode} {:>3} {:>5} {:>5} {size:>8} {time} ", stat.links, stat.uid, stat.gid)?;
        self.out.write_all(&screen::name(name))?;
        if is_symlink(stat) {
            self.out.write_all(b" -> ")?;
            self.out.write_all(&screen::name(&self.filesystem.read_link(stat.inode)?))?;
        }
        Ok(writeln!(self.out)?)
    }
}

/// The path of a name in a directory.
fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
