//! Files of disks that are open, and of which no more than signatures and headers has been read.

use super::header;
use super::mounted::explain_open;
use super::wait::Wait;
use crate::operand::{self, is_address};
use crate::output::error::{CommandError, Kind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError};
use xfskit_disk::{DiskError, Operand, Part, Unread};

/// The unit in which a system counts the storage of a file.
const BLOCK_BYTES: u64 = 512;

/// Opens one file of an operand, and those below it: for a process that is about to give up its rights, so that another
/// one reads the header. While another program uses one of them, waits for the time of `--wait`.
///
/// # Errors
/// A missing or busy file; those of [`header::read_below`].
pub fn open_with_below(wait: &Wait, path: &Path, access: Access) -> Result<Unread> {
    open_unread(wait, path, access, |file| file.open_below(&header::read_below))
}

/// Opens one file of an operand; `then` is done with it before it is taken for open. While another program uses it,
/// waits for the time of `--wait`.
///
/// # Errors
/// A missing or busy file; those of `then`.
pub fn open_unread(
    wait: &Wait,
    path: &Path,
    access: Access,
    then: impl Fn(&mut Unread) -> Result<()>,
) -> Result<Unread> {
    let is_busy = |error: &CommandError| matches!(error.kind(), Kind::Busy);
    let opened = wait.retry_while(is_busy, || {
        let mut file = Unread::open(path, access)?;
        then(&mut file)?;
        Ok(file)
    });
    opened.map_err(|error| explain(path, error))
}

/// An error of opening a file, with what the user can do if xfskit has it mounted.
pub fn explain(path: &Path, error: CommandError) -> CommandError {
    match error.into_cause() {
        Ok(DiskError::Open(error)) => explain_open(path, error),
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// Whether an operand is one file or device as it is: neither a part, nor a virtual disk in a format of its own, nor on
/// a server. A file that does not exist is one.
///
/// # Errors
/// As [`operand::decode`]; `Missing` for a part of a disk that does not exist.
pub fn is_plain(operand: &Path) -> Result<bool> {
    let decoded = operand::decode(operand)?;
    let [path] = &decoded.paths[..] else { return Ok(false) };
    if decoded.part != Part::Unnamed || is_address(path) {
        return Ok(false);
    }
    if !path.exists() {
        // Made, it would be a file of that name; meant is a part of a disk that is not there.
        return match Operand::decode(operand.as_os_str(), |path| !path.as_os_str().as_bytes().contains(&b'#')) {
            Ok(Operand { paths, part }) if part != Part::Unnamed => Err(OpenError::Missing(paths[0].clone()).into()),
            _ => Ok(true),
        };
    }
    // What is wrong with a file that cannot be read is reported when it is opened.
    Ok(!Unread::open(path, Access::ReadUnlocked).is_ok_and(|file| file.is_virtual()))
}

/// What the files of a disk have of the host's storage; those below it count as far as they are open.
pub fn stored_bytes(disk: &Unread) -> u64 {
    let stored = |file: &FileDevice| match file.metadata() {
        Ok(data) if data.is_file() => data.blocks() * BLOCK_BYTES,
        _ => file.size_bytes(),
    };
    disk.below().map(|(_, file)| stored(file)).fold(stored(disk.file()), u64::saturating_add)
}
