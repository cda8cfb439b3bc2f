//! `xfskit find`.

use super::list::{path_of, stat_json};
use crate::args::{FindArgs, SizeTest};
use crate::exit::Failures;
use crate::image::{find, open_to_read, resolve, shown};
use crate::interrupt;
use crate::screen::{self, out};
use crate::text::set_json;
use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::Timestamp;
use xfskit::volume::{LastLink, Volume};
use xfskit_transfer::{Found, ImageWalk};

/// Runs `find`. An error does not end the search.
pub fn run(args: &FindArgs, as_json: bool) -> Result<()> {
    let filesystem = open_to_read(&args.read)?;
    let newer = args.newer.as_ref().map(|path| {
        let stat = resolve(&filesystem, path, LastLink::Keep).with_context(|| shown(path))?;
        anyhow::Ok(stat.mtime)
    });
    let later_than: Vec<Timestamp> = newer.transpose()?.into_iter().chain(args.newermt).collect();
    let mut out = out();
    let mut failures = Failures::default();
    for path in &args.paths {
        let Some(start) = failures.unless_failed(find(&filesystem, path))? else { continue };
        for found in ImageWalk::new(&filesystem, start.inode, path.as_bytes()).found() {
            interrupt::check()?;
            let Some(found) = failures.unless_failed(found)? else { continue };
            let shown =
                is_asked_for(&filesystem, &found, args, &later_than).and_then(|is_asked_for| match is_asked_for {
                    true => print(&mut out, &filesystem, &found, args, as_json),
                    false => Ok(()),
                });
            failures.note(shown)?;
        }
    }
    out.flush()?;
    failures.into_result()
}

/// Whether a file passes all tests. Tests that read from the image are the last.
fn is_asked_for(filesystem: &Volume, found: &Found, args: &FindArgs, later_than: &[Timestamp]) -> Result<bool> {
    let stat = &found.stat;
    let holds = args.name.iter().chain(&args.iname).all(|glob| glob.matches(found.name()))
        && (args.kind.is_empty() || args.kind.iter().any(|asked| asked.file_type() == stat.file_type))
        && args.inum.is_none_or(|inum| stat.inode.0 == inum)
        && args.size.iter().all(|size: &SizeTest| size.holds(stat.size))
        && later_than.iter().all(|time| stat.mtime > *time);
    if !holds || args.xattr.is_empty() {
        return Ok(holds);
    }
    let names = filesystem.list_xattrs(stat.inode).with_context(|| path_of(found))?;
    Ok(args.xattr.iter().all(|glob| names.iter().any(|name| glob.matches(name))))
}

fn print(out: &mut impl Write, filesystem: &Volume, found: &Found, args: &FindArgs, as_json: bool) -> Result<()> {
    if as_json {
        let mut value = stat_json(filesystem, &found.stat).with_context(|| path_of(found))?;
        set_json(&mut value, "path", &found.path);
        writeln!(out, "{value}")?;
    } else if args.print0 {
        out.write_all(&[&found.path, &b"\0"[..]].concat())?;
    } else {
        out.write_all(&[&screen::name(&found.path), &b"\n"[..]].concat())?;
    }
    Ok(())
}
