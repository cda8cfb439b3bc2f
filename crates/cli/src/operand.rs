//! What a command works on: the part of a disk that an operand names.
//!
//! ```text
//! disk.qcow2              the only XFS filesystem on it
//! disk.img#3              a partition; #label= #uuid= #partlabel= #partuuid= #lv=GROUP/NAME #offset= #whole
//! a.img,b.img#lv=vg/data  disks of one LVM2 group
//! nbd://host/disk#2       a disk that an NBD server has
//! ```
//! [`open`] gives the device: [`open_files`] opens the files, and [`Files::choose`] reads what is on them. A process
//! that gives up its rights does so between the two. Commands keep the operand as a path: a file of that very name
//! wins, and every message names it as the user did.
//!
//! Locks are of whole files, and exclude this process too. So the disks that it has open are in a list, and an operand
//! that names another part of one of them uses the same open disk: `cp disk#1:/a disk#2:/`. Parts that overlap are not
//! shared if one of them is written: the second is then refused by the lock.

use crate::confined;
use crate::header;
use crate::image::{open_device, retry_while};
use crate::interrupt;
use crate::mounted::explain_open;
use crate::network;
use crate::qemu;
use anyhow::{Context, Error, Result, bail};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use xfskit::device::{Access, BlockDevice, FileDevice, Fua, Hints, Holder, OpenError, WrapsDevice, share_storage};
use xfskit_disk::{Below, Chosen, Container, DiskError, Disks, Format, Operand, Part, Unnamed, Unread};

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
struct Shared {
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
enum Source {
    File(Box<Unread>),
    Export(PathBuf, Arc<dyn BlockDevice>),
    /// One that another program reads.
    Served(PathBuf),
}

impl Source {
    /// What its files have of the host's storage; those below a virtual disk count as far as they are open already.
    fn stored_bytes(&self) -> Option<u64> {
        let file = match self {
            Self::File(file) => file,
            Self::Export(..) => return None,
            Self::Served(path) => return qemu::stored_bytes(path),
        };
        Some(stored_bytes(file))
    }
}

/// What the files of a disk have of the host's storage; those below it count as far as they are open.
pub fn stored_bytes(disk: &Unread) -> u64 {
    let stored = |file: &FileDevice| match file.metadata() {
        Ok(data) if data.is_file() => data.blocks() * BLOCK_BYTES,
        _ => file.size_bytes(),
    };
    disk.below().map(|(_, file)| stored(file)).fold(stored(disk.file()), u64::saturating_add)
}

/// The files of an operand, open and locked, of which no more than signatures has been read.
pub struct Files {
    operand: Operand,
    paths: Vec<PathBuf>,
    access: Access,
    /// The same disks, by whatever operand they were opened.
    shared: Vec<Arc<Shared>>,
}

/// The unit in which a system counts the storage of a file.
const BLOCK_BYTES: u64 = 512;

static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the part of a disk that an operand names. `unnamed` says what is meant where it names none. While another
/// program uses the disk, waits for the time of `--wait`.
///
/// # Errors
/// A missing or busy file, a format that is refused, a part that is not there or not the only one, with a list of what
/// there is.
pub fn open(operand: &Path, access: Access, unnamed: Unnamed) -> Result<Opened> {
    open_files(operand, access)?.choose(unnamed)
}

/// Opens the files of an operand. While another program uses one, waits for the time of `--wait`.
///
/// # Errors
/// A missing or busy file.
pub fn open_files(operand: &Path, access: Access) -> Result<Files> {
    let operand = decode(operand)?;
    let paths: Vec<PathBuf> = operand.paths.iter().map(|path| canonical_file(path)).collect();
    // Held until the end, so that two threads do not open one disk twice.
    let mut open = lock(&OPEN);
    open.retain(|shared| shared.strong_count() > 0);
    let same = |shared: &Arc<Shared>| shared.paths == paths && shared.serves(access);
    let mut shared: Vec<_> = open.iter().filter_map(Weak::upgrade).filter(same).collect();
    if shared.is_empty() {
        shared.push(open_shared(&mut open, &operand, &paths, access)?);
    }
    Ok(Files { operand, paths, access, shared })
}

fn open_shared(
    open: &mut Vec<Weak<Shared>>,
    operand: &Operand,
    paths: &[PathBuf],
    access: Access,
) -> Result<Arc<Shared>> {
    let sources = open_sources(operand, access)?;
    let files = sources.iter().filter_map(|source| match source {
        Source::File(file) => Some(&**file),
        Source::Export(..) | Source::Served(_) => None,
    });
    let mut elsewhere: Vec<PathBuf> = files.flat_map(Unread::elsewhere).collect();
    elsewhere.extend(paths.iter().flat_map(|path| qemu::elsewhere(path)));
    let stored_bytes = sources.iter().map(Source::stored_bytes).sum();
    let (sources, paths) = (Mutex::new(sources), paths.to_vec());
    let disks = OnceLock::new();
    let shared = Arc::new(Shared { paths, access, elsewhere, stored_bytes, sources, disks, in_use: Mutex::default() });
    if access != Access::ReadUnlocked {
        open.push(Arc::downgrade(&shared));
    }
    Ok(shared)
}

impl Files {
    /// Reads the disks and gives the part that the operand names. `unnamed` says what is meant where it names none.
    ///
    /// # Errors
    /// A format that is refused, a part that is not there or not the only one, with a list of what there is.
    pub fn choose(self, unnamed: Unnamed) -> Result<Opened> {
        let Self { operand, paths, access, shared } = self;
        let mut open = lock(&OPEN);
        let take = |shared: &Arc<Shared>| {
            let chosen = shared.disks(&operand)?.find(&operand.part, unnamed)?;
            take(shared, &operand, chosen, access)
        };
        for shared in &shared {
            if let Some(opened) = take(shared)? {
                return Ok(opened);
            }
        }
        // It has bytes in common with a part in use: the lock refuses it.
        let shared = open_shared(&mut open, &operand, &paths, access)?;
        take(&shared)?.with_context(|| format!("{operand}: a part of the disk that is in use overlaps it"))
    }
}

/// What is about to grow.
pub enum Growing {
    /// A file or a block device as it is; a file can be made longer.
    File(FileDevice),
    /// A part of a disk, a virtual disk, or an export.
    Part(GrowingPart),
}

/// A part of a disk that is about to grow.
pub struct GrowingPart {
    disks: Disks,
    /// The part as a device, in its size of now.
    pub device: Arc<dyn BlockDevice>,
    part: Part,
    /// The bytes that the part can have where it is.
    pub most_bytes: u64,
}

impl GrowingPart {
    /// Makes a partition larger, durably. The device of before keeps its size.
    ///
    /// # Errors
    /// As [`Disks::grow`].
    pub fn grow(self, size_bytes: u64) -> Result<(), DiskError> {
        self.disks.grow(&self.part, size_bytes)
    }
}

/// Opens what is to grow, with its lock.
///
/// # Errors
/// As [`open`].
pub fn open_to_grow(operand: &Path) -> Result<Growing> {
    let decoded = decode(operand)?;
    let disks = open_disks(&decoded, Access::Write)?;
    let chosen = disks.find(&decoded.part, Unnamed::OnlyXfs)?;
    let (device, part) = (chosen.device, chosen.part);
    if part == Part::Whole && is_plain(operand)? {
        // Locks of one file exclude each other, within this program too.
        drop((disks, device));
        return Ok(Growing::File(open_device(operand, Access::Write)?));
    }
    // What cannot grow keeps its size.
    let most_bytes = match part {
        Part::Partition(_) => disks.most_bytes(&part)?,
        _ => device.size_bytes(),
    };
    Ok(Growing::Part(GrowingPart { disks, device, part, most_bytes }))
}

/// Opens all that an operand names, to show it.
///
/// # Errors
/// As [`open`], but for the part.
pub fn open_tree(operand: &Path) -> Result<Disks> {
    open_disks(&decode(operand)?, Access::Read)
}

fn open_disks(operand: &Operand, access: Access) -> Result<Disks> {
    read_disks(operand, open_sources(operand, access)?, access)
}

fn open_sources(operand: &Operand, access: Access) -> Result<Vec<Source>> {
    confined::before_opening()?;
    let open = |path: &PathBuf| match network::open(path, access)? {
        Some(device) => Ok(Source::Export(path.clone(), device)),
        None if qemu::is_served(path, access) => Ok(Source::Served(path.clone())),
        None if confined::is_ahead() => Ok(open_or_serve(path, access, &header::read_below)?),
        None if confined::may_start_programs() => Ok(open_or_serve(path, access, &header::read_here)?),
        None => Ok(Source::File(open_unread(path, access, |_| Ok(()))?.into())),
    };
    operand.paths.iter().map(open).collect()
}

/// What reads a header.
type Reader<'a> = &'a dyn Fn(&Path, &FileDevice) -> Result<Below>;

/// Opens a disk and the files below it; one that is not read here is given to another program, where that is there.
fn open_or_serve(path: &Path, access: Access, reader: Reader<'_>) -> Result<Source> {
    let opened = open_unread(path, access, |file| file.open_below(reader))?;
    Ok(match qemu::serve(path, opened, access)? {
        Ok(()) => Source::Served(path.into()),
        Err(opened) => Source::File(opened.into()),
    })
}

fn read_disks(operand: &Operand, sources: Vec<Source>, access: Access) -> Result<Disks> {
    let mut sources = sources.into_iter();
    Disks::open_with(operand, access, |path| match sources.next() {
        Some(Source::File(file)) => file.read().map_err(|error| explain(path, error.into())),
        Some(Source::Export(path, device)) => Ok(Container::of_device(&path, device)?),
        Some(Source::Served(path)) => qemu::container(&path),
        None => bail!("{}: it could not be read before", path.display()),
    })
}

/// Opens one file of an operand, and those below it: for a process that is about to give up its rights, so that another
/// one reads the header. While another program uses one of them, waits for the time of `--wait`.
///
/// # Errors
/// A missing or busy file; those of [`header::read_below`].
pub fn open_with_below(path: &Path, access: Access) -> Result<Unread> {
    open_unread(path, access, |file| file.open_below(&header::read_below))
}

fn open_unread(path: &Path, access: Access, then: impl Fn(&mut Unread) -> Result<()>) -> Result<Unread> {
    let is_busy = |error: &Error| matches!(error.downcast_ref(), Some(DiskError::Open(OpenError::Busy(_))));
    let opened = retry_while(is_busy, || {
        let mut file = Unread::open(path, access)?;
        then(&mut file)?;
        Ok(file)
    });
    opened.map_err(|error| explain(path, error))
}

/// An error of opening a file, with what the user can do if xfskit has it mounted.
fn explain(path: &Path, error: Error) -> Error {
    match error.downcast() {
        Ok(DiskError::Open(error)) => explain_open(path, error),
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// Decodes an operand.
///
/// # Errors
/// A part that has none of the known forms.
pub fn decode(operand: &Path) -> Result<Operand, DiskError> {
    Operand::decode(operand.as_os_str(), |path| path.exists() || network::is_address(path))
}

/// Whether an operand is one file or device as it is: neither a part, nor a virtual disk in a format of its own, nor on
/// a server. A file that does not exist is one.
///
/// # Errors
/// As [`decode`]; `Missing` for a part of a disk that does not exist.
pub fn is_plain(operand: &Path) -> Result<bool> {
    let decoded = decode(operand)?;
    let [path] = &decoded.paths[..] else { return Ok(false) };
    if decoded.part != Part::Unnamed || network::is_address(path) {
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

/// The files of an operand, which need not exist.
pub fn files(operand: &Path) -> Vec<PathBuf> {
    decode(operand).map_or_else(|_| vec![operand.into()], |decoded| decoded.paths)
}

/// Whether one of the files of an operand is on a server. A process that connects has given up opening others by then.
pub fn is_remote(operand: &Path) -> bool {
    files(operand).iter().any(|file| network::is_address(file))
}

/// The operand with the full paths of its files.
pub fn canonical(operand: &Path) -> PathBuf {
    let Ok(decoded) = decode(operand) else { return operand.into() };
    let paths = decoded.paths.iter().map(|path| canonical_file(path)).collect();
    Operand { paths, part: decoded.part }.to_os_string().into()
}

/// Whether two operands name the same part of the same files, by whatever names.
pub fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (decode(a), decode(b)) else { return false };
    let data = |path: &Path| std::fs::metadata(path).ok();
    let is_same = |(a, b): (&PathBuf, &PathBuf)| data(a).zip(data(b)).is_some_and(|(a, b)| share_storage(&a, &b));
    a.part == b.part && a.paths.len() == b.paths.len() && a.paths.iter().zip(&b.paths).all(is_same)
}

fn canonical_file(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.into())
}

impl Shared {
    /// What is on the disks, which are read when this is called first. `operand` stands in errors.
    fn disks(&self, operand: &Operand) -> Result<&Disks> {
        if let Some(disks) = self.disks.get() {
            return Ok(disks);
        }
        let sources = std::mem::take(&mut *lock(&self.sources));
        let disks = read_disks(operand, sources, self.access)?;
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
fn take(shared: &Arc<Shared>, operand: &Operand, chosen: Chosen, access: Access) -> Result<Option<Opened>> {
    let mut in_use = lock(&shared.in_use);
    let is_apart =
        |(other, of): &(Chosen, Access)| !(access == Access::Write || *of == Access::Write) || !other.overlaps(&chosen);
    if !in_use.iter().all(is_apart) {
        return Ok(None);
    }
    if access == Access::Write && operand.paths.iter().any(|path| network::is_address(path)) {
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
    let before = operand.paths.iter().filter_map(|path| confined::holders_before(&std::fs::metadata(path).ok()?));
    let mut holders: Vec<Holder> = before.flatten().collect();
    let disks = shared.disks(operand)?;
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
