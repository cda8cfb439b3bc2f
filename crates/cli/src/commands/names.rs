//! `xfskit ln`, `mv` and `rm`.

use super::list::is_dir;
use crate::args::{LnArgs, MvArgs, RmArgs};
use crate::interrupt;
use crate::open::edit::{edit, edit_with};
use crate::open::paths::{check_last_name, find, find_dir_place, find_place, shown};
use crate::open::session::Session;
use crate::open::volume::options_to_write;
use crate::output::error::{Context, Result, failed, for_each};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::{Caller, Discard, Error, LastLink, MountOptions, RenameFlags, Stat, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_transfer::{ImageWalk, WalkEvent};

/// Runs `ln`.
pub fn ln(session: &Session, args: &LnArgs) -> Result<()> {
    edit(session, &args.image, |filesystem| {
        let (dir, name) = find_place(filesystem, &args.name)?;
        let made = match (args.symbolic, args.force) {
            (true, true) => symlink_over(filesystem, dir, name, args.target.as_bytes()),
            (true, false) => filesystem.symlink(dir, name, args.target.as_bytes(), &Caller::root()).map(drop),
            (false, true) => filesystem.link_over(dir, name, find_to_link(filesystem, &args.target)?, &Caller::root()),
            (false, false) => {
                filesystem.link(dir, name, find_to_link(filesystem, &args.target)?, &Caller::root()).map(drop)
            }
        };
        made.at(&args.name)
    })
}

/// The file that gets one more name.
fn find_to_link(filesystem: &Volume, target: &OsStr) -> Result<InodeNumber> {
    let stat = find(filesystem, target)?;
    if is_dir(&stat) {
        let why = "it is a directory, which has one name only; 'ln -s' makes a symbolic link to it";
        return Err(failed!("{why}")).at(target);
    }
    Ok(stat.inode)
}

/// Replaces a file by a symbolic link: at every moment, also after a crash, the name refers to the one or the other. A
/// crash may leave the link under a name that begins with `.xfskit-`.
fn symlink_over(filesystem: &Volume, dir: InodeNumber, name: &[u8], target: &[u8]) -> Result<(), Error> {
    let root = Caller::root();
    match filesystem.symlink(dir, name, target, &root) {
        Err(Error::Exists) => {}
        made => return made.map(drop),
    }
    if is_dir(&filesystem.lookup(dir, name)?) {
        return Err(Error::IsADirectory);
    }
    // A file that cannot be replaced would leave the temporary name behind.
    filesystem.check_replaceable(dir, name, &root)?;
    let mut number = 0_u64;
    let temporary = loop {
        let temporary = format!(".xfskit-ln-{number}").into_bytes();
        match filesystem.symlink(dir, &temporary, target, &root) {
            Err(Error::Exists) => number += 1,
            made => break made.map(|_| temporary)?,
        }
    };
    let renamed = filesystem.rename(dir, &temporary, dir, name, RenameFlags::default(), &root);
    if renamed.is_err() {
        // The first error is the one to report.
        let _ = filesystem.unlink(dir, &temporary, &root);
    }
    renamed
}

/// Runs `mv`.
pub fn mv(session: &Session, args: &MvArgs) -> Result<()> {
    check_last_name(&args.from)?;
    if args.exchange || args.no_target_directory {
        check_last_name(&args.to)?;
    }
    let flags = RenameFlags { no_replace: args.no_clobber, exchange: args.exchange, whiteout: false };
    edit(session, &args.image, |filesystem| {
        let (dir, name) = find_dir_place(filesystem, &args.from)?;
        // A slash at the end asks for a directory.
        let from = find(filesystem, &args.from)?;
        let into = match filesystem.resolve(args.to.as_bytes(), LastLink::Follow) {
            Ok(stat) if is_dir(&stat) && !args.exchange && !args.no_target_directory => Some(stat.inode),
            _ => None,
        };
        let (new_dir, new_name) = match into {
            Some(inode) => (inode, name),
            None if is_dir(&from) => find_dir_place(filesystem, &args.to)?,
            None => find_place(filesystem, &args.to)?,
        };
        filesystem.rename(dir, name, new_dir, new_name, flags, &Caller::root()).at(format!(
            "{} to {}",
            shown(&args.from),
            shown(&args.to)
        ))
    })
}

/// Runs `rm`.
pub fn rm(session: &Session, args: &RmArgs) -> Result<()> {
    args.paths.paths.iter().try_for_each(|path| check_last_name(path))?;
    let discard = if args.discard { Discard::Freed } else { Discard::Nothing };
    let options = MountOptions { discard, ..options_to_write() };
    edit_with(session, &args.paths.image, options, |filesystem| {
        for_each(&args.paths.paths, |path| remove(filesystem, path, args))
    })
}

fn remove(filesystem: &Volume, path: &OsStr, args: &RmArgs) -> Result<()> {
    let (dir, name, stat) = match find_name(filesystem, path) {
        Err(Error::NotFound) if args.force => return Ok(()),
        found => found.at(path)?,
    };
    if args.recursive && is_dir(&stat) {
        return remove_tree(filesystem, path, dir, name, stat.inode);
    }
    if is_dir(&stat) {
        return Err(Error::IsADirectory).context("-r removes it with everything in it").at(path);
    }
    filesystem.unlink(dir, name, &Caller::root()).at(path)
}

fn find_name<'a>(filesystem: &Volume, path: &'a OsStr) -> Result<(InodeNumber, &'a [u8], Stat), Error> {
    let (dir, name) = xfskit_engine::split_path(path.as_bytes())?;
    let dir = filesystem.resolve(dir, LastLink::Follow)?.inode;
    let stat = filesystem.lookup(dir, name)?;
    if path.as_bytes().ends_with(b"/") && !is_dir(&stat) {
        return Err(Error::NotADirectory);
    }
    Ok((dir, name, stat))
}

/// Removes a directory and everything below it, the deepest files first.
fn remove_tree(filesystem: &Volume, path: &OsStr, dir: InodeNumber, name: &[u8], inode: InodeNumber) -> Result<()> {
    let caller = Caller::root();
    for step in ImageWalk::new(filesystem, inode, path.as_bytes()).staying_below()? {
        interrupt::check()?;
        let step = step?;
        let (WalkEvent::Found(found) | WalkEvent::Left(found)) = &step;
        let (dir, name) = found.dir.map_or((dir, name), |dir| (dir, found.name()));
        let removed = match step {
            WalkEvent::Found(_) if found.is_dir() => Ok(()),
            WalkEvent::Found(_) => filesystem.unlink(dir, name, &caller),
            WalkEvent::Left(_) => filesystem.rmdir(dir, name, &caller),
        };
        removed.at(OsStr::from_bytes(&found.path))?;
    }
    Ok(())
}
