//! `xfskit cat` and `write`.

use super::list::is_dir;
use crate::args::{CatArgs, WriteArgs};
use crate::image::{edit, find_place, open_to_read, shown};
use anyhow::{Context, Result};
use std::io::{Read, Write, stdin, stdout};
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::InodeNumber;
use xfskit::ondisk::inode::{MODE_REGULAR, MODE_TYPE};
use xfskit::{Caller, Error, Filesystem, NewFile};

/// Bytes that are read or written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Runs `cat`.
pub fn cat(args: &CatArgs) -> Result<()> {
    let filesystem = open_to_read(&args.paths.image)?;
    let mut out = stdout().lock();
    for path in &args.paths.paths {
        let stat = filesystem.resolve(path.as_bytes(), true).with_context(|| shown(path))?;
        if is_dir(&stat) {
            return Err(Error::IsADirectory).with_context(|| shown(path));
        }
        let mut buffer = vec![0; PIECE_BYTES.min(stat.size.max(1) as usize)];
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
                truncate(filesystem, stat.inode, 0).with_context(|| shown(path))?;
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

fn truncate(_: &Filesystem, _: InodeNumber, _: u64) -> Result<(), Error> {
    Err(Error::NotSupported("truncate"))
}
