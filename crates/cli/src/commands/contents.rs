//! `xfskit cat`, `write` and `clone`.

use super::list::is_dir;
use crate::args::{CatArgs, CloneArgs, WriteArgs};
use crate::interrupt;
use crate::open::edit::{edit, edit_after};
use crate::open::paths::{find_place, resolve, shown};
use crate::open::session::Session;
use crate::open::standard_input::{Input, PIPE_ENDS_WITHIN, is_pipe};
use crate::open::volume::open_to_read;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result, for_each};
use crate::output::screen::data;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::{Caller, Error, Fallocate, FileType, LastLink, NewFile, SetAttr, SetMode, SetTime, Stat, Volume};
use xfskit_ondisk::InodeNumber;

/// Bytes that are read or written at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The number of symbolic links that the kernel follows.
const MAX_LINKS: usize = 40;
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Runs `cat`. As with cat(1), a file that cannot be read does not prevent those behind it.
pub fn cat(session: &Session, args: &CatArgs) -> Result<()> {
    if args.paths.len() > 1 && (args.offset.is_some() || args.length.is_some()) {
        return Err(Usage("--offset and --length are for one file".into()).into());
    }
    let filesystem = open_to_read(session, &args.read)?;
    let mut out = data();
    let begin = args.offset.unwrap_or(0);
    let range = begin..begin.saturating_add(args.length.unwrap_or(u64::MAX));
    let printed = for_each(&args.paths, |path| cat_one(&filesystem, path, range.clone(), &mut out));
    out.flush()?;
    printed
}

fn cat_one(filesystem: &Volume, path: &OsStr, range: Range<u64>, out: &mut impl Write) -> Result<()> {
    let stat = resolve(filesystem, path, LastLink::Follow).at(path)?;
    if is_dir(&stat) {
        return Err(Error::IsADirectory).at(path);
    }
    let mut buffer = vec![0; stat.size.clamp(1, PIECE_BYTES as u64) as usize];
    let mut offset = range.start;
    loop {
        let wanted = (range.end - offset).min(buffer.len() as u64) as usize;
        let count = filesystem.read_at(stat.inode, offset, &mut buffer[..wanted]).at(path)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..count])?;
        offset += count as u64;
    }
}

/// Runs `write`. The input is read before the image is opened.
pub fn write(session: &Session, args: &WriteArgs) -> Result<()> {
    let input = Input::read(&args.image.image)?;
    if is_pipe() {
        session.wait.at_least(PIPE_ENDS_WITHIN);
    }
    edit_after(
        session,
        &args.image,
        |filesystem| find_target(filesystem, args).map(drop),
        |filesystem| {
            let target = find_target(filesystem, args)?;
            put(filesystem, &target, args, &input).at(&args.path)
        },
    )
}

/// The target of `write`.
enum Target<'a> {
    /// A file that exists, with its directory and name.
    File(Stat, (InodeNumber, Vec<u8>)),
    /// A name that does not exist.
    New(InodeNumber, &'a [u8]),
}

fn find_target<'a>(filesystem: &Volume, args: &'a WriteArgs) -> Result<Target<'a>> {
    let path = &args.path;
    match filesystem.resolve(path.as_bytes(), LastLink::Follow) {
        Ok(stat) if !stat.file_type.is_file() => {
            let error = if is_dir(&stat) { Error::IsADirectory } else { Error::Invalid("not a regular file") };
            Err(error).at(path)
        }
        Ok(stat) => {
            let place = behind_links(filesystem, path.as_bytes()).at(path)?;
            Ok(Target::File(stat, place))
        }
        Err(Error::NotFound) => {
            let (dir, name) = find_place(filesystem, path)?;
            Ok(Target::New(dir, name))
        }
        Err(error) => Err(error).at(path),
    }
}

/// The directory and the name of a file, after following symbolic links at the end of its path.
fn behind_links(filesystem: &Volume, path: &[u8]) -> Result<(InodeNumber, Vec<u8>), Error> {
    let mut path = path.to_vec();
    for _ in 0..MAX_LINKS {
        let (dir_path, name) = xfskit_engine::split_path(&path)?;
        let dir = filesystem.resolve(dir_path, LastLink::Follow)?.inode;
        let stat = filesystem.lookup(dir, name)?;
        if !stat.file_type.is_symlink() {
            return Ok((dir, name.to_vec()));
        }
        let target = filesystem.read_link(stat.inode)?;
        path = if target.starts_with(b"/") { target } else { [dir_path, b"/", &target].concat() };
    }
    Err(Error::TooManySymlinks)
}

fn put(filesystem: &Volume, target: &Target<'_>, args: &WriteArgs, input: &Input) -> Result<()> {
    let reader = &mut *input.reader()?;
    let root = Caller::root();
    match target {
        Target::New(dir, name) => {
            let made = filesystem.tmpfile(*dir, &NewFile::file(args.mode), &root)?;
            take_input(filesystem, made.number(), args.offset.unwrap_or(0), reader)?;
            filesystem.link(*dir, name, made.number(), &Caller::root())?;
            Ok(made.release()?)
        }
        Target::File(stat, _) if args.append => {
            reserve(filesystem, stat, stat.size, input.size_bytes()?)?;
            take_input(filesystem, stat.inode, stat.size, reader).map(drop)
        }
        Target::File(stat, _) if args.offset.is_some() => {
            reserve(filesystem, stat, args.offset.unwrap_or(0), input.size_bytes()?)?;
            take_input(filesystem, stat.inode, args.offset.unwrap_or(0), reader).map(drop)
        }
        Target::File(stat, (dir, name)) if can_be_replaced(stat) => {
            match replace(filesystem, stat, *dir, name, reader) {
                // There is no room for both contents.
                Err(error) if matches!(error.cause(), Some(Error::NoSpace)) => overwrite(filesystem, stat, input),
                replaced => replaced,
            }
        }
        Target::File(stat, _) => overwrite(filesystem, stat, input),
    }
}

/// Overwrites a file that has to keep its inode. The file is never empty meanwhile, but after a crash it may have parts
/// of both contents.
fn overwrite(filesystem: &Volume, stat: &Stat, input: &Input) -> Result<()> {
    reserve(filesystem, stat, 0, input.size_bytes()?)?;
    let end = take_input(filesystem, stat.inode, 0, &mut *input.reader()?)?;
    Ok(filesystem.truncate(stat.inode, end)?)
}

/// Allocates the blocks for a range of a file before the first byte is written, and unshares those that are shared. So
/// if there is no room, the contents stay as they are.
fn reserve(filesystem: &Volume, stat: &Stat, offset: u64, length: u64) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    let allocated = match filesystem.fallocate(stat.inode, offset, length, Fallocate::UnshareKeepSize) {
        // In an append-only file only the last block may be shared, and the first write unshares it.
        Err(Error::NotPermitted) => filesystem.fallocate(stat.inode, offset, length, Fallocate::AllocateKeepSize),
        other => other,
    };
    match allocated {
        Err(error @ Error::NoSpace) => {
            // Frees the blocks that it got behind the end of the file.
            filesystem.truncate(stat.inode, stat.size)?;
            Err(error.into())
        }
        reserved => Ok(reserved?),
    }
}

/// Whether another inode with the same attributes can replace that of a file without a visible difference.
fn can_be_replaced(stat: &Stat) -> bool {
    stat.links == 1 && stat.is_plain
}

/// Gives a file's name and attributes to a new file with other contents. At every moment, also after a crash, the name
/// refers to the old contents or to the new ones.
fn replace(filesystem: &Volume, old: &Stat, dir: InodeNumber, name: &[u8], input: &mut dyn Read) -> Result<()> {
    let new = NewFile::new(FileType::File, old.permissions);
    let made = filesystem.tmpfile(dir, &new, &Caller::root())?;
    take_input(filesystem, made.number(), 0, input)?;
    copy_attributes(filesystem, old, made.number(), SetTime::To(made.stat()?.mtime))?;
    filesystem.link_over(dir, name, made.number(), &Caller::root())?;
    Ok(made.release()?)
}

/// Writes the input from `offset` on; returns the offset of its end.
fn take_input(filesystem: &Volume, inode: InodeNumber, mut offset: u64, input: &mut dyn Read) -> Result<u64> {
    let mut buffer = Vec::with_capacity(PIECE_BYTES);
    loop {
        interrupt::check()?;
        buffer.clear();
        let count = input.take(PIECE_BYTES as u64).read_to_end(&mut buffer).context("standard input")?;
        if count == 0 {
            return Ok(offset);
        }
        filesystem.write_at(inode, offset, &buffer)?;
        offset += count as u64;
    }
}

/// Runs `clone`.
pub fn clone(session: &Session, args: &CloneArgs) -> Result<()> {
    edit(session, &args.image, |filesystem| {
        let from = resolve(filesystem, &args.from, LastLink::Follow).at(&args.from)?;
        let (dir, name) = match filesystem.resolve(args.to.as_bytes(), LastLink::Follow) {
            Ok(stat) if is_dir(&stat) => (stat.inode, xfskit_engine::split_path(args.from.as_bytes())?.1),
            _ => find_place(filesystem, &args.to)?,
        };
        clone_file(filesystem, &from, dir, name).at(format!("{} to {}", shown(&args.from), shown(&args.to)))
    })
}

/// Makes a file that shares the blocks of another and has all its attributes. It gets its name when it is complete.
fn clone_file(filesystem: &Volume, from: &Stat, dir: InodeNumber, name: &[u8]) -> Result<(), Error> {
    if !from.file_type.is_file() {
        return Err(Error::Invalid("only regular files have blocks to share"));
    }
    let root = Caller::root();
    // The reference frees the file if something fails before it has a name.
    let made = filesystem.tmpfile(dir, &NewFile::new(FileType::File, from.permissions), &root)?;
    if from.size > 0 {
        filesystem.clone_range(from.inode, 0, made.number(), 0, 0)?;
    }
    copy_attributes(filesystem, from, made.number(), SetTime::To(from.mtime))?;
    filesystem.link_over(dir, name, made.number(), &root)?;
    made.release()
}

/// Gives a new file the attributes of another, and a modification time. An ACL that it has inherited is removed.
fn copy_attributes(filesystem: &Volume, from: &Stat, made: InodeNumber, mtime: SetTime) -> Result<(), Error> {
    let root = Caller::root();
    let names = filesystem.list_xattrs(from.inode)?;
    if !names.iter().any(|name| name == ACCESS_ACL) {
        match filesystem.remove_xattr(made, ACCESS_ACL, SetMode::Any, &root) {
            Err(Error::NoAttribute) => {}
            removed => removed?,
        }
    }
    for name in names {
        // XFS lists the ACLs a second time under names of its own.
        if !name.starts_with(b"trusted.SGI_ACL_") {
            let value = filesystem.get_xattr(from.inode, &name)?;
            filesystem.set_xattr(made, &name, &value, SetMode::Any, &root)?;
        }
    }
    let (atime, mtime) = (Some(SetTime::To(from.atime)), Some(mtime));
    let (permissions, uid, gid) = (Some(from.permissions), Some(from.uid), Some(from.gid));
    filesystem.set_attr(made, &SetAttr { permissions, uid, gid, atime, mtime, ..SetAttr::default() }, &root)?;
    Ok(())
}
