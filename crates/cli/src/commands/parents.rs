//! `xfskit parents` and `xfskit path`: the names of an inode, by parent pointers.

use crate::args::{InodeArgs, ParentsArgs};
use crate::image::{find, open_to_read, shown};
use crate::screen::{self, out};
use crate::text::{json_bytes, set_json};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::Write;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::Error;

/// Runs `parents`.
pub fn parents(args: &ParentsArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(&args.path.read)?;
    let stat = find(&filesystem, &args.path.path)?;
    let named = || shown(&args.path.path);
    let mut parents = filesystem.parents(stat.inode).with_context(named)?;
    parents.sort();
    let mut out = out();
    if as_json {
        let parents = parents.iter().map(|(dir, name)| {
            let mut parent = json!({ "inode": dir.0 });
            set_json(&mut parent, "name", name);
            parent
        });
        let paths = filesystem.paths(stat.inode).with_context(named)?;
        let paths = paths.iter().map(|path| json_bytes(path));
        let both = json!({ "parents": parents.collect::<Vec<_>>(), "paths": paths.collect::<Vec<_>>() });
        writeln!(out, "{both:#}")?;
        return Ok(out.flush()?);
    }
    if !args.inodes {
        return print_paths(&mut out, &filesystem.paths(stat.inode).with_context(named)?);
    }
    for (dir, name) in parents {
        write!(out, "{} ", dir.0)?;
        out.write_all(&screen::name(&name))?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn print_paths(out: &mut impl Write, paths: &[Vec<u8>]) -> Result<()> {
    for path in paths {
        out.write_all(&screen::name(path))?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// Runs `path`.
pub fn path(args: &InodeArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(&args.read)?;
    let number = InodeNumber(args.inode);
    if !filesystem.is_in_use(number)? {
        return Err(Error::Stale(args.inode).into());
    }
    let paths = filesystem.paths(number).with_context(|| format!("inode {}", args.inode))?;
    let mut out = out();
    if as_json {
        let list = paths.iter().map(|path| json_bytes(path));
        writeln!(out, "{:#}", Value::Array(list.collect()))?;
        return Ok(out.flush()?);
    }
    print_paths(&mut out, &paths)
}
