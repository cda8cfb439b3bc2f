//! Files and devices that a command is about to write over: they are refused if they hold anything, unless `-f` was
//! given.

use crate::args::Overwrite;
use crate::exit::Usage;
use crate::image::open_device;
use anyhow::Result;
use std::path::Path;
use xfskit::device::{Access, BlockDevice, FileDevice, OpenError};
use xfskit_mkfs::{Extent, disk_format, existing_format, first_data};

/// Opens an existing file or device. One that has something that must not be overwritten, or a file of more than
/// `size` bytes, is refused.
pub fn open_existing(path: &Path, overwrite: Overwrite, size: Option<u64>) -> Result<FileDevice> {
    open_existing_for(Access::Write, path, overwrite, size)
}

/// As [`open_existing`], with another way of writing.
pub fn open_existing_for(access: Access, path: &Path, overwrite: Overwrite, size: Option<u64>) -> Result<FileDevice> {
    let device = open_device(path, access)?;
    if overwrite == Overwrite::Anything {
        return Ok(device);
    }
    let io_error = |source| OpenError::Io { path: path.into(), source };
    let shown = path.display();
    let found = match overwrite {
        Overwrite::Unformatted => disk_format(&device),
        _ => existing_format(&device),
    };
    if let Some(what) = found.map_err(io_error)? {
        return Err(Usage(format!("{shown}: it holds {what}; -f overwrites it")).into());
    }
    if overwrite == Overwrite::Unformatted {
        return Ok(device);
    }
    let is_file = device.metadata().map_err(io_error)?.is_file();
    let extent = if is_file { Extent::File } else { Extent::Disk };
    if let Some(offset) = first_data(&device, extent).map_err(io_error)? {
        let what = "nothing that is known by its signature, but it is not empty";
        return Err(Usage(format!("{shown}: it holds {what} (byte {offset} is not zero); -f overwrites it")).into());
    }
    let bytes = device.size_bytes();
    if let Some(size) = size.filter(|size| is_file && *size < bytes) {
        return Err(Usage(format!("{shown}: it has {bytes} bytes, and would be cut to {size}; -f does it")).into());
    }
    Ok(device)
}
