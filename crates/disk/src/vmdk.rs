//! A VMDK image with flat extents as a device that is read, by the crate `imago`.
//!
//! The descriptor is a text that names the files of the extents. Each is opened through [`Gate`], by the opener of the
//! container, which locks it first. Imago finds them beside the descriptor, for which it needs a name of that: it gets
//! the name of the open file in `/proc`, whose place no other file can take.
//!
//! Sparse and stream-optimised extents are refused by imago, by name. Imago limits the descriptor to 2 MiB.

use crate::below::{MOST_NAMES, as_written, beside};
use crate::error::{DiskError, attach};
use crate::mapping::may_hold_data;
use crate::signature::Opener;
use imago::file::File as ImagoFile;
use imago::format::builder::FormatDriverBuilder;
use imago::format::gate::ImplicitOpenGate;
use imago::vmdk::Vmdk;
use imago::{FormatAccess, StorageOpenOptions};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use xfskit_device::{Access, BlockDevice, FileDevice, Hints};

/// A VMDK image that is read.
pub(crate) struct VmdkDevice {
    image: FormatAccess<ImagoFile>,
    /// The extents, which hold the locks.
    files: Vec<(PathBuf, FileDevice)>,
    _descriptor: FileDevice,
}

/// Opens the files that a descriptor names.
struct Gate<'a> {
    path: &'a Path,
    opener: Opener<'a>,
    files: &'a mut Vec<(PathBuf, FileDevice)>,
}

/// Notes them, and opens none: `stand_in` takes the place of each.
struct Names<'a> {
    stand_in: &'a File,
    names: &'a mut Vec<String>,
}

fn no_format<F>(_: F) -> io::Result<FormatAccess<ImagoFile>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a VMDK image that lies on another one"))
}

/// Where imago looks for an extent, or an error if there were `before` already.
fn extent_path(options: &StorageOpenOptions, before: usize) -> io::Result<&Path> {
    match options.get_filename() {
        Some(_) if before >= MOST_NAMES => Err(io::Error::new(io::ErrorKind::InvalidData, "too many extents")),
        path => Ok(as_written(path.unwrap_or(Path::new("")))),
    }
}

impl ImplicitOpenGate<ImagoFile> for Gate<'_> {
    fn open_format<F: FormatDriverBuilder<ImagoFile>>(&mut self, format: F) -> io::Result<FormatAccess<ImagoFile>> {
        no_format(format)
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImagoFile> {
        let path = beside(self.path, extent_path(&options, self.files.len())?);
        let opened = (self.opener)(&path, Access::Read).map_err(io::Error::other)?;
        opened.verify_alone(&path).map_err(io::Error::other)?;
        let file = ImagoFile::try_from(opened.try_clone_file()?)?;
        self.files.push((path, opened));
        Ok(file)
    }
}

impl ImplicitOpenGate<ImagoFile> for Names<'_> {
    fn open_format<F: FormatDriverBuilder<ImagoFile>>(&mut self, format: F) -> io::Result<FormatAccess<ImagoFile>> {
        no_format(format)
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImagoFile> {
        self.names.push(extent_path(&options, self.names.len())?.to_string_lossy().into_owned());
        ImagoFile::try_from(self.stand_in.try_clone()?)
    }
}

/// The names of the extents as the descriptor writes them; none if it cannot be used.
pub(crate) fn extents(descriptor: ImagoFile, stand_in: &File) -> Vec<String> {
    let mut names = Vec::new();
    let gate = Names { stand_in, names: &mut names };
    match Vmdk::<ImagoFile>::builder(descriptor).open(gate) {
        Ok(_) => names,
        Err(_) => Vec::new(),
    }
}

/// A VMDK image that is written, or that cannot be used.
pub(crate) fn refused(path: &Path, what: String) -> DiskError {
    DiskError::Refused { path: path.into(), what, advice: attach(path, "vmdk") }
}

/// The refusal of an image of which imago, or an extent, says why it cannot be used.
pub(crate) fn unusable(path: &Path, why: impl std::fmt::Display) -> DiskError {
    refused(path, format!("a VMDK image that cannot be used ({why})"))
}

impl VmdkDevice {
    /// Opens the extents of the descriptor `file`; `named` is another handle of it, of [`crate::header::reopened`].
    pub(crate) fn open(
        path: &Path,
        file: FileDevice,
        named: ImagoFile,
        access: Access,
        opener: Opener<'_>,
    ) -> Result<Self, DiskError> {
        if access == Access::Write {
            return Err(refused(path, "a VMDK image, which is only read here".into()));
        }
        file.verify_alone(path)?;
        let mut files = Vec::new();
        let opened = Vmdk::<ImagoFile>::builder(named).open(Gate { path, opener, files: &mut files });
        match opened {
            Ok(image) => Ok(Self { image: FormatAccess::new(image), files, _descriptor: file }),
            Err(error) => Err(unusable(path, error)),
        }
    }

    /// The files of the extents.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }
}

impl BlockDevice for VmdkDevice {
    fn size_bytes(&self) -> u64 {
        self.image.size()
    }

    fn hints(&self) -> Hints {
        Hints { read_only: true, ..Hints::of(self) }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.size_bytes()) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a read past the end of the VMDK image"));
        }
        self.image.read(buffer, offset)
    }

    fn write(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "a VMDK image is only read"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        may_hold_data(&self.image, offset, offset.saturating_add(length).min(self.size_bytes()))
    }
}
