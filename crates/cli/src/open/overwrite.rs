//! Files and devices that a command is about to write over: they are refused if they hold anything, unless `-f` was
//! given.

use super::files::Files;
use super::rescue::most_read_of;
use super::session::{Confined, Session};
use super::unread::is_plain;
use crate::args::{MkfsArgs, Overwrite};
use crate::operand;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::probe::{Kind, disk_format, existing_format};
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError};
use xfskit_disk::Unnamed;
use xfskit_mkfs::{Extent, first_data};

/// The ends of the names of virtual disks.
const VIRTUAL: [&str; 7] = ["qcow2", "qcow", "vmdk", "vdi", "vhd", "vhdx", "qed"];

/// What is about to be written over, such as the device of an external journal: open and locked, and not looked at yet.
pub enum Existing {
    /// A part of a disk, or a virtual disk.
    Part(Files),
    /// A file or device as it is.
    Whole(FileDevice),
}

impl Existing {
    /// Opens what an operand names.
    ///
    /// # Errors
    /// Those of opening.
    pub fn open(session: &Session, operand: &Path) -> Result<Self> {
        Ok(match is_plain(operand)? {
            true => Self::Whole(session.open_device(operand, Access::Write)?),
            false => Self::Part(Files::open(session, operand, Access::Write)?),
        })
    }

    /// The device, if nothing is on it that must not be overwritten. `path` is the operand.
    ///
    /// # Errors
    /// `Usage`; those of reading it.
    pub fn into_device(
        self,
        confined: Confined<'_>,
        path: &Path,
        overwrite: Overwrite,
    ) -> Result<Arc<dyn BlockDevice>> {
        match self {
            Self::Part(files) => choose_part(confined, path, files, overwrite),
            Self::Whole(device) => {
                verify_existing(path, &device, overwrite, None)?;
                Ok(Arc::new(device))
            }
        }
    }
}

/// The part of a disk that an operand names, for writing over it. A part that has something that must not be
/// overwritten is refused.
///
/// # Errors
/// `Usage`; those of reading it.
pub fn choose_part(
    confined: Confined<'_>,
    operand: &Path,
    files: Files,
    overwrite: Overwrite,
) -> Result<Arc<dyn BlockDevice>> {
    let opened = files.choose(confined, Unnamed::WholeDisk)?;
    if overwrite != Overwrite::Anything {
        let shown = || opened.name.clone();
        let found = disk_format(&*opened.device).with_context(shown)?;
        // Files say where their holes are, so that all of it can be searched; a device would have to be read.
        let is_file = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|data| data.is_file());
        let extent = match opened.stored_bytes_of_virtual() {
            _ if !operand::files(operand).iter().all(is_file) => Extent::Disk,
            Some(bytes) => Extent::Virtual(most_read_of(bytes)),
            None => Extent::File,
        };
        verify_overwritable(&opened.name, &*opened.device, found, extent, overwrite).with_context(shown)?;
    }
    Ok(opened.device)
}

/// Opens an existing file or device. One that has something that must not be overwritten, or a file of more than
/// `size` bytes, is refused.
///
/// # Errors
/// `Usage`; those of opening.
pub fn open_existing(session: &Session, path: &Path, overwrite: Overwrite, size: Option<u64>) -> Result<FileDevice> {
    let device = session.open_device(path, Access::Write)?;
    verify_existing(path, &device, overwrite, size)?;
    Ok(device)
}

/// Refuses an open file or device that has something that must not be overwritten, or a file of more than `size` bytes.
///
/// # Errors
/// `Usage`; those of reading it.
pub fn verify_existing(path: &Path, device: &FileDevice, overwrite: Overwrite, size: Option<u64>) -> Result<()> {
    if overwrite == Overwrite::Anything {
        return Ok(());
    }
    let io_error = |source| OpenError::Io { path: path.into(), source };
    let shown = path.display();
    let found = match overwrite {
        Overwrite::Unformatted => disk_format(device),
        _ => existing_format(device),
    };
    let found = found.map_err(io_error)?;
    let is_file = device.metadata().map_err(io_error)?.is_file();
    let extent = if is_file { Extent::File } else { Extent::Disk };
    let verified = verify_overwritable(&shown.to_string(), device, found, extent, overwrite);
    verified.map_err(|error| match error.into_cause() {
        Ok(source) => io_error(source).into(),
        Err(error) => error,
    })?;
    let bytes = device.size_bytes();
    let is_cut = is_file && overwrite != Overwrite::Unformatted;
    if let Some(size) = size.filter(|size| is_cut && *size < bytes) {
        return Err(Usage(format!("{shown}: it has {bytes} bytes, and would be cut to {size}; -f does it")).into());
    }
    Ok(())
}

/// Refuses a device with a known format, and unless that is all that counts, with any data.
///
/// # Errors
/// `Usage`; the system's, as `io::Error`.
fn verify_overwritable(
    name: &str,
    device: &dyn BlockDevice,
    found: Option<Kind>,
    extent: Extent,
    overwrite: Overwrite,
) -> Result<()> {
    if let Some(what) = found {
        // Who names a whole disk may have meant a part of it.
        let part =
            if what.is_partition_table() { format!("; {name}#2 is its second partition") } else { String::new() };
        return Err(Usage(format!("{name}: it holds {what}; -f overwrites it{part}")).into());
    }
    if overwrite == Overwrite::Unformatted {
        return Ok(());
    }
    if let Some(offset) = first_data(device, extent)? {
        let what = "nothing that is known by its signature, but it is not empty";
        return Err(Usage(format!("{name}: it holds {what} (byte {offset} is not zero); -f overwrites it")).into());
    }
    Ok(())
}

/// The files of the part of a disk that the operand names, if it does not name a file or device as it is. Nothing of
/// them is read yet.
///
/// # Errors
/// `Usage` for a size, which a part has itself, and for a new file with the name of a virtual disk, which would not be
/// one; as [`Files::open`].
pub fn open_part(session: &Session, args: &MkfsArgs) -> Result<Option<Files>> {
    verify_no_new_device(args.image())?;
    let part = match is_plain(args.image())? {
        true => None,
        false => Some(Files::open(session, args.image(), Access::Write)?),
    };
    let extension = args.image().extension().and_then(OsStr::to_str).filter(|extension| VIRTUAL.contains(extension));
    if part.is_none() && !args.image().exists() && extension.is_some() {
        let image = args.image().display();
        let first = format!("make the disk first: qemu-img create -f qcow2 {image} SIZE");
        return Err(Usage(format!("{image}: a new file would be a raw image; {first}")).into());
    }
    if part.is_some() && args.size.is_some() {
        let image = args.image().display();
        return Err(
            Usage(format!("{image}: a part of a disk, and a virtual disk, has a size: leave --size out")).into()
        );
    }
    Ok(part)
}

/// Refuses a name among the devices that no device has: a file made there would take the host's memory, and what was
/// meant was another device.
fn verify_no_new_device(image: &Path) -> Result<(), Usage> {
    if image.symlink_metadata().is_ok() {
        return Ok(());
    }
    let absolute = std::path::absolute(image).unwrap_or_else(|_| image.into());
    let dir = absolute.parent().unwrap_or(&absolute);
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.into());
    if !dir.starts_with("/dev") || dir.starts_with("/dev/shm") {
        return Ok(());
    }
    Err(Usage(format!("{}: there is no such device, and no file is made in {}", image.display(), dir.display())))
}
