//! `xfskit ln`, `mv` and `rm`.

use super::list::is_dir;
use crate::args::{LnArgs, MvArgs, RmArgs};
use crate::image::{edit, find, find_place, shown};
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::InodeNumber;
use xfskit::{Caller, Error, Filesystem, RenameFlags};

/// Runs `ln`.
pub fn ln(args: &LnArgs) -> Result<()> {
    edit(&args.image, |filesystem| {
        let (dir, name) = find_place(filesystem, &args.name)?;
        let made = if args.symbolic {
            filesystem.symlink(dir, name, args.target.as_bytes(), &Caller::root())
        } else {
            let target = find(filesystem, &args.target)?;
            filesystem.link(target.inode, dir, name)
        };
        made.with_context(|| shown(&args.name))?;
        Ok(())
    })
}

/// Runs `mv`.
pub fn mv(args: &MvArgs) -> Result<()> {
    let flags = RenameFlags { no_replace: args.no_clobber, exchange: args.exchange, whiteout: false };
    edit(&args.image, |filesystem| {
        let (dir, name) = find_place(filesystem, &args.from)?;
        let into = match filesystem.resolve(args.to.as_bytes(), true) {
            Ok(stat) if is_dir(&stat) && !args.exchange && !args.no_target_directory => Some(stat.inode),
            _ => None,
        };
        let (new_dir, new_name) = match into {
            Some(inode) => (inode, name),
            None => find_place(filesystem, &args.to)?,
        };
        filesystem
            .rename(dir, name, new_dir, new_name, flags, &Caller::root())
            .with_context(|| format!("{} to {}", shown(&args.from), shown(&args.to)))
    })
}

/// Runs `rm`.
pub fn rm(args: &RmArgs) -> Result<()> {
    edit(&args.paths.image, |filesystem| {
        for path in &args.paths.paths {
            match remove(filesystem, path, args.recursive) {
                Err(Error::NotFound) if args.force => {}
                result => result.with_context(|| shown(path))?,
            }
        }
        Ok(())
    })
}

fn remove(filesystem: &Filesystem, path: &OsStr, recursive: bool) -> Result<(), Error> {
    let (dir, name) = xfskit::split_path(path.as_bytes())?;
    let dir = filesystem.resolve(dir, true)?.inode;
    let stat = filesystem.lookup(dir, name)?;
    if recursive && is_dir(&stat) {
        remove_tree(filesystem, dir, name, stat.inode)
    } else {
        filesystem.unlink(dir, name, &Caller::root())
    }
}

/// Removes a directory and what is below it, the deepest first.
fn remove_tree(filesystem: &Filesystem, dir: InodeNumber, name: &[u8], inode: InodeNumber) -> Result<(), Error> {
    let caller = Caller::root();
    let mut stack = vec![(dir, name.to_vec(), inode, false)];
    while let Some((dir, name, inode, emptied)) = stack.pop() {
        if emptied {
            filesystem.rmdir(dir, &name, &caller)?;
            continue;
        }
        stack.push((dir, name, inode, true));
        for entry in filesystem.list_dir(inode)? {
            if entry.file_type == xfskit::ondisk::dir::FileType::Directory {
                stack.push((inode, entry.name, entry.inode, false));
            } else {
                filesystem.unlink(inode, &entry.name, &caller)?;
            }
        }
    }
    Ok(())
}
