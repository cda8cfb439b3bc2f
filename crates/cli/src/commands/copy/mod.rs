//! `xfskit cp`: trees between the host and images.

mod open_files;

use super::copy_volume;
use super::list::is_dir;
use super::trees::{adjust_owners, attributes, believe_pretender};
use crate::args::CpArgs;
use crate::args::copy_operand::CopyOperand;
use crate::interrupt;
use crate::open::mounted;
use crate::open::paths::path_of_dir;
use crate::open::paths::shown;
use crate::open::sandbox::Holders;
use crate::open::session::Session;
use crate::open::volume::{has_external_log, open, open_quietly};
use crate::operand;
use crate::output::causes::Usage;
use crate::output::error::{CommandError, Context, Result};
use crate::output::exit;
use crate::output::progress::{CopyBar, waiting_for};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit::rescue::{Loss, Search, rescue};
use xfskit_device::probe::{disk_format, known_contents};
use xfskit_device::{Access, BlockDevice, FileDevice, Holder, Names, OpenError, share_storage};
use xfskit_engine::{AttrLogging, Error, LastLink, MountOptions, Stat, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_transfer::{
    Adjust, Durability, Existing, HostSink, HostSource, ImageSink, ImageSource, Keeper, LeaveOut, Losses, NotReplaced,
    Sink, Sort, Source, TransferError, Written, transfer,
};

/// Smaller files are not filesystems.
const MIN_FILESYSTEM_BYTES: u64 = 4096;

/// Smaller files are not XFS images.
pub const MIN_XFS_BYTES: u64 = 16 << 20;

/// Open images, each opened once: the lock of an image that is open for writing excludes this process too.
struct Images<'s> {
    session: &'s Session,
    opened: Vec<(PathBuf, Arc<Volume>)>,
    /// The device of an external journal, until the image that needs it is opened.
    log_device: Option<PathBuf>,
    /// The images are opened only to look at them, and must not be changed.
    only_look: bool,
    /// Whether changes of attributes are logged, where the user says so.
    logging: Option<AttrLogging>,
}

impl<'s> Images<'s> {
    fn new(session: &'s Session, args: &CpArgs, only_look: bool) -> Self {
        Self { session, opened: Vec::new(), log_device: args.logdev.clone(), only_look, logging: args.logging.larp }
    }

    fn open(&mut self, image: &Path, options: MountOptions) -> Result<Arc<Volume>> {
        let key = operand::canonical(image);
        if let Some((_, filesystem)) = self.opened.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(filesystem));
        }
        let log_device = if has_external_log(self.session, image) { self.log_device.take() } else { None };
        let filesystem = Arc::new(if self.only_look {
            let options = MountOptions { no_recovery: options.no_recovery, ..MountOptions::read_only() };
            open_quietly(self.session, image, log_device.as_deref(), options)?
        } else {
            let attr_logging = self.logging.unwrap_or(options.attr_logging);
            open(self.session, image, log_device.as_deref(), MountOptions { attr_logging, ..options })?
        });
        self.opened.push((key, Arc::clone(&filesystem)));
        Ok(filesystem)
    }

    /// The metadata of the image files.
    fn files(&self) -> Vec<Metadata> {
        let paths = self.opened.iter().flat_map(|(path, _)| operand::files(path));
        paths.filter_map(|path| std::fs::metadata(path).ok()).collect()
    }

    /// Closes all images, whether copying failed or not.
    fn close(self) -> Result<()> {
        let mut result = Ok(());
        for (image, filesystem) in self.opened {
            let filesystem = Arc::into_inner(filesystem).expect("no other thread uses the image any more");
            if !filesystem.options().read_only {
                let closed = filesystem.unmount();
                result = result.and(closed.with_context(|| format!("{}: closing the image", image.display())));
            }
        }
        result
    }
}

/// The target of copies.
enum Target {
    Host(PathBuf),
    Image(Arc<Volume>, InodeNumber),
}

/// Runs `cp`. Everything is checked before anything is changed, since opening an image for writing replays its journal.
pub fn run(session: &Session, args: &CpArgs) -> Result<()> {
    if let Some((source, target)) = copy_volume::operands(args) {
        return copy_volume::run(session, args, &source, &target);
    }
    args.paths.iter().try_for_each(|path| check_colon(path))?;
    let (last, sources) = args.paths.split_last().expect("there are two paths at least");
    let sources: Vec<CopyOperand> = sources.iter().map(|path| CopyOperand::parse(path)).collect();
    let target = CopyOperand::parse(last);
    if args.no_recovery && matches!(target, CopyOperand::Image(..)) {
        return Err(Usage("--norecovery: only for copies to the host".into()).into());
    }
    if sources.iter().chain([&target]).all(|place| matches!(place, CopyOperand::Host(_))) {
        let name = last.display();
        let hint = format!(
            "no path is within an image; did you mean {name}:/? (IMAGE:/PATH is a path in an image, DISK#PART a volume)"
        );
        return Err(Usage(hint).into());
    }
    let of_host = |place: &CopyOperand| match place {
        CopyOperand::Host(path) => Some(path.clone()),
        CopyOperand::Image(..) => None,
    };
    let read: Vec<PathBuf> = sources.iter().filter_map(of_host).collect();
    believe_pretender(read.iter().map(PathBuf::as_path))?;
    // Before an image is opened: the program that writes it may have the same image open.
    let given = open_files::read(session, &sources, &target)?;
    interrupt::watch()?;
    let mut looked = Images::new(session, args, true);
    look(args, &sources, &target, &mut looked)?;
    drop(looked);
    let mut images = Images::new(session, args, false);
    let sources = sources.iter().zip(given).collect();
    let result = copy_all(session, args, sources, &target, &mut images);
    let closed = images.close();
    let losses = result?;
    closed?;
    let preserve = args.preserve || args.archive;
    report_losses(session, &losses, if preserve { PrivilegeLoss::IsError } else { PrivilegeLoss::IsWarning })
}

/// Refuses `IMAGE:PATH` without a slash, which would otherwise be a file of the host of that name.
fn check_colon(text: &OsStr) -> Result<()> {
    let bytes = text.as_bytes();
    if std::fs::symlink_metadata(text).is_ok() || matches!(CopyOperand::parse(text), CopyOperand::Image(..)) {
        return Ok(());
    }
    for (colon, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b':') {
        let (image, path) = (OsStr::from_bytes(&bytes[..colon]), OsStr::from_bytes(&bytes[colon + 1..]));
        let is_image = |image: &PathBuf| {
            std::fs::metadata(image).is_ok_and(|data| data.is_file() || data.file_type().is_block_device())
        };
        if operand::files(Path::new(image)).iter().all(is_image) {
            let (text, image, path) = (shown(text), shown(image), shown(path));
            return Err(Usage(format!("{text}: a path within an image begins with a slash: {image}:/{path}")).into());
        }
    }
    Ok(())
}

/// Checks the target and all sources without changing an image.
fn look(args: &CpArgs, sources: &[CopyOperand], target: &CopyOperand, images: &mut Images<'_>) -> Result<()> {
    let (base, name) = find_target(args, sources.len(), target, images)?;
    let wants_dir = name.is_some() && target.path().ends_with(b"/");
    let check_kind = |is_dir: bool| match wants_dir && !is_dir {
        true => Err(Usage(format!("{}: there is no such directory", String::from_utf8_lossy(target.path())))),
        false => Ok(()),
    };
    for source in sources {
        match source {
            CopyOperand::Host(path) => {
                let found = std::fs::symlink_metadata(path).with_context(|| shown(path.as_os_str()))?;
                if found.is_dir() && !args.is_recursive() {
                    return Err(TransferError::NotRecursive(shown(path.as_os_str())).into());
                }
                check_kind(found.is_dir() || path.is_dir() && path.as_os_str().as_bytes().ends_with(b"/"))?;
            }
            CopyOperand::Image(image, path) => {
                let options = MountOptions { no_recovery: args.no_recovery, ..MountOptions::read_only() };
                let filesystem = images.open(image, options)?;
                let start = find_source(&filesystem, image, path)?;
                if is_dir(&start) && !args.is_recursive() {
                    let error = CommandError::from(TransferError::NotRecursive(shown(path)));
                    return Err(error.with_path_of_image().in_image(image));
                }
                check_kind(is_dir(&start))?;
                let name = name.as_deref().unwrap_or(source.name());
                check_not_into_itself(&filesystem, start.inode, &base).map_err(|error| of_path(error, image, path))?;
                check_not_onto_itself(&filesystem, start.inode, &base, name)
                    .map_err(|error| of_path(error, image, path))?;
            }
        }
    }
    let (images, own) = (images.files(), |path: &Path| std::fs::metadata(path).ok());
    for source in sources {
        if let CopyOperand::Host(path) = source
            && own(path).is_some_and(|file| images.iter().any(|image| share_storage(image, &file)))
        {
            return Err(Usage(format!("{}: an image cannot be copied into itself", path.display())).into());
        }
    }
    Ok(())
}

/// How to treat a loss that root could have avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegeLoss {
    /// The user asked for everything, so it is an error.
    IsError,
    /// As with cp(1) and tar, it only gets a message.
    IsWarning,
}

/// Reports losses. It is an error if more is lost than the leading slash of a name.
pub fn report_losses(session: &Session, losses: &Losses, privilege_loss: PrivilegeLoss) -> Result<()> {
    let is_lost = losses.are_real() || privilege_loss == PrivilegeLoss::IsError && losses.are_for_lack_of_privilege();
    let code = match (losses.are_of_damage(), is_lost) {
        (true, _) => exit::DAMAGED,
        (_, true) => exit::LOSSES,
        _ => {
            if *losses != Losses::default() {
                session.messages().report(&losses.to_string());
            }
            return Ok(());
        }
    };
    session.messages().report_error(&losses.to_string(), code);
    Err(crate::output::causes::Reported(code).into())
}

/// The source of a copy; with a slash at the end of the path, a symbolic link is followed.
fn find_source(filesystem: &Volume, image: &Path, path: &OsStr) -> Result<Stat> {
    let found = filesystem.resolve(path.as_bytes(), LastLink::Keep);
    found.map_err(|error| of_path(error, image, path))
}

/// The error of a path in one of several images.
fn of_path(error: impl Into<CommandError>, image: &Path, path: &OsStr) -> CommandError {
    error.into().at(path).in_image(image)
}

/// Copies all sources. With one comes its contents, where the name is that of an open file.
fn copy_all(
    session: &Session,
    args: &CpArgs,
    sources: Vec<(&CopyOperand, Option<File>)>,
    target: &CopyOperand,
    images: &mut Images<'_>,
) -> Result<Losses> {
    let (base, name) = find_target(args, sources.len(), target, images)?;
    let root = base.path(args)?;
    let adjust = Adjust { attributes: attributes(args.no_xattrs), ..adjust_owners(&args.owners, args.owner, &root)? };
    let existing = if args.preserve || args.archive { Existing::TakesAll } else { Existing::Keeps(adjust.asked()) };
    let durability = if args.no_sync { Durability::LeftToTheHost } else { Durability::Kept };
    let bar = CopyBar::new(&session.output, "copying").naming_files(args.verbose);
    let mut how = How { adjust, existing, force: args.force, durability, written: Written::default(), bar };
    let mut losses = Losses::default();
    let is_one = sources.len() == 1;
    for (source, given) in sources {
        let prefix = name.as_deref().unwrap_or(source.name());
        let lost = match source {
            CopyOperand::Host(path) => {
                let source = match given {
                    Some(file) => HostSource::of_open(file, prefix),
                    None => {
                        HostSource::new(path, prefix, args.is_recursive()).with_context(|| shown(path.as_os_str()))?
                    }
                };
                let source = source.without(&images.files()).leaving_out(left_out(args, prefix, &base));
                how.copy(&mut { source }, &base, images)
            }
            CopyOperand::Image(image, path) => {
                let options = MountOptions { no_recovery: args.no_recovery, ..MountOptions::read_only() };
                let filesystem = images.open(image, options)?;
                let start = find_source(&filesystem, image, path)?;
                check_not_into_itself(&filesystem, start.inode, &base).map_err(|error| of_path(error, image, path))?;
                check_not_onto_itself(&filesystem, start.inode, &base, prefix)
                    .map_err(|error| of_path(error, image, path))?;
                if is_one && start.inode == filesystem.root() {
                    let counts = filesystem.statfs();
                    how.bar.expect_files(counts.inodes - counts.free_inodes);
                }
                let source = ImageSource::new(&*filesystem, start.inode, prefix, args.is_recursive());
                let source = source.with_attributes(how.adjust.attributes);
                let mut source = source.leaving_out(left_out(args, prefix, &base));
                how.copy(&mut source, &base, images)
            }
        };
        // Of two images either may be meant.
        let one_image = match (source, target) {
            (CopyOperand::Image(image, _), CopyOperand::Host(_))
            | (CopyOperand::Host(_), CopyOperand::Image(image, _)) => Some(image),
            _ => None,
        };
        losses = losses.and(lost.map_err(|error| match one_image {
            Some(image) => error.in_image(image),
            None => error,
        })?);
    }
    if durability == Durability::Kept {
        how.bar.finish();
        let _waits = waiting_for(&session.output, "waiting until the copies are durable");
        how.written.sync()?;
    }
    Ok(losses)
}

/// What is not copied: names that match a pattern, except for the start of the tree, and with `-n` files that exist
/// already. An existing file that cannot be looked up is copied; the sink then reports the error.
fn left_out<'a>(args: &'a CpArgs, start: &'a [u8], target: &'a Target) -> LeaveOut<'a> {
    Box::new(move |path, sort| {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_excluded = path != start && args.exclude.iter().any(|glob| glob.matches(name));
        is_excluded || args.no_clobber && sort == Sort::Other && target.has(path)
    })
}

impl Target {
    /// The path of the directory in its image, on which labels depend; empty where there are none.
    fn path(&self, args: &CpArgs) -> Result<Vec<u8>> {
        match self {
            _ if args.owners.file_contexts.is_none() => Ok(Vec::new()),
            Self::Image(filesystem, dir) => Ok(path_of_dir(filesystem, *dir)?),
            Self::Host(_) => Err(Usage("--file-contexts is for copies into an image".into()).into()),
        }
    }

    /// Whether a file exists at a path. Symbolic links in an image are not followed, as when it is written.
    fn has(&self, path: &[u8]) -> bool {
        match self {
            Self::Host(folder) => std::fs::symlink_metadata(folder.join(OsStr::from_bytes(path))).is_ok(),
            Self::Image(filesystem, dir) => path
                .split(|&byte| byte == b'/')
                .try_fold(*dir, |at, name| filesystem.lookup(at, name).map(|stat| stat.inode))
                .is_ok(),
        }
    }
}

/// How files are copied.
struct How<'s> {
    adjust: Adjust,
    existing: Existing,
    /// Replace files of the host whatever they contain.
    force: bool,
    durability: Durability,
    /// The filesystems of the host that copies were written to.
    written: Written,
    bar: CopyBar<'s>,
}

impl How<'_> {
    fn copy(&mut self, source: &mut dyn Source, target: &Target, images: &Images<'_>) -> Result<Losses> {
        match target {
            Target::Host(folder) => {
                let keeper = keeper(images.session, images.files(), self.force);
                let sink = HostSink::new(folder)?.with_existing(self.existing).with_keeper(keeper);
                let mut sink = sink.with_durability(self.durability);
                let losses = self.transfer(source, &mut sink)?;
                self.written.add(sink.into_written());
                Ok(losses)
            }
            Target::Image(filesystem, dir) => {
                self.transfer(source, &mut ImageSink::new(&**filesystem, *dir)?.with_existing(self.existing))
            }
        }
    }

    fn transfer(&self, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<Losses> {
        transfer(source, sink, &self.adjust, &self.bar)?;
        Ok(source.losses().and(sink.losses()))
    }
}

/// Does not replace images that are in use or copied from, nor, unless forced, any file that contains a filesystem.
fn keeper(session: &Session, images: Vec<Metadata>, force: bool) -> Keeper {
    let before = session.sandbox.holders.clone();
    Box::new(move |file| {
        let found = file.metadata()?;
        if images.iter().any(|image| share_storage(image, &found)) {
            return Ok(Some(NotReplaced::Contents("it is the image that is copied from".into())));
        }
        why_kept(&before, file, force)
    })
}

/// Why a file of the host must not be replaced, if it must not.
pub fn why_kept(before: &Holders, file: &File, force: bool) -> std::io::Result<Option<NotReplaced>> {
    if file.metadata()?.len() < MIN_FILESYSTEM_BYTES {
        return Ok(None);
    }
    let before = before.of(&file.metadata()?).unwrap_or_default();
    let holders = |now: &[Holder]| if before.is_empty() { now.to_vec() } else { before.clone() };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let device = match FileDevice::open(&path, Access::Read) {
        Err(OpenError::Busy(in_use)) => {
            let mut why = format!("it is in use by {}", Names(&holders(in_use.holders())));
            if let Some(place) = mounted::place_of(Path::new(&path)) {
                why += &format!(", which has it mounted on {place}: 'xfskit umount {place}' comes first");
            }
            return Ok(Some(NotReplaced::InUse(why)));
        }
        device => device.map_err(std::io::Error::other)?,
    };
    if !device.holders().is_empty() {
        return Ok(Some(NotReplaced::InUse(format!("it is in use by {}", Names(&holders(device.holders()))))));
    }
    let what = if force { None } else { disk_contents(device)? };
    let why = |what| format!("it holds {what}; -f replaces it (a path within an image is IMAGE:/PATH)");
    Ok(what.map(why).map(NotReplaced::Contents))
}

/// What kind of disk image a file is, if it is one. Other files are replaced, as by cp(1).
fn disk_contents(device: FileDevice) -> std::io::Result<Option<&'static str>> {
    if let Some(what) = disk_format(&device)? {
        return Ok(Some(what.text()));
    }
    if device.size_bytes() < MIN_XFS_BYTES || known_contents(&device)?.is_some() {
        return Ok(None);
    }
    let rescued = rescue(Arc::new(device), Search::Whole).map_err(std::io::Error::other)?;
    let lost_first = |loss: &Loss| matches!(loss, Loss::FirstSuperblock { .. });
    let is_xfs = rescued.is_some_and(|rescued| rescued.losses.iter().any(lost_first));
    Ok(is_xfs.then_some("an XFS image that has lost its first superblock"))
}

/// The directory for the copies, and the name of the copy there, if it differs from that of the source.
fn find_target(
    args: &CpArgs,
    sources: usize,
    target: &CopyOperand,
    images: &mut Images<'_>,
) -> Result<(Target, Option<Vec<u8>>)> {
    let into = |is_dir: bool| -> Result<bool> {
        if sources > 1 && (!is_dir || args.no_target_directory) {
            let text = String::from_utf8_lossy(target.path()).into_owned();
            return Err(Usage(format!("{text}: several files can only be copied into a directory")).into());
        }
        Ok(is_dir && !args.no_target_directory)
    };
    match target {
        CopyOperand::Host(path) => {
            if into(path.is_dir())? {
                return Ok((Target::Host(path.clone()), None));
            }
            // A path without a name, such as "..", is a folder of which only the contents can be replaced.
            let Some(name) = path.file_name() else { return Ok((Target::Host(path.clone()), Some(Vec::new()))) };
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok((Target::Host(parent.into()), Some(name.as_bytes().to_vec())))
        }
        CopyOperand::Image(image, path) => {
            let filesystem = images.open(image, MountOptions::default())?;
            match filesystem.resolve(path.as_bytes(), LastLink::Follow) {
                Ok(stat) if into(is_dir(&stat))? => return Ok((Target::Image(filesystem, stat.inode), None)),
                Ok(stat) if target.name().is_empty() => {
                    return Ok((Target::Image(filesystem, stat.inode), Some(Vec::new())));
                }
                Ok(_) => {}
                Err(Error::NotFound) => drop(into(false)?),
                Err(error) => return Err(of_path(error, image, path)),
            }
            let (dir, name) =
                xfskit_engine::split_path(path.as_bytes()).map_err(|error| of_path(error, image, path))?;
            let dir = filesystem.resolve(dir, LastLink::Follow).map_err(|error| of_path(error, image, path))?.inode;
            Ok((Target::Image(filesystem, dir), Some(name.to_vec())))
        }
    }
}

/// Refuses to copy a file onto itself: the copy would replace the file, and its other names would then refer to
/// another file than this one.
fn check_not_onto_itself(filesystem: &Arc<Volume>, start: InodeNumber, target: &Target, name: &[u8]) -> Result<()> {
    let Target::Image(other, dir) = target else { return Ok(()) };
    let is_same = !name.is_empty()
        && Arc::ptr_eq(filesystem, other)
        && filesystem.lookup_number(*dir, name).is_ok_and(|inode| inode == start);
    if is_same { Err(Usage("source and target are the same file".into()).into()) } else { Ok(()) }
}

/// Refuses to copy a directory into itself, which would never end.
fn check_not_into_itself(filesystem: &Arc<Volume>, start: InodeNumber, target: &Target) -> Result<()> {
    let Target::Image(other, dir) = target else { return Ok(()) };
    if !Arc::ptr_eq(filesystem, other) {
        return Ok(());
    }
    let mut at = *dir;
    let mut seen = std::collections::HashSet::new();
    while seen.insert(at) {
        if at == start {
            return Err(Usage("a directory cannot be copied into itself".into()).into());
        }
        at = filesystem.lookup(at, b"..")?.inode;
    }
    Ok(())
}
