//! `xfskit cat`, `write` and `clone`.

use super::list::is_dir;
use crate::args::{CatArgs, CloneArgs, WriteArgs};
use crate::image::{edit, find_place, open_to_read, shown};
use anyhow::{Context, Result};
use std::io::{Read, Write, stdin, stdout};
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::InodeNumber;
use xfskit::ondisk::inode::{MODE_REGULAR, MODE_TYPE};
use xfskit::{Caller, Error, Filesystem, NewFile, SetAttr, SetMode, SetTime, Stat};

/// Bytes that are read or written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Runs `cat`.
pub fn cat(args: &CatArgs) -> Result<()> {
    let filesystem = open_to_read(&args.read)?;
    let mut out = stdout().lock();
    for path in &args.paths {
        let stat = filesystem.resolve(path.as_bytes(), true).with_context(|| shown(path))?;
        if is_dir(&stat) {
            return Err(Error::IsADirectory).with_context(|| shown(path));
        }
        let mut buffer = vec![0; stat.size.clamp(1, PIECE_BYTES as u64) as usize];
        let mut offset = 0;
        loop {
            let count = filesystem.read_at(stat.inode, offset, &mut buffer).with_context(|| shown(path))?;
            if count == 0 {
                break;
            }
            out.write_all(&buffer[..count])?;
            offset += count as u64;
        }
    }
    Ok(out.flush()?)
}

/// Runs `write`.
pub fn write(args: &WriteArgs) -> Result<()> {
    edit(&args.image, |filesystem| {
        let (inode, offset) = target(filesystem, args)?;
        take_input(filesystem, inode, offset).with_context(|| shown(&args.path))
    })
}

/// The file to write, and where to begin.
fn target(filesystem: &Filesystem, args: &WriteArgs) -> Result<(InodeNumber, u64)> {
    let path = &args.path;
    match filesystem.resolve(path.as_bytes(), true) {
        Ok(stat) if stat.mode & MODE_TYPE != MODE_REGULAR => {
            let error = if is_dir(&stat) { Error::IsADirectory } else { Error::Invalid("not a regular file") };
            Err(error).with_context(|| shown(path))
        }
        Ok(stat) => {
            let offset = if args.append { stat.size } else { args.offset.unwrap_or(0) };
            if !args.append && args.offset.is_none() {
                filesystem.truncate(stat.inode, 0).with_context(|| shown(path))?;
            }
            Ok((stat.inode, offset))
        }
        Err(Error::NotFound) => {
            let (dir, name) = find_place(filesystem, path)?;
            let new = NewFile::new(MODE_REGULAR | args.mode);
            let made = filesystem.create(dir, name, &new, &Caller::root()).with_context(|| shown(path))?;
            Ok((made.inode, args.offset.unwrap_or(0)))
        }
        Err(error) => Err(error).with_context(|| shown(path)),
    }
}

fn take_input(filesystem: &Filesystem, inode: InodeNumber, mut offset: u64) -> Result<()> {
    let mut input = stdin().lock();
    let mut buffer = Vec::with_capacity(PIECE_BYTES);
    loop {
        buffer.clear();
        let count = (&mut input).take(PIECE_BYTES as u64).read_to_end(&mut buffer).context("standard input")?;
        if count == 0 {
            return Ok(());
        }
        filesystem.write_at(inode, offset, &buffer)?;
        offset += count as u64;
    }
}

/// Runs `clone`.
pub fn clone(args: &CloneArgs) -> Result<()> {
    edit(&args.image, |filesystem| {
        let from = filesystem.resolve(args.from.as_bytes(), true).with_context(|| shown(&args.from))?;
        let (dir, name) = match filesystem.resolve(args.to.as_bytes(), true) {
            Ok(stat) if is_dir(&stat) => (stat.inode, xfskit::split_path(args.from.as_bytes())?.1),
            _ => find_place(filesystem, &args.to)?,
        };
        clone_file(filesystem, &from, dir, name)
            .with_context(|| format!("{} to {}", shown(&args.from), shown(&args.to)))
    })
}

/// Makes a file that shares its blocks and has all attributes of another. It gets its name when it is complete.
fn clone_file(filesystem: &Filesystem, from: &Stat, dir: InodeNumber, name: &[u8]) -> Result<(), Error> {
    if from.mode & MODE_TYPE != MODE_REGULAR {
        return Err(Error::Invalid("only regular files have blocks to share"));
    }
    let root = Caller::root();
    // Held, so that it goes away if something fails before it has a name.
    let made = filesystem.tmpfile(dir, &NewFile::new(from.mode), &root)?.inode;
    let result = (|| {
        if from.size > 0 {
            filesystem.clone_range(from.inode, 0, made, 0, 0)?;
        }
        for name in filesystem.list_xattr(from.inode)? {
            // The ACLs come once more, under names of XFS's own.
            if !name.starts_with(b"trusted.SGI_ACL_") {
                let value = filesystem.get_xattr(from.inode, &name)?;
                filesystem.set_xattr(made, &name, &value, SetMode::Any, &root)?;
            }
        }
        let (atime, mtime) = (Some(SetTime::To(from.atime)), Some(SetTime::To(from.mtime)));
        let (mode, uid, gid) = (Some(from.mode & !MODE_TYPE), Some(from.uid), Some(from.gid));
        filesystem.set_attr(made, &SetAttr { mode, uid, gid, atime, mtime, ..SetAttr::default() }, &root)?;
        filesystem.link_over(made, dir, name, &root)
    })();
    let released = filesystem.unhold(made, 1);
    result.and(released)
}
