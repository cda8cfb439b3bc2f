//! Disks that are open, and the parts of them that are in use.
//!
//! Locks are of whole files, and exclude this process too. So the disks that it has open are in a list, and an operand
//! that names another part of one of them uses the same open disk: `cp disk#1:/a disk#2:/`. Parts that overlap are not
//! shared if one of them is written: the second is then refused by the lock.

use super::network;
use super::qemu::Helpers;
use super::sandbox::Holders;
use super::unread::{explain, stored_bytes};
use crate::interrupt;
use crate::operand::is_address;
use crate::output::error::{Context, Result, bail};
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use xfskit_device::{Access, BlockDevice, Fua, Hints, Holder, WrapsDevice};
use xfskit_disk::{Chosen, Container, Disks, Format, Operand, Part, Unread};

/// An open part of a disk.
pub struct Opened {
    /// The part as a device. The disk is open and locked until this is dropped.
    pub device: Arc<dyn BlockDevice>,
    /// The operand with the part that was found: `disk.qcow2#2` where `disk.qcow2` was given.
    pub name: String,
    /// Those who may change the disk while it is read here.
    pub holders: Vec<Holder>,
    /// Files in other folders that the disk itself names: what they contain is shown as the disk's.
    pub elsewhere: Vec<PathBuf>,
    /// What the files of the disk have of the host's storage, however large the disk says that it is. `None` for one of
    /// a server.
    pub stored_bytes: Option<u64>,
    /// Whether it is on a virtual disk in a format of its own, whose tables say what it has.
    is_virtual: bool,
}

impl Opened {
    /// Of a virtual disk, as [`Self::stored_bytes`].
    pub fn stored_bytes_of_virtual(&self) -> Option<u64> {
        self.stored_bytes.filter(|_| self.is_virtual)
    }
}

/// Disks that this process has open, and the parts of them that are in use.
pub struct Shared {
    paths: Vec<PathBuf>,
    access: Access,
    /// Files in other folders that the disks name, as far as they were found before the disks were read.
    elsewhere: Vec<PathBuf>,
    /// As in [`Opened`].
    stored_bytes: Option<u64>,
    /// The disks before they are read.
    sources: Mutex<Vec<Source>>,
    disks: OnceLock<Disks>,
    in_use: Mutex<Vec<(Chosen, Access)>>,
}

/// A disk that is open, and not read yet.
pub enum Source {
    /// One that is read here.
    File(Box<Unread>),
    /// One that a server has.
    Export(PathBuf, Arc<dyn BlockDevice>),
    /// One that another program reads.
    Served(PathBuf),
}

impl Source {
    /// What its files have of the host's storage; those below a virtual disk count as far as they are open already.
    fn stored_bytes(&self, helpers: &Helpers) -> Option<u64> {
        let file = match self {
            Self::File(file) => file,
            Self::Export(..) => return None,
            Self::Served(path) => return helpers.stored_bytes(path),
        };
        Some(stored_bytes(file))
    }
}

/// The disks that this process has open.
#[derive(Default)]
pub struct OpenDisks(RefCell<Vec<Weak<Shared>>>);

impl OpenDisks {
    /// Those of these files that were opened for an access or a larger one, by whatever operand.
    pub fn find(&self, paths: &[PathBuf], access: Access) -> Vec<Arc<Shared>> {
        let mut open = self.0.borrow_mut();
        open.retain(|shared| shared.strong_count() > 0);
        let is_same = |shared: &Arc<Shared>| shared.paths == paths && shared.serves(access);
        open.iter().filter_map(Weak::upgrade).filter(is_same).collect()
    }

    /// Adds disks, unless they were opened without a lock.
    pub fn add(&self, shared: &Arc<Shared>) {
        if shared.access != Access::ReadUnlocked {
            self.0.borrow_mut().push(Arc::downgrade(shared));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Disks whose files are open, by their full paths.
    pub fn new(helpers: &Helpers, sources: Vec<Source>, paths: &[PathBuf], access: Access) -> Self {
        let files = sources.iter().filter_map(|source| match source {
            Source::File(file) => Some(&**file),
            Source::Export(..) | Source::Served(_) => None,
        });
        let mut elsewhere: Vec<PathBuf> = files.flat_map(Unread::elsewhere).collect();
        elsewhere.extend(paths.iter().flat_map(|path| helpers.elsewhere(path)));
        let stored_bytes = sources.iter().map(|source| source.stored_bytes(helpers)).sum();
        let (sources, paths) = (Mutex::new(sources), paths.to_vec());
        Self { paths, access, elsewhere, stored_bytes, sources, disks: OnceLock::new(), in_use: Mutex::default() }
    }

    /// What is on the disks, which are read when this is called first. `operand` stands in errors.
    pub fn disks(&self, helpers: &Helpers, operand: &Operand) -> Result<&Disks> {
        if let Some(disks) = self.disks.get() {
            return Ok(disks);
        }
        let sources = std::mem::take(&mut *lock(&self.sources));
        let disks = read_disks(helpers, operand, sources, self.access)?;
        Ok(self.disks.get_or_init(|| disks))
    }

    /// Whether it was opened for that access or a larger one.
    fn serves(&self, access: Access) -> bool {
        match access {
            Access::ReadUnlocked => false,
            _ => self.access == Access::Write || self.access == access,
        }
    }
}

/// Takes a part into use; none if it overlaps another one and either is written.
///
/// # Errors
/// A server that takes no write as small as the filesystem's sector; those of reading the disks.
pub fn take(
    shared: &Arc<Shared>,
    (helpers, before): (&Helpers, &Holders),
    operand: &Operand,
    chosen: Chosen,
    access: Access,
) -> Result<Option<Opened>> {
    let mut in_use = lock(&shared.in_use);
    let is_apart =
        |(other, of): &(Chosen, Access)| !(access == Access::Write || *of == Access::Write) || !other.overlaps(&chosen);
    if !in_use.iter().all(is_apart) {
        return Ok(None);
    }
    if access == Access::Write && operand.paths.iter().any(|path| is_address(path)) {
        network::verify_sectors(&*chosen.device).with_context(|| operand.to_string())?;
    }
    in_use.push((chosen.clone(), access));
    drop(in_use);
    let named = match &operand.part {
        // The disk as a whole is what the file is; its name says it.
        Part::Unnamed if chosen.part == Part::Whole => Part::Unnamed,
        Part::Unnamed => chosen.part.clone(),
        part => part.clone(),
    };
    let name = Operand { paths: operand.paths.clone(), part: named }.to_string();
    let before = operand.paths.iter().filter_map(|path| before.of(&std::fs::metadata(path).ok()?));
    let mut holders: Vec<Holder> = before.flatten().collect();
    let disks = shared.disks(helpers, operand)?;
    if holders.is_empty() {
        holders = disks.holders().to_vec();
    }
    let device =
        Arc::new(PartDevice { device: Arc::clone(&chosen.device), access, chosen, shared: Arc::clone(shared) });
    // Without rights a folder may be hidden.
    let elsewhere = if shared.elsewhere.is_empty() { disks.elsewhere() } else { shared.elsewhere.clone() };
    let is_virtual = disks.disks.iter().any(|disk| disk.format != Format::Raw);
    Ok(Some(Opened { device, name, holders, elsewhere, stored_bytes: shared.stored_bytes, is_virtual }))
}

/// Reads disks whose files are open.
///
/// # Errors
/// A format that is refused.
pub fn read_disks(helpers: &Helpers, operand: &Operand, sources: Vec<Source>, access: Access) -> Result<Disks> {
    let mut sources = sources.into_iter();
    Disks::open_with(operand, access, |path| match sources.next() {
        Some(Source::File(file)) => file.read().map_err(|error| explain(path, error.into())),
        Some(Source::Export(path, device)) => Ok(Container::of_device(&path, device)?),
        Some(Source::Served(path)) => helpers.container(&path),
        None => bail!("{}: it could not be read before", path.display()),
    })
}

/// A part in use.
struct PartDevice {
    device: Arc<dyn BlockDevice>,
    access: Access,
    chosen: Chosen,
    shared: Arc<Shared>,
}

impl PartDevice {
    fn patience(&self) -> Duration {
        if self.access == Access::Write { interrupt::PATIENCE_OF_WRITER } else { interrupt::PATIENCE_OF_READER }
    }

    fn verify_writable(&self) -> io::Result<()> {
        if self.access == Access::Write {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the image was opened for reading only"))
    }
}

impl Drop for PartDevice {
    fn drop(&mut self) {
        let mut in_use = lock(&self.shared.in_use);
        let is_it = |(chosen, access): &(Chosen, Access)| chosen.part == self.chosen.part && *access == self.access;
        let place = in_use.iter().position(is_it).expect("a part in use is in the list until it is dropped");
        in_use.swap_remove(place);
    }
}

impl WrapsDevice for PartDevice {
    type Below = dyn BlockDevice;

    fn below(&self) -> &Self::Below {
        &*self.device
    }

    fn pass_hints(&self) -> Hints {
        let below = self.device.hints();
        Hints { read_only: self.access != Access::Write || below.read_only, ..below }
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        interrupt::check_read(self.patience())?;
        self.device.read(offset, buffer)
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        self.verify_writable()?;
        fua.write(&*self.device, offset, data)?;
        interrupt::note_write();
        Ok(())
    }

    fn pass_flush(&self) -> io::Result<()> {
        self.device.flush()?;
        interrupt::note_write();
        Ok(())
    }
}
