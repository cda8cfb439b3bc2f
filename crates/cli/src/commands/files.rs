//! `xfskit mkdir`, `mknod`, `touch`, `chmod` and `chown`. New files belong to user and group 0.

use super::list::is_dir;
use crate::args::{ChmodArgs, ChownArgs, MkdirArgs, MknodArgs, NodeKind, TouchArgs};
use crate::interrupt;
use crate::open::edit::edit;
use crate::open::paths::{find, find_dir_place, find_place, resolve};
use crate::open::session::Session;
use crate::open::volume::{open_without_lock, superblock_of};
use crate::output::causes::Usage;
use crate::output::error::{Context, Failures, Result, for_each};
use crate::output::text::json_time;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xfskit_engine::{Caller, Error, FileType, LastLink, NewFile, Permissions, SetAttr, SetTime, Stat, Volume};
use xfskit_ondisk::{DeviceNumber, Geometry, Timestamp, clamp_time};
use xfskit_transfer::{ImageWalk, WalkEvent};

const MAX_MAJOR: u32 = 0xfff;
const MAX_MINOR: u32 = 0xf_ffff;

/// Runs `mkdir`.
pub fn mkdir(session: &Session, args: &MkdirArgs) -> Result<()> {
    edit(session, &args.paths.image, |filesystem| {
        for_each(&args.paths.paths, |path| match args.parents {
            true => make_parents(filesystem, path, args.mode).at(path),
            false => make(filesystem, path, &NewFile::dir(args.mode)),
        })
    })
}

fn make(filesystem: &Volume, path: &OsStr, new: &NewFile<'_>) -> Result<()> {
    let is_dir = new.file_type.is_dir();
    let (dir, name) = if is_dir { find_dir_place(filesystem, path) } else { find_place(filesystem, path) }?;
    filesystem.create(dir, name, new, &Caller::root()).at(path)?;
    Ok(())
}

/// Makes a directory and the missing directories above it.
fn make_parents(filesystem: &Volume, path: &OsStr, mode: u16) -> Result<(), Error> {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let slashes = bytes[..end].iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for length in slashes.chain([end]) {
        let part = &bytes[..length];
        match filesystem.resolve(part, LastLink::Follow) {
            Ok(stat) if is_dir(&stat) => {}
            Ok(_) => return Err(Error::NotADirectory),
            Err(Error::NotFound) => {
                let (dir, name) = xfskit_engine::split_path(part)?;
                let dir = filesystem.resolve(dir, LastLink::Follow)?.inode;
                let mode = if length == end { mode } else { 0o755 };
                filesystem.create(dir, name, &NewFile::dir(mode), &Caller::root())?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs `mknod`.
pub fn mknod(session: &Session, args: &MknodArgs) -> Result<()> {
    let wants_device = matches!(args.kind, NodeKind::Block | NodeKind::Char);
    let device = match (wants_device, args.major, args.minor) {
        (true, Some(major), Some(minor)) if major <= MAX_MAJOR && minor <= MAX_MINOR => {
            DeviceNumber { major, minor }.to_linux()
        }
        (true, Some(_), Some(_)) => {
            return Err(Usage(format!("device numbers reach to {MAX_MAJOR} and {MAX_MINOR}")).into());
        }
        (true, ..) => return Err(Usage("a device needs a major and a minor number".into()).into()),
        (false, None, None) => 0,
        (false, ..) => return Err(Usage("only devices have a major and a minor number".into()).into()),
    };
    let file_type = match args.kind {
        NodeKind::Block => FileType::BlockDevice,
        NodeKind::Char => FileType::CharDevice,
        NodeKind::Pipe => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
        NodeKind::File => FileType::File,
    };
    let new = NewFile { device, ..NewFile::new(file_type, Permissions::new(args.mode)) };
    edit(session, &args.image, |filesystem| make(filesystem, &args.path, &new))
}

/// Runs `touch`.
pub fn touch(session: &Session, args: &TouchArgs) -> Result<()> {
    if let Some(date) = args.date {
        check_date(session, &args.paths.image.image, date)?;
    }
    let time = args.date.map_or(SetTime::Now, SetTime::To);
    let change = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
    edit(session, &args.paths.image, |filesystem| {
        for_each(&args.paths.paths, |path| touch_one(filesystem, path, &change, args).at(path))
    })
}

/// Refuses a date that the image cannot hold: the engine sets the nearest that it can, as the kernel does. What is
/// wrong with an image that cannot be read is reported when it is opened.
fn check_date(session: &Session, image: &Path, date: Timestamp) -> Result<()> {
    let superblock = open_without_lock(session, image).and_then(|device| superblock_of(image, &*device));
    let Ok(superblock) = superblock else { return Ok(()) };
    let has_bigtime = Geometry::new(&superblock).has_bigtime();
    let limit = |seconds| clamp_time(Timestamp { seconds, nanoseconds: 0 }, has_bigtime);
    let (first, last) = (limit(i64::MIN), limit(i64::MAX));
    if (first.seconds..=last.seconds).contains(&date.seconds) {
        return Ok(());
    }
    let shown = |time| json_time(Timestamp { nanoseconds: 0, ..time }).replace(".000000000", "");
    let (name, first, last) = (image.display(), shown(first), shown(last));
    let cure = if has_bigtime { "" } else { " (with -m bigtime=1, mkfs makes one that reaches to 2486)" };
    Err(Usage(format!("{}: {name} holds times from {first} to {last}{cure}", shown(date))).into())
}

fn touch_one(filesystem: &Volume, path: &OsStr, change: &SetAttr, args: &TouchArgs) -> Result<(), Error> {
    let stat = match resolve(filesystem, path, LastLink::Follow) {
        Ok(stat) => stat,
        Err(Error::NotFound) if args.no_create => return Ok(()),
        Err(Error::NotFound) if path.as_bytes().ends_with(b"/") => return Err(Error::NotFound),
        Err(Error::NotFound) => {
            let (dir, name) = xfskit_engine::split_path(path.as_bytes())?;
            let dir = filesystem.resolve(dir, LastLink::Follow)?.inode;
            let stat = filesystem.create(dir, name, &NewFile::file(args.mode), &Caller::root())?;
            if args.date.is_none() {
                return Ok(());
            }
            stat
        }
        Err(error) => return Err(error),
    };
    filesystem.set_attr(stat.inode, change, &Caller::root())?;
    Ok(())
}

/// Runs `chmod`. A symbolic link that is an operand is followed; below a directory symbolic links are skipped, since
/// their permissions have no effect.
pub fn chmod(session: &Session, args: &ChmodArgs) -> Result<()> {
    edit(session, &args.image, |filesystem| {
        for_each(&args.paths, |path| {
            let start = resolve(filesystem, path, LastLink::Follow).at(path)?;
            change_all(filesystem, path, start, args.recursive, |stat| {
                let mode = args.mode.apply(stat.mode(), is_dir(stat));
                (!stat.file_type.is_symlink())
                    .then(|| SetAttr { permissions: Some(Permissions::new(mode)), ..SetAttr::default() })
            })
        })
    })
}

/// Runs `chown`. For a symbolic link, it changes the link itself.
pub fn chown(session: &Session, args: &ChownArgs) -> Result<()> {
    let change = SetAttr { uid: args.owner.uid, gid: args.owner.gid, ..SetAttr::default() };
    edit(session, &args.image, |filesystem| {
        for_each(&args.paths, |path| {
            let start = find(filesystem, path)?;
            change_all(filesystem, path, start, args.recursive, |_| Some(change))
        })
    })
}

/// Changes a file and, if `recursive` is set, everything below it.
fn change_all(
    filesystem: &Volume,
    path: &OsStr,
    start: Stat,
    recursive: bool,
    change: impl Fn(&Stat) -> Option<SetAttr>,
) -> Result<()> {
    let change_one = |stat: &Stat, path: &OsStr| -> Result<()> {
        if let Some(change) = change(stat) {
            filesystem.set_attr(stat.inode, &change, &Caller::root()).at(path)?;
        }
        Ok(())
    };
    if !recursive {
        return change_one(&start, path);
    }
    let mut failures = Failures::default();
    for step in ImageWalk::new(filesystem, start.inode, path.as_bytes()).staying_below()? {
        interrupt::check()?;
        if let WalkEvent::Found(found) = step? {
            failures.note(change_one(&found.stat, OsStr::from_bytes(&found.path)))?;
        }
    }
    failures.into_result()
}
