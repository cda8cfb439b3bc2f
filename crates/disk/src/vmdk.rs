//! A VMDK image with flat extents as a device that is read, by the crate `imago`.
//!
//! The descriptor is a text that names the files of the extents. Each is opened through [`Gate`], which locks it first.
//! Sparse and stream-optimised extents are refused by imago, by name. Imago limits the descriptor to 2 MiB.

use crate::error::{DiskError, attach};
use imago::file::File as ImagoFile;
use imago::format::builder::FormatDriverBuilder;
use imago::format::gate::ImplicitOpenGate;
use imago::vmdk::Vmdk;
use imago::{FormatAccess, Storage, StorageOpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use xfskit_device::{Access, BlockDevice, FileDevice};

/// How a descriptor begins.
pub(crate) const SIGNATURE: &[u8] = b"# Disk DescriptorFile";
const MOST_EXTENTS: usize = 1024;

/// A VMDK image that is read.
pub(crate) struct VmdkDevice {
    image: FormatAccess<ImagoFile>,
    /// The extents, which hold the locks.
    files: Vec<(PathBuf, FileDevice)>,
    _descriptor: FileDevice,
}

/// Opens the descriptor, and the files that it names.
struct Gate<'a> {
    descriptor: &'a Path,
    files: &'a mut Vec<(PathBuf, FileDevice)>,
}

impl ImplicitOpenGate<ImagoFile> for Gate<'_> {
    fn open_format<F: FormatDriverBuilder<ImagoFile>>(&mut self, _: F) -> io::Result<FormatAccess<ImagoFile>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a VMDK image that lies on another one"))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImagoFile> {
        let path = options.get_filename().unwrap_or(Path::new("")).to_path_buf();
        // The descriptor is opened by its name, beside which imago looks for the extents. The caller has locked it.
        if path == self.descriptor {
            return ImagoFile::open(options.write(false));
        }
        if self.files.len() >= MOST_EXTENTS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many extents"));
        }
        let opened = FileDevice::open(&path, Access::Read).map_err(io::Error::other)?;
        opened.verify_alone(&path).map_err(io::Error::other)?;
        let file = ImagoFile::try_from(opened.try_clone_file()?)?;
        self.files.push((path, opened));
        Ok(file)
    }
}

impl VmdkDevice {
    /// Opens the extents of the descriptor `file`.
    pub(crate) fn open(path: &Path, file: FileDevice, access: Access) -> Result<Self, DiskError> {
        let refused = |what: String| Err(DiskError::Refused { path: path.into(), what, advice: attach(path, "vmdk") });
        if access == Access::Write {
            return refused("a VMDK image, which is only read here".into());
        }
        file.verify_alone(path)?;
        let mut files = Vec::new();
        let opened = Vmdk::<ImagoFile>::builder_path(path).open(Gate { descriptor: path, files: &mut files });
        match opened {
            Ok(image) => Ok(Self { image: FormatAccess::new(image), files, _descriptor: file }),
            Err(error) => refused(format!("a VMDK image that cannot be used ({error})")),
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

    fn is_read_only(&self) -> bool {
        true
    }
}
