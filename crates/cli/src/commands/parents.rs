//! `xfskit parents` and `xfskit path`: the names of an inode, by parent pointers.

use crate::args::{InodeArgs, ParentsArgs};
use crate::open::mount_query::{self, LiveFile, LiveMount};
use crate::open::paths::find;
use crate::open::session::Session;
use crate::open::volume::open_to_read;
use crate::output::error::{Context, Result};
use crate::output::screen::{self, out};
use crate::output::text::{json_of, set_json};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::Write;
use xfskit_engine::Error;
use xfskit_ondisk::InodeNumber;

/// What is asked of a file: in an image, or on a mount.
struct NamesOfFile {
    parents: Vec<(u64, Vec<u8>)>,
    paths: Vec<Vec<u8>>,
}

impl NamesOfFile {
    fn in_image(session: &Session, args: &ParentsArgs, path: &OsStr) -> Result<Self> {
        let filesystem = open_to_read(session, &args.read)?;
        let stat = find(&filesystem, path)?;
        let mut parents = filesystem.parents(stat.inode).at(path)?;
        parents.sort();
        let parents = parents.into_iter().map(|(dir, name)| (dir.0, name)).collect();
        Ok(Self { parents, paths: filesystem.paths(stat.inode).at(path)? })
    }

    fn on_mount(file: &LiveFile) -> Result<Self> {
        Ok(Self { parents: file.parents()?, paths: file.paths()? })
    }

    fn find(session: &Session, args: &ParentsArgs) -> Result<Self> {
        let image = &args.read.image.image;
        match &args.path {
            None => Self::on_mount(&LiveFile::at(image)?.ok_or_else(|| mount_query::path_is_missing(image))?),
            Some(path) => match LiveMount::at(image)? {
                Some(mount) => Self::on_mount(&mount.file(path)?).at(path),
                None => Self::in_image(session, args, path),
            },
        }
    }
}

/// Runs `parents`.
pub fn parents(session: &Session, args: &ParentsArgs, as_json: bool) -> Result<()> {
    let NamesOfFile { parents, paths } = NamesOfFile::find(session, args)?;
    let mut out = out();
    if as_json {
        let parents = parents.iter().map(|(dir, name)| {
            let mut parent = json!({ "inode": dir });
            set_json(&mut parent, "name", name);
            parent
        });
        let paths = paths.iter().map(|path| json_of("path", path));
        let both = json!({ "parents": parents.collect::<Vec<_>>(), "paths": paths.collect::<Vec<_>>() });
        writeln!(out, "{both:#}")?;
        return Ok(out.flush()?);
    }
    if !args.inodes {
        return print_paths(&mut out, &paths);
    }
    for (dir, name) in parents {
        write!(out, "{dir} ")?;
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

/// The paths of the inode with a number, in an image or on a mount.
fn paths_of(session: &Session, args: &InodeArgs) -> Result<Vec<Vec<u8>>> {
    let named = || format!("inode {}", args.inode);
    if let Some(mount) = LiveMount::at(&args.read.image.image)? {
        return mount.inode(args.inode).paths().map_err(|error| match error.cause() {
            Some(Error::Stale(_)) => error,
            _ => error.context(named()),
        });
    }
    let filesystem = open_to_read(session, &args.read)?;
    let number = InodeNumber(args.inode);
    if !filesystem.is_in_use(number)? {
        return Err(Error::Stale(args.inode).into());
    }
    filesystem.paths(number).with_context(named)
}

/// Runs `path`.
pub fn path(session: &Session, args: &InodeArgs, as_json: bool) -> Result<()> {
    let paths = paths_of(session, args)?;
    let mut out = out();
    if as_json {
        let list = paths.iter().map(|path| json_of("path", path));
        writeln!(out, "{:#}", Value::Array(list.collect()))?;
        return Ok(out.flush()?);
    }
    print_paths(&mut out, &paths)
}
