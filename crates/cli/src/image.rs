//! Opens images and finds files in them.

use crate::args::{ImageArgs, ReadArgs};
use crate::confined;
use crate::exit::{Failures, NotAnImage, Usage};
use crate::interrupt;
use crate::mounted::{explain, explain_open};
use crate::operand;
use crate::screen;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xfskit::device::probe::{Kind, known_contents};
use xfskit::device::{Access, BlockDevice, FileDevice, Holder, Names, OpenError};
use xfskit::ondisk::{Corruption, InodeNumber, Superblock, SuperblockError};
use xfskit::rescue::{Loss, Search, rescue};
use xfskit::volume::{Environment, Error, HostSpace, LastLink, MountOptions, Stat, SystemEnvironment, Volume};
use xfskit_disk::Unnamed;
use xfskit_fuse::KernelClock;
use xfskit_mkfs::{Extent, first_data};

/// Whether something of an image is lost that a command has read.
static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether an image that was read has lost its first superblock or its end: the command was carried out as far as that
/// goes.
pub fn was_incomplete() -> bool {
    IS_INCOMPLETE.load(Ordering::Relaxed)
}

/// How long to wait for an image that is in use, in milliseconds, and the pause between two attempts.
static WAIT_MS: AtomicU64 = AtomicU64::new(0);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const MAX_SECTOR_BYTES: u64 = 32 * 1024;

/// From now on the program waits at least this long for an image that is in use.
pub fn wait_at_least(time: Duration) {
    WAIT_MS.fetch_max(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// How long the program waits for an image that is in use.
pub fn wait() -> Duration {
    Duration::from_millis(WAIT_MS.load(Ordering::Relaxed))
}

/// Opens an image file or a device as it is. While another program uses it, waits for the time of `--wait`.
///
/// # Errors
/// As [`FileDevice::open`]; [`Interrupted`](interrupt::Interrupted) by a signal during the wait.
pub fn open_device(path: &Path, access: Access) -> Result<FileDevice> {
    confined::before_opening()?;
    let device = retry_while(|error| matches!(error, OpenError::Busy(_)), || FileDevice::open(path, access));
    let device = device.map_err(|error| match error.downcast() {
        Ok(error) => explain_open(path, error),
        Err(error) => error,
    })?;
    warn_of_holders(path, device.holders());
    Ok(device)
}

/// Opens something again and again, for the time of `--wait`, while `is_busy` says of the error that it is in use.
///
/// # Errors
/// Those of `open`; [`Interrupted`](interrupt::Interrupted) by a signal during the wait.
pub fn retry_while<T, E>(is_busy: impl Fn(&E) -> bool, open: impl Fn() -> Result<T, E>) -> Result<T>
where
    anyhow::Error: From<E>,
{
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if is_busy(&error) && began.elapsed() < wait() => {
                interrupt::check()?;
                std::thread::sleep(LOOK_EVERY);
            }
            opened => return Ok(opened?),
        }
    }
}

/// Whether warnings about an image are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warnings {
    Printed,
    /// Not printed: the image is opened a second time, or the command prints none of its contents.
    Left,
}

/// A part of a disk, and what its files have of the host's storage, if they are of this host.
struct OpenPart {
    device: Arc<dyn BlockDevice>,
    stored_bytes: Option<u64>,
}

/// Opens an image: the part of a disk that an operand names.
fn open_any(operand: &Path, access: Access, warnings: Warnings) -> Result<OpenPart> {
    open_part(operand, access, Unnamed::OnlyXfs, warnings)
}

/// Opens the device of an external journal. It has no signature, so an operand without a part is the whole disk.
///
/// # Errors
/// As [`operand::open`].
pub fn open_log(operand: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    Ok(open_part(operand, access, Unnamed::WholeDisk, Warnings::Printed)?.device)
}

fn open_part(operand: &Path, access: Access, unnamed: Unnamed, warnings: Warnings) -> Result<OpenPart> {
    let files = operand::open_files(operand, access)?;
    confined::enter()?;
    read_part(operand, files, unnamed, warnings)
}

/// The part that an operand names, whose files are open.
fn read_part(operand: &Path, files: operand::Files, unnamed: Unnamed, warnings: Warnings) -> Result<OpenPart> {
    let opened = files.choose(unnamed)?;
    if warnings == Warnings::Printed {
        warn_of_holders(operand, &opened.holders);
        for file in &opened.elsewhere {
            let (name, file) = (operand.display(), file.display());
            screen::report(&format!("{name}: warning: it names {file}, whose contents are shown as the disk's"));
        }
    }
    Ok(OpenPart { device: opened.device, stored_bytes: opened.stored_bytes })
}

/// As [`open_device`], without a lock: for a look at an image that this process has open.
///
/// # Errors
/// As [`open_device`].
pub fn open_without_lock(path: &Path) -> Result<Arc<dyn BlockDevice>> {
    Ok(open_any(path, Access::ReadUnlocked, Warnings::Left)?.device)
}

/// Opens an image for reading. An image that has lost its first superblock or its end is read as far as possible; the
/// losses are printed and returned. A file in another known format is not searched for copies of a superblock, since
/// that may take as long as reading a whole disk.
///
/// # Errors
/// As [`open_device`]; those of reading it.
pub fn open_to_look(path: &Path) -> Result<(Arc<dyn BlockDevice>, Vec<Loss>)> {
    open_to_look_with(path, Warnings::Printed)
}

fn open_to_look_with(path: &Path, warnings: Warnings) -> Result<(Arc<dyn BlockDevice>, Vec<Loss>)> {
    rescued(path, open_any(path, Access::Read, warnings)?, warnings)
}

/// An image that has lost its first superblock or its end, as far as it can be read; and what is lost.
fn rescued(path: &Path, part: OpenPart, warnings: Warnings) -> Result<(Arc<dyn BlockDevice>, Vec<Loss>)> {
    let OpenPart { device, stored_bytes } = part;
    let search = match known_contents(&*device) {
        // A partition table overwrites the first sector of a disk, which may contain an image.
        Ok(Some(Kind::Mbr)) => Search::LikelyPlaces,
        Ok(Some(Kind::Xfs) | None) | Err(_) => extent_of_search(stored_bytes),
        Ok(Some(_)) => return Ok((device, Vec::new())),
    };
    let Some(rescued) = rescue(Arc::clone(&device), search).with_context(|| path.display().to_string())? else {
        return Ok((device, Vec::new()));
    };
    for loss in rescued.losses.iter().filter(|_| warnings == Warnings::Printed) {
        screen::report(&format!("{}: warning: {loss}{}", path.display(), cure(loss)));
    }
    IS_INCOMPLETE.store(true, Ordering::Relaxed);
    Ok((rescued.device, rescued.losses))
}

/// How much of an image is searched for a copy of its superblock. The tables of a virtual disk, and a server, may say
/// any size, and that there is data everywhere: what the files have of the host's storage is what there is to read.
fn extent_of_search(stored_bytes: Option<u64>) -> Search {
    const QUESTIONS_TO_SERVER: u64 = 1024;
    let (stored_bytes, most_questions) = match stored_bytes {
        Some(bytes) => (bytes, u64::MAX),
        None => (0, QUESTIONS_TO_SERVER),
    };
    Search::Within { most_bytes: most_read_of(stored_bytes), most_questions }
}

/// How much is read of a disk whose files have so many bytes of the host's storage.
pub fn most_read_of(stored_bytes: u64) -> u64 {
    /// A cluster may be compressed, and a piece that is read may hold little data.
    const TIMES: u64 = 64;
    const LEAST_BYTES: u64 = 1 << 30;
    LEAST_BYTES.saturating_add(stored_bytes.saturating_mul(TIMES))
}

/// What the user can do about a loss.
fn cure(loss: &Loss) -> &'static str {
    match loss {
        Loss::FirstSuperblock { .. } => {
            ". Nothing writes to the image until xfs_repair has put the first one back; make a copy of the image before"
        }
        Loss::End { .. } => ". The end has to come back from where the image was copied",
    }
}

/// The superblock of an image as it is on the device, before its journal is replayed.
///
/// # Errors
/// As a superblock, and of a file in another known format.
pub fn superblock_of(path: &Path, device: &dyn BlockDevice) -> Result<Superblock> {
    let mut sector = vec![0; device.size_bytes().min(MAX_SECTOR_BYTES) as usize];
    device.read(0, &mut sector).with_context(|| path.display().to_string())?;
    let superblock = Superblock::decode(&sector).map_err(|error| named(path, device, Error::from(error).into()));
    superblock.with_context(|| path.display().to_string())
}

/// Warns that data may be wrong if another program changes it while it is read.
fn warn_of_holders(path: &Path, holders: &[Holder]) {
    if !holders.is_empty() {
        let (path, holders) = (path.display(), Names(holders));
        screen::report(&format!("{path}: warning: {holders} may be changing it: what is shown here may be wrong"));
    }
}

/// Opens an image for a command that only reads. A dirty journal is replayed in memory, or ignored if the user says so.
/// The image is not changed.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_to_read(args: &ReadArgs) -> Result<Volume> {
    let options = MountOptions { no_recovery: args.no_recovery, ..MountOptions::read_only() };
    open(&args.image.image, args.image.logdev.as_deref(), options)
}

/// The options with which commands open an image for writing. They need space on the host for a part of the journal
/// only, so that they can free space in an image on a host that is nearly full.
pub fn options_to_write() -> MountOptions {
    MountOptions { host_space: HostSpace::Part, ..MountOptions::default() }
}

/// Reports a journal that was replayed, and a host that is nearly full.
fn tell_of_recovery(image: &Path, filesystem: &Volume) {
    let name = image.display();
    if let Some(bytes) = filesystem.journal_room_bytes() {
        let room_mib = bytes >> 20;
        screen::report(&format!(
            "{name}: the host is nearly full: the next {room_mib} MiB of the journal have space there"
        ));
    }
    match filesystem.recovery_report() {
        Some(report) if filesystem.options().read_only => {
            screen::note(&format!("{name}: {report}, in memory: the image stays as it is"));
        }
        Some(report) => screen::note(&format!("{name}: {report}")),
        None => {}
    }
}

/// Opens an image, runs an action, and closes the image: what the action did is complete when this returns. A signal
/// does not end the program before that; an action of many steps checks between them for a signal.
///
/// An action that would fail must not change the image. Opening the image would replay a dirty journal, so with one the
/// action is tried on the recovered image in memory first.
///
/// # Errors
/// As opening; those of `action`; those of closing.
pub fn edit<T>(args: &ImageArgs, action: impl Fn(&Volume) -> Result<T>) -> Result<T> {
    edit_with(args, options_to_write(), action)
}

/// As [`edit`], with other options than [`options_to_write`].
///
/// # Errors
/// As [`edit`].
pub fn edit_with<T>(args: &ImageArgs, options: MountOptions, action: impl Fn(&Volume) -> Result<T>) -> Result<T> {
    interrupt::watch()?;
    rehearse(args, |filesystem| action(filesystem).map(drop))?;
    let filesystem = open(&args.image, args.logdev.as_deref(), options)?;
    run_and_close(args, filesystem, &action)
}

/// As [`edit`], for an action that is too expensive to be run twice: `look` checks whether it can be done.
///
/// # Errors
/// As [`edit`]; those of `look`.
pub fn edit_after<T>(
    args: &ImageArgs,
    look: impl FnOnce(&Volume) -> Result<()>,
    action: impl FnOnce(&Volume) -> Result<T>,
) -> Result<T> {
    interrupt::watch()?;
    rehearse(args, look)?;
    let filesystem = open(&args.image, args.logdev.as_deref(), options_to_write())?;
    run_and_close(args, filesystem, action)
}

fn run_and_close<T>(args: &ImageArgs, filesystem: Volume, action: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let result = action(&filesystem);
    let closed = filesystem.unmount();
    let result = result?;
    closed.with_context(|| format!("{}: closing the image", args.image.display()))?;
    Ok(result)
}

/// If the journal is dirty, runs `look` on the recovered image in memory. An error of this recovery is ignored here,
/// since opening the image itself reports it.
fn rehearse(args: &ImageArgs, look: impl FnOnce(&Volume) -> Result<()>) -> Result<()> {
    let device = open_any(&args.image, Access::Read, Warnings::Left)?.device;
    let open_log = |path: &Path| open_part(path, Access::Read, Unnamed::WholeDisk, Warnings::Left);
    let log_device = args.logdev.as_deref().map(open_log).transpose()?.map(|part| part.device);
    let Ok(recovered) = Volume::recover_in_memory(device, log_device) else { return Ok(()) };
    if recovered.report.is_none() {
        return Ok(());
    }
    let opened = match recovered.log_device {
        Some(log) => Volume::open_with_log(recovered.device, log, MountOptions::default()),
        None => Volume::open(recovered.device, MountOptions::default()),
    };
    let Ok(filesystem) = opened else { return Ok(()) };
    match look(&filesystem) {
        // The changes need more memory than is allowed.
        Err(error) if matches!(error.downcast_ref(), Some(Error::Io { .. } | Error::Shutdown(_))) => Ok(()),
        Err(error) if error.downcast_ref::<Failures>().is_some_and(Failures::are_partial) => Ok(()),
        result => result,
    }
}

/// Refuses to remove or move a path whose last name is not that of an entry.
///
/// # Errors
/// `Usage` if it is `.`, `..` or the root, where the operation would affect another directory than the user named.
pub fn check_last_name(path: &OsStr) -> Result<()> {
    let last = path.as_bytes().split(|&byte| byte == b'/').rfind(|part| !part.is_empty());
    match last {
        Some(b"." | b"..") => Err(Usage(format!("{}: '.' and '..' are never removed or moved", shown(path))).into()),
        None => Err(Usage(format!("{:?}: the root is never removed or moved", shown(path))).into()),
        Some(_) => Ok(()),
    }
}

/// Opens an image, and reports a journal that was replayed.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open(image: &Path, log_device: Option<&Path>, options: MountOptions) -> Result<Volume> {
    let filesystem = open_with(image, log_device, options, Warnings::Printed, Arc::new(SystemEnvironment::default()))?;
    tell_of_recovery(image, &filesystem);
    Ok(filesystem)
}

/// As [`open`], for a mount, which has the clock of the kernel's cache.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_to_mount(image: &Path, log_device: Option<&Path>, options: MountOptions) -> Result<Volume> {
    let filesystem = open_with(image, log_device, options, Warnings::Printed, Arc::new(KernelClock::default()))?;
    tell_of_recovery(image, &filesystem);
    Ok(filesystem)
}

/// As [`open_to_mount`], over devices that another program has opened. The program enters its sandbox before they are
/// read as a filesystem.
///
/// # Errors
/// As opening a filesystem.
pub fn mount_over(
    name: &Path,
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    options: MountOptions,
) -> Result<Volume> {
    confined::enter()?;
    let part = OpenPart { device, stored_bytes: None };
    let (device, losses) =
        if options.read_only { rescued(name, part, Warnings::Printed)? } else { (part.device, Vec::new()) };
    let filesystem = over(name, (device, losses), log_device, options, Arc::new(KernelClock::default()))?;
    tell_of_recovery(name, &filesystem);
    Ok(filesystem)
}

/// Opens an image without printing messages.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_quietly(image: &Path, log_device: Option<&Path>, options: MountOptions) -> Result<Volume> {
    open_with(image, log_device, options, Warnings::Left, Arc::new(SystemEnvironment::default()))
}

fn open_with(
    image: &Path,
    log_device: Option<&Path>,
    options: MountOptions,
    warnings: Warnings,
    environment: Arc<dyn Environment>,
) -> Result<Volume> {
    let access = if options.read_only { Access::Read } else { Access::Write };
    // With all files open, and nothing of them parsed, the program enters its sandbox.
    let open = |path| operand::open_files(path, access);
    let (log_files, files) = if log_device.is_some_and(operand::is_remote) {
        let files = open(image)?;
        (log_device.map(open).transpose()?, files)
    } else {
        (log_device.map(open).transpose()?, open(image)?)
    };
    confined::enter()?;
    let read_log = |(path, files)| read_part(path, files, Unnamed::WholeDisk, warnings);
    let log_device = log_device.zip(log_files).map(read_log).transpose()?.map(|part| part.device);
    let device = match access {
        Access::Write => (read_part(image, files, Unnamed::OnlyXfs, Warnings::Printed)?.device, Vec::new()),
        _ => rescued(image, read_part(image, files, Unnamed::OnlyXfs, warnings)?, warnings)?,
    };
    over(image, device, log_device, options, environment)
}

/// Opens the filesystem on a device, of which something is lost perhaps.
fn over(
    image: &Path,
    (device, losses): (Arc<dyn BlockDevice>, Vec<Loss>),
    log_device: Option<Arc<dyn BlockDevice>>,
    options: MountOptions,
    environment: Arc<dyn Environment>,
) -> Result<Volume> {
    let is_to_write = !options.read_only;
    let opened = Volume::open_in(Arc::clone(&device) as _, log_device, options, environment);
    let opened = opened.map_err(|error| match error {
        Error::Io { .. } if losses.iter().any(|loss| matches!(loss, Loss::End { .. })) => {
            let what = "what the journal needs lies behind the end; --norecovery (of a mount: -o ro,norecovery) looks \
                        at the rest without it";
            Error::from(Corruption::new("image", "as long as the filesystem").found(what)).into()
        }
        error => {
            let cure = if is_to_write { with_copy(&device, &error) } else { None };
            match cure {
                Some(cure) => superblock_damage(error).context(cure),
                None => named(image, &*device, error.into()),
            }
        }
    });
    opened.with_context(|| image.display().to_string())
}

/// The error of an image that cannot be opened. A file in another known format is reported as such, not as damaged.
pub fn named(path: &Path, device: &dyn BlockDevice, error: anyhow::Error) -> anyhow::Error {
    match known_contents(device) {
        Ok(Some(Kind::Xfs)) => error,
        Ok(Some(what)) => explain(path, NotAnImage(what).into()),
        Ok(None) if first_data(device, Extent::Disk).is_ok_and(|data| data.is_none()) => {
            explain(path, NotAnImage(Kind::Zeros).into())
        }
        _ => explain(path, error),
    }
}

/// The error of a first superblock that its copies contradict: an unsupported version is damage, too.
fn superblock_damage(error: Error) -> anyhow::Error {
    match error {
        Error::Superblock(SuperblockError::Unsupported(why)) => {
            Error::from(Corruption::new("superblock", "the version of its copies").found(why.to_string())).into()
        }
        error => error.into(),
    }
}

/// What the user can do about an image that cannot be opened for writing because its first superblock is lost, if a
/// copy exists.
fn with_copy(device: &Arc<dyn BlockDevice>, error: &Error) -> Option<String> {
    if !matches!(error, Error::Superblock(_)) {
        return None;
    }
    let rescued = rescue(Arc::clone(device), Search::LikelyPlaces).ok()??;
    let copy = rescued.losses.iter().find_map(|loss| match loss {
        Loss::FirstSuperblock { copy } => Some(*copy),
        Loss::End { .. } => None,
    })?;
    Some(format!(
        "the first superblock is damaged or gone, and AG {copy} has a copy: xfs_repair puts it back; commands that \
         only read, and mount -o ro, work with the copy"
    ))
}

/// Whether the journal of an image is on another device. Read errors are ignored here, since opening the image reports
/// them.
pub fn has_external_log(image: &Path) -> bool {
    let read = || {
        let device = open_without_lock(image).ok()?;
        let mut sector = vec![0; usize::try_from(device.size_bytes().min(MAX_SECTOR_BYTES)).ok()?];
        device.read(0, &mut sector).ok()?;
        Superblock::decode(&sector).ok()
    };
    read().is_some_and(|superblock| superblock.has_external_log())
}

/// Finds a file; a symbolic link at the end is not followed.
///
/// # Errors
/// As a look-up, with the path.
pub fn find(filesystem: &Volume, path: &OsStr) -> Result<Stat> {
    resolve(filesystem, path, LastLink::Keep).with_context(|| shown(path))
}

/// The number in `inode:NUMBER`.
pub fn number_of(path: &OsStr) -> Option<u64> {
    path.to_str()?.strip_prefix("inode:")?.parse().ok()
}

/// Finds a file by its path, or by its number where that is `inode:NUMBER`; a file of that name in the root is
/// `/inode:NUMBER`.
///
/// # Errors
/// As a look-up; `Stale` for the number of no inode in use.
pub fn resolve(filesystem: &Volume, path: &OsStr, last: LastLink) -> Result<Stat, Error> {
    match number_of(path).map(InodeNumber) {
        // The other calls accept only inodes that are in use.
        Some(number) if !filesystem.is_in_use(number)? => Err(Error::Stale(number.0)),
        Some(number) => filesystem.stat(number),
        None => filesystem.resolve(path.as_bytes(), last),
    }
}

/// The directory for a new file, and its name.
///
/// # Errors
/// As a look-up, with the path; `NotADirectory` for one that ends in a slash.
pub fn find_place<'a>(filesystem: &Volume, path: &'a OsStr) -> Result<(InodeNumber, &'a [u8])> {
    if path.as_bytes().ends_with(b"/") {
        return Err(Error::NotADirectory).with_context(|| shown(path));
    }
    find_dir_place(filesystem, path)
}

/// As [`find_place`], for a new directory, whose path may end in a slash.
///
/// # Errors
/// As a look-up, with the path.
pub fn find_dir_place<'a>(filesystem: &Volume, path: &'a OsStr) -> Result<(InodeNumber, &'a [u8])> {
    let find = || -> Result<_, Error> {
        let (dir, name) = xfskit::volume::split_path(path.as_bytes())?;
        Ok((filesystem.resolve(dir, LastLink::Follow)?.inode, name))
    };
    find().with_context(|| shown(path))
}

/// A path in messages.
pub fn shown(path: &OsStr) -> String {
    path.display().to_string()
}

/// The path of a directory from the root of its image, found without parent pointers: by the names in the directories
/// above it. It begins with a slash, and is empty for the root.
pub fn path_of_dir(filesystem: &Volume, dir: InodeNumber) -> Result<Vec<u8>, Error> {
    let mut names = Vec::new();
    let (mut at, mut seen) = (dir, std::collections::HashSet::new());
    while at != filesystem.root() && seen.insert(at) {
        let above = filesystem.lookup(at, b"..")?.inode;
        let entry = filesystem.list_dir(above)?.into_iter().find(|entry| entry.inode == at).ok_or(Error::NotFound)?;
        names.push(entry.name);
        at = above;
    }
    Ok(names.iter().rev().flat_map(|name| [b"/", name.as_slice()].concat()).collect())
}
