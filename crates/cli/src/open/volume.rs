//! Opens images as filesystems.

use super::explain::{named, superblock_damage, with_copy};
use super::files::Files;
use super::rescue::{OpenPart, Warnings, rescued};
use super::session::{Confined, Session};
use crate::args::ReadArgs;
use crate::operand;
use crate::output::error::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use xfskit::rescue::Loss;
use xfskit_device::{Access, BlockDevice};
use xfskit_disk::Unnamed;
use xfskit_engine::{Environment, Error, HostSpace, MountOptions, SystemEnvironment, Volume};
use xfskit_fuse::KernelClock;
use xfskit_ondisk::{Corruption, Superblock};

const MAX_SECTOR_BYTES: u64 = 32 * 1024;

/// Opens an image: the part of a disk that an operand names.
///
/// # Errors
/// As opening its files, and choosing the part.
pub fn open_any(session: &Session, operand: &Path, access: Access, warnings: Warnings) -> Result<OpenPart> {
    open_part(session, operand, access, Unnamed::OnlyXfs, warnings)
}

/// Opens the device of an external journal. It has no signature, so an operand without a part is the whole disk.
///
/// # Errors
/// As opening its files, and choosing the part.
pub fn open_log(session: &Session, operand: &Path, access: Access) -> Result<Arc<dyn BlockDevice>> {
    open_log_with(session, operand, access, Warnings::Printed)
}

/// As [`open_log`], with or without warnings.
///
/// # Errors
/// As [`open_log`].
pub fn open_log_with(
    session: &Session,
    operand: &Path,
    access: Access,
    warnings: Warnings,
) -> Result<Arc<dyn BlockDevice>> {
    Ok(open_part(session, operand, access, Unnamed::WholeDisk, warnings)?.device)
}

fn open_part(
    session: &Session,
    operand: &Path,
    access: Access,
    unnamed: Unnamed,
    warnings: Warnings,
) -> Result<OpenPart> {
    let files = Files::open(session, operand, access)?;
    read_part(session.confine()?, operand, files, unnamed, warnings)
}

/// The part that an operand names, whose files are open.
fn read_part(
    confined: Confined<'_>,
    operand: &Path,
    files: Files,
    unnamed: Unnamed,
    warnings: Warnings,
) -> Result<OpenPart> {
    let session = confined.session();
    let opened = files.choose(confined, unnamed)?;
    if warnings == Warnings::Printed {
        session.warn_of_holders(operand, &opened.holders);
        for file in &opened.elsewhere {
            let (name, file) = (operand.display(), file.display());
            session
                .messages()
                .report(&format!("{name}: warning: it names {file}, whose contents are shown as the disk's"));
        }
    }
    Ok(OpenPart { device: opened.device, stored_bytes: opened.stored_bytes })
}

/// Opens an image without a lock: for a look at an image that this process has open.
///
/// # Errors
/// As [`open_log`].
pub fn open_without_lock(session: &Session, path: &Path) -> Result<Arc<dyn BlockDevice>> {
    Ok(open_any(session, path, Access::ReadUnlocked, Warnings::Left)?.device)
}

/// Opens an image for reading. An image that has lost its first superblock or its end is read as far as possible; the
/// losses are printed and returned. A file in another known format is not searched for copies of a superblock, since
/// that may take as long as reading a whole disk.
///
/// # Errors
/// As [`open_log`]; those of reading it.
pub fn open_to_look(session: &Session, path: &Path) -> Result<(Arc<dyn BlockDevice>, Vec<Loss>)> {
    open_to_look_with(session, path, Warnings::Printed)
}

fn open_to_look_with(session: &Session, path: &Path, warnings: Warnings) -> Result<(Arc<dyn BlockDevice>, Vec<Loss>)> {
    rescued(session, path, open_any(session, path, Access::Read, warnings)?, warnings)
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

/// Opens an image for a command that only reads. A dirty journal is replayed in memory, or ignored if the user says so.
/// The image is not changed.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_to_read(session: &Session, args: &ReadArgs) -> Result<Volume> {
    let options = MountOptions { no_recovery: args.no_recovery, ..MountOptions::read_only() };
    open(session, &args.image.image, args.image.logdev.as_deref(), options)
}

/// The options with which commands open an image for writing. They need space on the host for a part of the journal
/// only, so that they can free space in an image on a host that is nearly full.
pub fn options_to_write() -> MountOptions {
    MountOptions { host_space: HostSpace::Part, ..MountOptions::default() }
}

/// Reports a journal that was replayed, and a host that is nearly full.
fn tell_of_recovery(session: &Session, image: &Path, filesystem: &Volume) {
    let name = image.display();
    if let Some(bytes) = filesystem.journal_room_bytes() {
        let room_mib = bytes >> 20;
        session.messages().report(&format!(
            "{name}: the host is nearly full: the next {room_mib} MiB of the journal have space there"
        ));
    }
    match filesystem.recovery_report() {
        Some(report) if filesystem.options().read_only => {
            session.messages().note(&format!("{name}: {report}, in memory: the image stays as it is"));
        }
        Some(report) => session.messages().note(&format!("{name}: {report}")),
        None => {}
    }
}

/// Opens an image, and reports a journal that was replayed.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open(session: &Session, image: &Path, log_device: Option<&Path>, options: MountOptions) -> Result<Volume> {
    let filesystem = open_with(session, image, log_device, options, Warnings::Printed, Arc::new(SystemEnvironment))?;
    tell_of_recovery(session, image, &filesystem);
    Ok(filesystem)
}

/// As [`open`], for a mount, which has the clock of the kernel's cache.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_to_mount(
    session: &Session,
    image: &Path,
    log_device: Option<&Path>,
    options: MountOptions,
) -> Result<Volume> {
    let filesystem =
        open_with(session, image, log_device, options, Warnings::Printed, Arc::new(KernelClock::default()))?;
    tell_of_recovery(session, image, &filesystem);
    Ok(filesystem)
}

/// As [`open_to_mount`], over devices that another program has opened.
///
/// # Errors
/// As opening a filesystem.
pub fn mount_over(
    confined: Confined<'_>,
    name: &Path,
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    options: MountOptions,
) -> Result<Volume> {
    let session = confined.session();
    let part = OpenPart { device, stored_bytes: None };
    let (device, losses) =
        if options.read_only { rescued(session, name, part, Warnings::Printed)? } else { (part.device, Vec::new()) };
    let filesystem = over(name, (device, losses), log_device, options, Arc::new(KernelClock::default()))?;
    tell_of_recovery(session, name, &filesystem);
    Ok(filesystem)
}

/// Opens an image without printing messages.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_quietly(
    session: &Session,
    image: &Path,
    log_device: Option<&Path>,
    options: MountOptions,
) -> Result<Volume> {
    open_with(session, image, log_device, options, Warnings::Left, Arc::new(SystemEnvironment))
}

fn open_with(
    session: &Session,
    image: &Path,
    log_device: Option<&Path>,
    options: MountOptions,
    warnings: Warnings,
    environment: Arc<dyn Environment>,
) -> Result<Volume> {
    let access = if options.read_only { Access::Read } else { Access::Write };
    // With all files open, and nothing of them parsed, the program enters its sandbox.
    let open = |path| Files::open(session, path, access);
    let (log_files, files) = if log_device.is_some_and(operand::is_remote) {
        let files = open(image)?;
        (log_device.map(open).transpose()?, files)
    } else {
        (log_device.map(open).transpose()?, open(image)?)
    };
    let confined = session.confine()?;
    let read_log = |(path, files)| read_part(confined, path, files, Unnamed::WholeDisk, warnings);
    let log_device = log_device.zip(log_files).map(read_log).transpose()?.map(|part| part.device);
    let device = match access {
        Access::Write => (read_part(confined, image, files, Unnamed::OnlyXfs, Warnings::Printed)?.device, Vec::new()),
        _ => rescued(session, image, read_part(confined, image, files, Unnamed::OnlyXfs, warnings)?, warnings)?,
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

/// Whether the journal of an image is on another device. Read errors are ignored here, since opening the image reports
/// them.
pub fn has_external_log(session: &Session, image: &Path) -> bool {
    let read = || {
        let device = open_without_lock(session, image).ok()?;
        let mut sector = vec![0; usize::try_from(device.size_bytes().min(MAX_SECTOR_BYTES)).ok()?];
        device.read(0, &mut sector).ok()?;
        Superblock::decode(&sector).ok()
    };
    read().is_some_and(|superblock| superblock.has_external_log())
}
