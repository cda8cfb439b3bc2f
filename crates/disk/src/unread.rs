//! A file of an operand that is open and locked, and of which no more than the signature has been read.
//!
//! ```text
//! Unread ─▶ open_below ─▶ (rights are given up) ─▶ read ─▶ Container
//!           names, from a process that reads the header; each file is opened and locked here
//! ```
//! A process that gives up its rights with the disk open calls [`Unread::open_below`] before: [`Unread::read`] then
//! opens nothing, and a header that names another file than it did is refused. Without that call `read` opens what the
//! header names.

use crate::below::{Below, MOST_NAMES, beside, is_elsewhere};
use crate::container::Container;
use crate::error::DiskError;
use crate::foreign::{self, Foreign};
use crate::header::reopened;
use crate::qcow2::{MOST_LAYERS, backing_path, is_layer};
use crate::signature::{Opener, Signature};
use crate::vmdk;
use imago::file::File as ImagoFile;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use xfskit_device::{Access, FileDevice, OpenError};

/// What has the header of an open file read.
pub type Reader<'a, E> = &'a dyn Fn(&Path, &FileDevice) -> Result<Below, E>;

/// An open file.
pub struct Unread {
    path: PathBuf,
    file: FileDevice,
    access: Access,
    signature: Signature,
    /// Another handle of a descriptor of vmdk, by which imago finds what is beside it.
    named: Option<ImagoFile>,
    /// The files below, if they were opened.
    below: Option<Files>,
    /// What was found then.
    foreign: Option<Foreign>,
}

/// Open files, by their names.
type Files = Vec<(PathBuf, FileDevice)>;
/// The same, with what the headers say that name them.
type Opened = (Vec<Below>, Files);

impl Unread {
    /// Opens a file or block device, with the locks for `access`.
    ///
    /// # Errors
    /// [`DiskError`]: a missing or busy file.
    pub fn open(path: &Path, access: Access) -> Result<Self, DiskError> {
        let mut opened = Self::over(path, FileDevice::open(path, access)?, access);
        if opened.signature == Signature::Vmdk {
            let named = opened.file.try_clone_file().and_then(|file| reopened(&file));
            opened.named = Some(named.map_err(|source| DiskError::io(path, source))?);
        }
        Ok(opened)
    }

    /// A file that another process has opened for this one. A descriptor of vmdk is refused when it is read: it needs a
    /// name.
    pub fn over(path: &Path, file: FileDevice, access: Access) -> Self {
        let signature = Signature::read(&file);
        Self { path: path.into(), file, access, signature, named: None, below: None, foreign: None }
    }

    /// Whether it is a virtual disk in a format of its own.
    pub fn is_virtual(&self) -> bool {
        self.signature != Signature::Other
    }

    /// The disk as one that only another program can read, if [`Self::open_below`] has found that it is such a one.
    pub fn foreign(&self) -> Option<&Foreign> {
        self.foreign.as_ref()
    }

    /// The open file.
    pub fn file(&self) -> &FileDevice {
        &self.file
    }

    /// The files below a virtual disk that [`Self::open_below`] has opened.
    pub fn below(&self) -> impl Iterator<Item = (&Path, &FileDevice)> {
        self.below.iter().flatten().map(|(path, file)| (path.as_path(), file))
    }

    /// Those of [`Self::below`] that lie in other folders than the disk that names them, as
    /// [`crate::Disks::elsewhere`].
    pub fn elsewhere(&self) -> impl Iterator<Item = PathBuf> {
        self.below().filter(|(path, _)| is_elsewhere(&self.path, path)).map(|(path, _)| path.to_path_buf())
    }

    /// Opens the files below a virtual disk, whose names `reader` finds in a header: the whole chain of qcow2, or the
    /// extents of vmdk. What is wrong with a header is reported by [`Self::read`]. Nothing but signatures is read here.
    ///
    /// # Errors
    /// Those of `reader`; [`DiskError`] for a file that cannot be opened, or that others may change.
    pub fn open_below<E: From<DiskError>>(&mut self, reader: Reader<'_, E>) -> Result<(), E> {
        let mut format = None;
        let (said, below) = match self.signature {
            Signature::Metadump => Opened::default(),
            Signature::Other => {
                format = foreign::format(&self.file);
                let header = || reader(&self.path, &self.file);
                let said = format.map(|format| foreign::known(format).map_or_else(header, Ok));
                (said.transpose()?.into_iter().collect(), Files::new())
            }
            Signature::Qcow2 => self.open_chain(reader)?,
            Signature::Vmdk => (Vec::new(), self.open_extents(reader)?),
        };
        self.foreign = foreign::foreign(self.signature, format, &said, &below, self.access);
        self.below = Some(below);
        Ok(())
    }

    fn open_chain<E: From<DiskError>>(&self, reader: Reader<'_, E>) -> Result<Opened, E> {
        let alone = |path: &Path, file: &FileDevice| file.verify_alone(path).map_err(DiskError::from);
        alone(&self.path, &self.file)?;
        let (mut said, mut chain) = Opened::default();
        loop {
            let (path, file) = chain.last().map_or((&self.path, &self.file), |(path, file)| (path, file));
            // A file that is qcow2 only by what the header above it says has none of its own.
            let is_one = Signature::read(file) == Signature::Qcow2;
            let below = if is_one { reader(path, file)? } else { Below::default() };
            let format = Some(below.format.as_str()).filter(|format| !format.is_empty());
            let name = below.names.first().filter(|_| chain.len() + 1 < MOST_LAYERS);
            let next = name.and_then(|name| backing_path(path, name).ok());
            let opened = next.map(|path| {
                let file = FileDevice::open(&path, Access::Read).map_err(DiskError::from)?;
                alone(&path, &file)?;
                Ok::<_, DiskError>((is_layer(format, &file), path, file))
            });
            said.push(below);
            let Some((is_layer, path, file)) = opened.transpose()? else { return Ok((said, chain)) };
            chain.push((path, file));
            if !is_layer {
                return Ok((said, chain));
            }
        }
    }

    fn open_extents<E: From<DiskError>>(&self, reader: Reader<'_, E>) -> Result<Files, E> {
        self.file.verify_alone(&self.path).map_err(DiskError::from)?;
        let open = |name: String| {
            let path = beside(&self.path, Path::new(&name));
            let file = FileDevice::open(&path, Access::Read).and_then(|file| {
                file.verify_alone(&path)?;
                Ok(file)
            });
            Ok((path, file.map_err(|error| vmdk::unusable(&self.path, error))?))
        };
        reader(&self.path, &self.file)?.names.into_iter().take(MOST_NAMES).map(open).collect()
    }

    /// Reads the disk.
    ///
    /// # Errors
    /// [`DiskError`]: a format that is refused, damage, a file below that cannot be opened or was not open.
    pub fn read(self) -> Result<Container, DiskError> {
        let Self { path, file, access, named, below, .. } = self;
        let Some(below) = below else {
            return Container::of_file(&path, file, named, access, &|path, access| FileDevice::open(path, access));
        };
        let below = RefCell::new(below);
        let opener = |path: &Path, _| {
            let mut below = below.borrow_mut();
            let place = below.iter().position(|(of, _)| of == path);
            place.map(|place| below.remove(place).1).ok_or_else(|| not_open(path))
        };
        Container::of_file(&path, file, named, access, &opener)
    }

    /// As [`Self::read`], with files below that `opener` opens.
    ///
    /// # Errors
    /// As [`Self::read`]; those of `opener`.
    pub fn read_by(self, opener: Opener<'_>) -> Result<Container, DiskError> {
        Container::of_file(&self.path, self.file, self.named, self.access, opener)
    }
}

/// A header names a file that it did not name when the files below were opened.
fn not_open(path: &Path) -> OpenError {
    let why = "the disk did not name it when it was opened: another program is changing the disk";
    OpenError::Io { path: path.into(), source: io::Error::other(why) }
}
