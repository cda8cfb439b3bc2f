//! `xfskit tree`, `stat` and `readlink`.

use super::attributes::Attributes;
use crate::args::{PathArgs, StatArgs};
use crate::interrupt;
use crate::open::paths::find;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::error::{Context, Failures, Result};
use crate::output::screen::{self, out};
use crate::output::text::{json_time, kind_name, mode_string, set_json, time_string};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::{Error, Stat, Volume};
use xfskit_ondisk::DeviceNumber;
use xfskit_transfer::{Found, ImageWalk, WalkEvent};

/// Whether a mode is a directory's.
pub fn is_dir(stat: &Stat) -> bool {
    stat.file_type.is_dir()
}

/// Whether a mode is a symbolic link's.
pub fn is_symlink(stat: &Stat) -> bool {
    stat.file_type.is_symlink()
}

/// Major and minor number of a device node.
pub fn device(stat: &Stat) -> Option<(u32, u32)> {
    let DeviceNumber { major, minor } = DeviceNumber::from_linux(stat.device);
    stat.file_type.is_device().then_some((major, minor))
}

/// Runs `tree`.
pub fn tree(session: &Session, args: &PathArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let start = find(&filesystem, &args.path)?;
    let mut out = out();
    let mut failures = Failures::default();
    let mut indent = String::new();
    for step in ImageWalk::new(&filesystem, start.inode, args.path.as_encoded_bytes()) {
        interrupt::check()?;
        match step {
            Ok(WalkEvent::Left(dir)) => {
                let bytes = if dir.dir.is_some() { beside(&dir).1.len() } else { 0 };
                indent.truncate(indent.len() - bytes);
            }
            Ok(WalkEvent::Found(found)) => {
                let line = tree_line(&filesystem, &found, &indent, as_json);
                if found.is_dir() && found.dir.is_some() {
                    indent.push_str(beside(&found).1);
                }
                failures.note(line.and_then(|line| Ok(out.write_all(&line)?)))?;
            }
            Err(error) => failures.note(Err(error.into()))?,
        }
    }
    out.flush()?;
    failures.into_result()
}

/// The line of a file in a tree.
fn tree_line(filesystem: &Volume, found: &Found, indent: &str, as_json: bool) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    if as_json {
        if found.dir.is_some() {
            let mut value = stat_json(filesystem, &found.stat).with_context(|| path_of(found))?;
            set_json(&mut value, "path", &found.path);
            writeln!(line, "{value}")?;
        }
        return Ok(line);
    }
    if found.dir.is_none() {
        line.extend_from_slice(&screen::name(&found.path));
    } else {
        line.extend_from_slice(indent.as_bytes());
        line.extend_from_slice(beside(found).0.as_bytes());
        line.extend_from_slice(&screen::name(found.name()));
        if is_symlink(&found.stat) {
            let target = filesystem.read_link(found.stat.inode).with_context(|| path_of(found))?;
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&screen::name(&target));
        }
    }
    line.push(b'\n');
    Ok(line)
}

/// The path of a file for a message.
pub fn path_of(found: &Found) -> String {
    xfskit_transfer::shown(&found.path)
}

/// The branch of a tree before a name, and the prefix of the lines below it.
fn beside(found: &Found) -> (&'static str, &'static str) {
    if found.is_last { ("└── ", "    ") } else { ("├── ", "│   ") }
}

/// Runs `stat`.
pub fn stat(session: &Session, args: &StatArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let mut out = out();
    let mut failures = Failures::default();
    let mut found = Vec::new();
    for path in &args.paths {
        let printed = find(&filesystem, path).and_then(|stat| {
            // What is in the inode is shown though its attributes are damaged.
            let attributes = Attributes::read(&filesystem, stat.inode).at(path);
            if as_json {
                let mut value = stat_json(&filesystem, &stat).at(path)?;
                attributes.as_ref().iter().for_each(|attributes| attributes.add_to(&mut value));
                found.push((path, value));
            } else {
                print_stat(&mut out, &filesystem, path, &stat)?;
                attributes.as_ref().iter().try_for_each(|attributes| attributes.print(&mut out))?;
            }
            attributes.map(drop)
        });
        failures.note(printed)?;
    }
    if let ([_], [(_, value)]) = (args.paths.as_slice(), found.as_slice()) {
        writeln!(out, "{value:#}")?;
    } else if as_json && args.paths.len() > 1 {
        let with_path = |(path, mut value): (&OsString, Value)| {
            set_json(&mut value, "path", path.as_bytes());
            value
        };
        writeln!(out, "{:#}", Value::Array(found.into_iter().map(with_path).collect()))?;
    }
    out.flush()?;
    failures.into_result()
}

fn print_stat(out: &mut impl Write, filesystem: &Volume, path: &OsStr, stat: &Stat) -> Result<()> {
    writeln!(out, "path:       {}", path.display())?;
    writeln!(out, "type:       {}", kind_name(stat.file_type))?;
    if is_symlink(stat) {
        let target = filesystem.read_link(stat.inode).at(path)?;
        writeln!(out, "target:     {}", String::from_utf8_lossy(&screen::name(&target)))?;
    }
    if let Some((major, minor)) = device(stat) {
        writeln!(out, "device:     {major}, {minor}")?;
    }
    writeln!(out, "inode:      {} (generation {})", stat.inode.0, stat.generation)?;
    writeln!(out, "mode:       {:04o} ({})", stat.permissions.bits(), mode_string(stat.mode()))?;
    writeln!(out, "owner:      {}:{}", stat.uid, stat.gid)?;
    writeln!(out, "links:      {}", stat.links)?;
    writeln!(out, "size:       {} bytes, {} blocks of 512 bytes", stat.size, stat.blocks)?;
    writeln!(out, "accessed:   {}", time_string(stat.atime))?;
    writeln!(out, "modified:   {}", time_string(stat.mtime))?;
    writeln!(out, "changed:    {}", time_string(stat.ctime))?;
    Ok(writeln!(out, "made:       {}", time_string(stat.birth_time))?)
}

/// What is in the inode of a file.
pub fn stat_json(filesystem: &Volume, stat: &Stat) -> Result<Value, Error> {
    let mut value = json!({
        "inode": stat.inode.0,
        "generation": stat.generation,
        "type": kind_name(stat.file_type),
        "mode": format!("{:04o}", stat.permissions.bits()),
        "uid": stat.uid,
        "gid": stat.gid,
        "links": stat.links,
        "size": stat.size,
        "blocks": stat.blocks,
        "atime": json_time(stat.atime),
        "mtime": json_time(stat.mtime),
        "ctime": json_time(stat.ctime),
        "birth_time": json_time(stat.birth_time),
        "project": stat.project,
    });
    if let Some((major, minor)) = device(stat) {
        value["device"] = json!([major, minor]);
    }
    if is_symlink(stat) {
        set_json(&mut value, "target", &filesystem.read_link(stat.inode)?);
    }
    Ok(value)
}

/// Runs `readlink`.
pub fn readlink(session: &Session, args: &PathArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(session, &args.read)?;
    let stat = find(&filesystem, &args.path)?;
    let mut out = out();
    let target = filesystem.read_link(stat.inode).at(&args.path)?;
    if as_json {
        let mut value = json!({});
        set_json(&mut value, "target", &target);
        writeln!(out, "{value:#}")?;
    } else {
        out.write_all(&screen::name(&target))?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
