//! Files and devices that a command is about to write over: they are refused if they hold anything, unless `-f` was
//! given.

use crate::exit::Usage;
use crate::image::open_device;
use crate::operand;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use xfskit::device::{Access, BlockDevice, FileDevice, OpenError};
use xfskit_disk::Unnamed;
use xfskit_mkfs::{Extent, disk_format, existing_format, first_data};

/// Opens the part of a disk that an operand names, for writing over it. None for a file or device as it is, which
/// [`open_existing`] opens, and for a file that does not exist. Without `force`, a part that is not empty is refused.
///
/// # Errors
/// `Usage`; those of opening.
pub fn open_existing_part(operand: &Path, force: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    if operand::is_plain(operand)? {
        return Ok(None);
    }
    let opened = operand::open(operand, Access::Write, Unnamed::WholeDisk)?;
    if !force {
        let found = disk_format(&*opened.device).with_context(|| opened.name.clone())?;
        verify_empty(&opened.name, &*opened.device, found, Extent::Disk).with_context(|| opened.name.clone())?;
    }
    Ok(Some(opened.device))
}

/// As [`open_existing_part`], for a file or device too: the device of an external journal.
///
/// # Errors
/// As [`open_existing`].
pub fn open_existing_log(operand: &Path, force: bool) -> Result<Arc<dyn BlockDevice>> {
    match open_existing_part(operand, force)? {
        Some(device) => Ok(device),
        None => Ok(Arc::new(open_existing(operand, force, None)?)),
    }
}

/// Opens an existing file or device. Without `force`, one that is not empty, or a file of more than `size` bytes, is
/// refused.
pub fn open_existing(path: &Path, force: bool, size: Option<u64>) -> Result<FileDevice> {
    let device = open_device(path, Access::Write)?;
    if force {
        return Ok(device);
    }
    let io_error = |source| OpenError::Io { path: path.into(), source };
    let shown = path.display();
    let found = existing_format(&device).map_err(io_error)?;
    let is_file = device.metadata().map_err(io_error)?.is_file();
    let extent = if is_file { Extent::File } else { Extent::Disk };
    verify_empty(&shown.to_string(), &device, found, extent).map_err(|error| match error.downcast() {
        Ok(source) => io_error(source).into(),
        Err(error) => error,
    })?;
    let bytes = device.size_bytes();
    if let Some(size) = size.filter(|size| is_file && *size < bytes) {
        return Err(Usage(format!("{shown}: it has {bytes} bytes, and would be cut to {size}; -f does it")).into());
    }
    Ok(device)
}

/// Refuses a device with a known format, or with any data.
///
/// # Errors
/// `Usage`; the system's, as `io::Error`.
fn verify_empty(name: &str, device: &dyn BlockDevice, found: Option<&str>, extent: Extent) -> Result<()> {
    if let Some(what) = found {
        return Err(Usage(format!("{name}: it holds {what}; -f overwrites it")).into());
    }
    if let Some(offset) = first_data(device, extent)? {
        let what = "nothing that is known by its signature, but it is not empty";
        return Err(Usage(format!("{name}: it holds {what} (byte {offset} is not zero); -f overwrites it")).into());
    }
    Ok(())
}
