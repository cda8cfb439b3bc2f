//! `xfskit mkfs --from`: makes an image and fills it.
//!
//! A new image file has no name until it is complete. Only its owner may read it if not all users may read everything
//! in it. With `SOURCE_DATE_EPOCH` in the environment, and a UUID, the image depends on nothing but the source and the
//! options.

use super::copy::{MIN_XFS_BYTES, attributes};
use super::mkfs::open_part;
use crate::args::MkfsArgs;
use crate::exit::Usage;
use crate::operand;
use crate::overwrite::{open_existing, open_existing_log};
use crate::private::{self, Watched};
use crate::progress::CopyBar;
use crate::text::parse_size;
use crate::unnamed::Unnamed;
use anyhow::{Context, Result};
use std::fs::{File, Metadata};
use std::io::{BufReader, Read, Seek, stdin};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xfskit::device::{BlockDevice, FileDevice, OpenError};
use xfskit::ondisk::{Superblock, Timestamp};
use xfskit::volume::{Environment, SystemEnvironment};
use xfskit::volume::{Error, MountOptions, Volume};
use xfskit_mkfs::{InodeSize, Options, make};
use xfskit_transfer::{
    Adjust, FixedEnvironment, HostSource, ImageSink, Losses, Needs, Shape, Source, TarSource, TransferError, survey,
    transfer,
};

/// How often an image that turned out too small is made again with a larger size.
const MAX_ATTEMPTS: usize = 6;
const READ_AHEAD_BYTES: usize = 1 << 20;
/// The name of standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// The source of an image.
enum From {
    Folder(PathBuf),
    Archive(PathBuf),
    /// Standard input or a pipe, read directly.
    Stream(PathBuf),
    /// Such a stream, copied to a file without a name so that it can be read more than once.
    Spooled(Unnamed),
}

/// How often a source must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Once,
    Twice,
}

impl From {
    fn find(path: &Path, reads: Reads, image: &Path) -> Result<Self> {
        if path != Path::new(STANDARD_INPUT) {
            let data = std::fs::metadata(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
            if data.is_dir() {
                return Ok(Self::Folder(path.into()));
            }
            if data.is_file() || data.file_type().is_block_device() {
                return Ok(Self::Archive(path.into()));
            }
        }
        if reads == Reads::Twice { spool(path, image).map(Self::Spooled) } else { Ok(Self::Stream(path.into())) }
    }

    /// Whether it is a file that not all users may read.
    fn is_private(&self) -> bool {
        matches!(self, Self::Archive(path) if std::fs::metadata(path).is_ok_and(|data| private::is_private(&data)))
    }

    /// Opens the source. `written` are the files that the image is written to, which are left out of a folder that
    /// contains them.
    fn open(&self, written: &[Metadata]) -> Result<Box<dyn Source>> {
        Ok(match self {
            Self::Folder(path) => Box::new(HostSource::new(&path.join("."), b"", true)?.without(written)),
            Self::Archive(path) => {
                let file = File::open(path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
                Box::new(TarSource::new(BufReader::with_capacity(READ_AHEAD_BYTES, file)))
            }
            Self::Stream(path) => Box::new(TarSource::new(BufReader::with_capacity(READ_AHEAD_BYTES, stream(path)?))),
            Self::Spooled(unnamed) => {
                let mut file = unnamed.file().try_clone().context("standard input")?;
                file.rewind().context("standard input")?;
                Box::new(TarSource::new(BufReader::with_capacity(READ_AHEAD_BYTES, file)))
            }
        })
    }
}

/// Opens standard input, or another file that can be read only once.
fn stream(path: &Path) -> Result<Box<dyn Read + Send>> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok(Box::new(stdin()));
    }
    let file = File::open(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
    Ok(Box::new(file))
}

/// Copies a stream to a file without a name.
fn spool(path: &Path, image: &Path) -> Result<Unnamed> {
    let (unnamed, dir) = Unnamed::to_keep_input(image)?;
    let kept = || format!("{}: keeping the archive there", dir.display());
    std::io::copy(&mut stream(path)?, &mut unnamed.file()).with_context(kept)?;
    Ok(unnamed)
}

/// The time in `SOURCE_DATE_EPOCH`.
pub fn source_date_epoch() -> Result<Option<Timestamp>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| Usage("SOURCE_DATE_EPOCH: expected a number of seconds since 1970".into()))?;
    Ok(Some(Timestamp { seconds, nanoseconds: 0 }))
}

/// The clock and the randomness with which an image is made.
pub fn environment(options: &Options) -> Result<Arc<dyn Environment>> {
    let uuid = options.uuid.expect("every image gets one");
    Ok(match source_date_epoch()? {
        Some(now) => Arc::new(FixedEnvironment::new(now, uuid)),
        None => Arc::new(SystemEnvironment::default()),
    })
}

/// Makes an image from a folder or an archive.
pub fn run(args: &MkfsArgs, from: &Path, options: &Options) -> Result<(Superblock, Losses)> {
    fill_existing_or_new(args, from, options).map(|filled| (filled.superblock, filled.losses))
}

/// An image that was filled.
struct Filled {
    superblock: Superblock,
    losses: Losses,
    /// It contains a file that not all users may read.
    is_private: bool,
}

fn fill_existing_or_new(args: &MkfsArgs, from: &Path, options: &Options) -> Result<Filled> {
    if let Some(part) = open_part(args)? {
        let from = From::find(from, Reads::Once, &args.image)?;
        let files = check_room(&from, &*part, args, options)?;
        return FillTarget::Device(part).fill(&from, 0, files, args, options);
    }
    let existing = std::fs::metadata(&args.image).ok();
    let size = match args.size.as_deref() {
        Some("auto") => None,
        Some(text) => Some(parse_size(text).map_err(Usage)?),
        // An existing file keeps its size, unless it is too small for any image, such as an empty file of mktemp(1). A
        // device has a size of its own.
        None => existing.as_ref().filter(|data| !data.is_file() || data.len() >= MIN_XFS_BYTES).map(|_| 0),
    };
    // The existing file is locked until the image is complete.
    let held = match &existing {
        Some(_) => Some(Arc::new(open_existing(&args.image, args.force, size.filter(|size| *size > 0))?)),
        None => None,
    };
    let is_file = existing.as_ref().is_none_or(Metadata::is_file);
    let size = match (size, &existing) {
        (Some(0), Some(data)) if is_file => Some(data.len()),
        (None, _) if !is_file => Some(0),
        (size, _) => size,
    };
    let from = From::find(from, if size.is_none() { Reads::Twice } else { Reads::Once }, &args.image)?;
    let (mut bytes, files) = match size {
        Some(bytes) => (bytes, None),
        None => measure(&from, args, options).map(|(needs, files)| (needs.image_bytes(), Some(files)))?,
    };
    // An existing file keeps its contents until the image is complete.
    let files = match &held {
        Some(device) if !is_file => check_room(&from, &**device, args, options)?,
        _ => files,
    };
    for attempt in 1.. {
        let place = match &held {
            Some(device) if !is_file => FillTarget::Device(Arc::clone(device) as _),
            _ => FillTarget::File(args.image.clone(), held.clone()),
        };
        match place.fill(&from, bytes, files, args, options) {
            Err(error) if size.is_none() && attempt < MAX_ATTEMPTS && is_full(&error) => bytes += bytes / 4,
            result => return result,
        }
    }
    unreachable!("the last attempt returns")
}

/// The files that the image replaces or is written to, if they exist by these names.
fn existing_files(args: &MkfsArgs, options: &Options) -> Vec<Metadata> {
    let operands = [Some(&args.image), options.log_device.as_ref()];
    let paths = operands.into_iter().flatten().flat_map(|operand| operand::files(operand));
    paths.filter_map(|path| std::fs::metadata(path).ok()).collect()
}

fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<TransferError>().is_some_and(TransferError::is_full))
}

/// Refuses a source for which a device is too small, before the contents of the device are lost. A stream
/// cannot be measured, since it can be read only once; for the other sources, returns the number of files.
fn check_room(from: &From, device: &dyn BlockDevice, args: &MkfsArgs, options: &Options) -> Result<Option<u64>> {
    if matches!(from, From::Stream(_)) {
        return Ok(None);
    }
    let (needs, files) = measure(from, args, options)?;
    let has = options.data_bytes().unwrap_or_else(|| device.size_bytes());
    if needs.least_bytes() >= has {
        let (image, needs) = (args.image.display(), needs.least_bytes());
        let what = format!("{image}: it has {has} bytes, and the source needs more than {needs}; what it holds stays");
        return Err(anyhow::Error::from(Error::NoSpace).context(what));
    }
    Ok(Some(files))
}

/// The space that the image needs, and the number of files.
fn measure(from: &From, args: &MkfsArgs, options: &Options) -> Result<(Needs, u64)> {
    let block_bytes = u64::from(options.block_bytes);
    let inode_bytes = match options.inode_size {
        InodeSize::Default => 512,
        InodeSize::Bytes(bytes) => bytes.into(),
        InodeSize::PerBlock(count) => block_bytes / u64::from(count.max(1)),
    };
    let dir_block_bytes = options.dir_block_bytes.map_or(block_bytes.max(4096), u64::from);
    let shape = Shape { block_bytes, inode_bytes: inode_bytes.max(256), dir_block_bytes, small: args.small };
    let mut needs = Needs::new(shape);
    let bar = CopyBar::new("measuring");
    survey(&mut *from.open(&existing_files(args, options))?, &mut needs, &bar)?;
    Ok((needs, bar.files()))
}

/// The target of the image.
enum FillTarget {
    /// A path, and the file that has it now.
    File(PathBuf, Option<Arc<FileDevice>>),
    Device(Arc<dyn BlockDevice>),
}

impl FillTarget {
    fn fill(&self, from: &From, bytes: u64, files: Option<u64>, args: &MkfsArgs, options: &Options) -> Result<Filled> {
        match self {
            Self::Device(device) => {
                let written = Arc::new(Unflushed::new(Arc::clone(device)));
                let result = fill(&written, None, from, files, args, options);
                if result.is_err() && written.begun.load(Ordering::Relaxed) {
                    // The device has an image now, but not the source's. The first error is the one to report.
                    let _ = device.write(0, &[0; 4096]);
                }
                result
            }
            Self::File(path, held) => {
                // A symbolic link stays, and the file that it refers to is replaced.
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                let io_error = |source| OpenError::Io { path: path.clone(), source };
                let unnamed = Unnamed::new_beside(&path)?;
                let device = FileDevice::create(unnamed.path(), bytes).with_context(|| path.display().to_string())?;
                let own = Some(device.metadata().map_err(io_error)?);
                let filled = fill(&Arc::new(Unflushed::new(Arc::new(device))), own, from, files, args, options)?;
                let is_private = filled.is_private || from.is_private();
                let replaced = held.as_ref().map(|held| held.metadata()).transpose().map_err(io_error)?;
                let permissions = private::permissions(is_private, replaced.as_ref());
                unnamed.file().set_permissions(permissions).map_err(io_error)?;
                if let Some(held) = held {
                    held.verify_unused(&path)?;
                }
                unnamed.put_in_place_durably(&path, replaced.as_ref()).map_err(io_error)?;
                Ok(filled)
            }
        }
    }
}

/// A device that ignores flushes: an image that is not complete is of no use, so only the caller flushes it, at the
/// end.
struct Unflushed {
    device: Arc<dyn BlockDevice>,
    /// Whether something was written.
    begun: AtomicBool,
}

impl Unflushed {
    fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, begun: AtomicBool::new(false) }
    }
}

impl BlockDevice for Unflushed {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn sector_bytes(&self) -> usize {
        self.device.sector_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.device.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.begun.store(true, Ordering::Relaxed);
        self.device.write(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.device.allocate(offset, length)
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        self.device.may_hold_data(offset, length)
    }

    fn identity(&self) -> usize {
        self.device.identity()
    }
}

fn fill(
    device: &Arc<Unflushed>,
    own: Option<Metadata>,
    from: &From,
    files: Option<u64>,
    args: &MkfsArgs,
    options: &Options,
) -> Result<Filled> {
    let shown = || args.image.display().to_string();
    let written: Vec<Metadata> = existing_files(args, options).into_iter().chain(own).collect();
    let epoch = source_date_epoch()?;
    let env = environment(options)?;
    let log = options.log_device.as_deref().map(|path| open_existing_log(path, args.force)).transpose()?;
    let mut source = from.open(&written)?;
    let superblock = make(device, log.as_deref(), options, env.now()).with_context(shown)?;
    let filesystem = Volume::open_in(device.clone(), log, MountOptions::default(), env).with_context(shown)?;
    let (uid, gid) = args.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
    let adjust = Adjust { uid, gid, newest: epoch, attributes: attributes(args.no_xattrs) };
    let bar = CopyBar::new("filling").of_files(files);
    let mut sink = ImageSink::new(&filesystem, filesystem.root())?;
    let mut watched = Watched::new(&mut sink);
    transfer(&mut *source, &mut watched, &adjust, &bar)?;
    let is_private = watched.is_private();
    drop(sink);
    bar.finish();
    let losses = source.losses();
    filesystem.unmount().with_context(|| format!("{}: closing the image", shown()))?;
    device.device.flush().map_err(|source| OpenError::Io { path: args.image.clone(), source })?;
    Ok(Filled { superblock, losses, is_private })
}
