//! `xfskit mkfs --from`: makes an image and fills it.
//!
//! A new image file has no name until it is complete. Only its owner may read it if not all users may read everything
//! in it. One that is made on a device, or in a file that stays the same file, is marked until then. With
//! `SOURCE_DATE_EPOCH` in the environment, and a UUID, the image depends on nothing but the source and the
//! options.

use super::copy::MIN_XFS_BYTES;
use super::trees::{Reads, Trees, adjust};
use crate::args::{MkfsArgs, Placement, Space};
use crate::open::file_mode::{self, Watched};
use crate::open::in_progress::Unfinished;
use crate::open::new_file::NewFile;
use crate::open::overwrite::{Existing, choose_part, open_part, verify_existing};
use crate::open::session::Session;
use crate::open::unread::open_with_below;
use crate::operand;
use crate::output::causes::Usage;
use crate::output::error::{CommandError, Context, Result};
use crate::output::progress::{CopyBar, waiting_for};
use crate::output::text::parse_size;
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError};
use xfskit_engine::{Environment, SystemEnvironment};
use xfskit_engine::{Error, MountOptions, Volume};
use xfskit_mkfs::{InodeSize, Options, make, verify};
use xfskit_ondisk::{Superblock, Timestamp};
use xfskit_sandbox::FileUse;
use xfskit_transfer::{
    Adjust, FixedEnvironment, ImageSink, LeastNeeds, Losses, Needs, Node, Progress, Shape, Source, TransferError,
    survey, survey_sizes, transfer,
};

/// How often an image that turned out too small is made again with a larger size.
const MAX_ATTEMPTS: usize = 6;
/// How often an image is made to find its smallest size, and the step in which sizes differ.
const MAX_TRIALS: usize = 12;
const STEP_BYTES: u64 = 1 << 20;

/// A way to go through the files of a source.
type Survey = fn(&mut dyn Source, &mut dyn FnMut(&Node), &Adjust, &dyn Progress) -> xfskit_transfer::Result<()>;

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
        None => Arc::new(SystemEnvironment),
    })
}

/// Makes an image and fills it.
pub fn run(session: &Session, args: &MkfsArgs, options: &Options) -> Result<(Superblock, Losses)> {
    let fill = Fill::new(session, args, options)?;
    fill.run().map(|filled| (filled.superblock, filled.losses))
}

/// An image that was filled.
struct Filled {
    superblock: Superblock,
    losses: Losses,
    /// It contains a file that not all users may read.
    is_private: bool,
    /// Bytes that are free in it.
    free_bytes: u64,
}

/// What is to be done.
struct Fill<'a> {
    session: &'a Session,
    args: &'a MkfsArgs,
    options: &'a Options,
    adjust: Adjust,
    env: Arc<dyn Environment>,
}

impl<'a> Fill<'a> {
    fn new(session: &'a Session, args: &'a MkfsArgs, options: &'a Options) -> Result<Self> {
        let env = environment(options)?;
        let adjust = Adjust { newest: source_date_epoch()?, ..adjust(&args.source, args.owner, b"")? };
        let accessed = args.proto.as_ref().filter(|proto| !proto.keeps_atime).map(|_| env.now());
        Ok(Self { session, args, options, adjust: Adjust { accessed, ..adjust }, env })
    }

    fn find_trees(&self, reads: Reads) -> Result<Trees> {
        match &self.args.proto {
            Some(proto) => Trees::of_proto(proto),
            None => Trees::find(self.session, &self.args.from, &self.args.layers, reads, self.args.image()),
        }
    }

    fn run(&self) -> Result<Filled> {
        let (session, args) = (self.session, self.args);
        self.keep_log()?;
        if let Some(part) = open_part(session, args)? {
            verify_no_room(args)?;
            let part = choose_part(session.confine()?, args.image(), part, args.overwrite())?;
            let trees = self.find_trees(Reads::Once)?;
            let files = self.check_room(&trees, part.size_bytes())?;
            return self.fill_device(part, None, &trees, files);
        }
        let existing = std::fs::metadata(args.image()).ok();
        let size = match args.size.as_deref() {
            Some("auto") => None,
            Some(text) => Some(parse_size(text).map_err(Usage)?),
            // An existing file keeps its size, unless it is too small for any image, such as an empty file of
            // mktemp(1). A device has a size of its own.
            None => existing.as_ref().filter(|data| !data.is_file() || data.len() >= MIN_XFS_BYTES).map(|_| 0),
        };
        let is_auto = size.is_none();
        if !is_auto {
            verify_no_room(args)?;
        }
        // The existing file is locked until the image is complete.
        let held = existing.as_ref().map(|_| session.open_device(args.image(), args.access())).transpose()?;
        session.confine()?;
        if let Some(held) = &held {
            verify_existing(args.image(), held, args.overwrite(), size.filter(|size| *size > 0))?;
        }
        let is_file = existing.as_ref().is_none_or(Metadata::is_file);
        match held {
            Some(device) if !is_file || args.placement == Placement::InPlace => {
                let size = size.filter(|size| *size > 0 && is_file);
                let size = if is_file { Some(size.unwrap_or(device.size_bytes())) } else { None };
                self.fill_in_place(device, size)
            }
            held => {
                let size =
                    size.map(|size| if size == 0 { held.as_ref().map_or(0, BlockDevice::size_bytes) } else { size });
                self.fill_new(held.map(Arc::new), size)
            }
        }
    }

    /// Lets the files of an external journal be opened by each attempt, and those below them.
    fn keep_log(&self) -> Result<()> {
        let sandbox = &self.session.sandbox;
        let files = self.options.log_device.iter().flat_map(|log| operand::files(log));
        for file in files.filter(|file| sandbox.is_ahead() && !operand::is_address(file)) {
            let opened = open_with_below(&self.session.wait, &file, Access::ReadUnlocked)?;
            sandbox.keep(opened.file(), FileUse::Write)?;
            opened.below().try_for_each(|(_, below)| sandbox.keep(below, FileUse::Read))?;
        }
        Ok(())
    }

    /// Fills a device, or a file that stays the same file. With `size` the file gets that size, and is zeros first.
    fn fill_in_place(&self, mut device: FileDevice, size: Option<u64>) -> Result<Filled> {
        let shown = || self.args.image().display().to_string();
        let trees = self.find_trees(Reads::Once)?;
        let files = self.check_room(&trees, size.unwrap_or(device.size_bytes()))?;
        if let Some(size) = size {
            let fits = |device: &FileDevice| verify(self.options, size, device.hints().sector_bytes, None);
            // An external log is looked at when it is made.
            let fits = |device: &FileDevice| if self.options.log_device.is_some() { Ok(()) } else { fits(device) };
            device.make_zeros_after(size, fits).with_context(|| format!("{}: the old contents stay", shown()))?;
        }
        let own = device.metadata().with_context(shown)?;
        self.fill_device(Arc::new(device), Some(own), &trees, files)
    }

    /// Fills a device. `own` is that of its file, which no source may be.
    fn fill_device(
        &self,
        device: Arc<dyn BlockDevice>,
        own: Option<Metadata>,
        trees: &Trees,
        files: Option<u64>,
    ) -> Result<Filled> {
        let written = Arc::new(Unfinished::new(device));
        let result = self.fill(&written, own, trees, files);
        if result.is_err() {
            // The device has an image now, but not the source's. The first error is the one to report.
            let _ = written.give_up();
        }
        result
    }

    /// Makes a file, which gets its name when it is complete; until then an existing file keeps its contents.
    fn fill_new(&self, held: Option<Arc<FileDevice>>, size: Option<u64>) -> Result<Filled> {
        let trees = self.find_trees(if size.is_none() { Reads::Again } else { Reads::Once })?;
        // A symbolic link stays, and the file that it refers to is replaced.
        let path = self.args.image().canonicalize().unwrap_or_else(|_| self.args.image().to_path_buf());
        let (unnamed, filled) = match size {
            Some(bytes) => self.fill_unnamed(&path, &trees, bytes, None)?,
            None if self.args.minimize => self.fill_smallest(&path, &trees)?,
            None => self.fill_fitting(&path, &trees)?,
        };
        let io_error = |source| OpenError::Io { path: path.clone(), source };
        let is_private = filled.is_private || trees.are_private();
        let replaced = held.as_ref().map(|held| held.metadata()).transpose().map_err(io_error)?;
        let permissions = file_mode::permissions(is_private, replaced.as_ref());
        unnamed.file().set_permissions(permissions).map_err(io_error)?;
        if let Some(held) = held {
            held.verify_unused(&path)?;
        }
        unnamed.put_in_place_durably(&path, replaced.as_ref()).map_err(io_error)?;
        Ok(filled)
    }

    /// Fills an image whose size is estimated; a larger one where the estimate was too small, or where less room is
    /// left free than was asked for.
    fn fill_fitting(&self, path: &Path, trees: &Trees) -> Result<(NewFile, Filled)> {
        let (needs, files) = self.measure(trees)?;
        let mut bytes = with_room(needs.image_bytes(), self.args.free);
        for attempt in 1.. {
            let lacking = match self.fill_unnamed(path, trees, bytes, Some(files)) {
                Err(error) if is_full(&error) && attempt < MAX_ATTEMPTS => bytes / 4,
                Err(error) => return Err(error),
                Ok(made) => match room(bytes, self.args.free).saturating_sub(made.1.free_bytes) {
                    lacking if lacking > 0 && attempt < MAX_ATTEMPTS => lacking + lacking / 4,
                    _ => return Ok(made),
                },
            };
            bytes = (bytes + lacking).next_multiple_of(STEP_BYTES);
        }
        unreachable!("the last attempt returns")
    }

    /// Halves the distance between a size that is too small and one that is not, until they are next to each other.
    fn fill_smallest(&self, path: &Path, trees: &Trees) -> Result<(NewFile, Filled)> {
        let (needs, files) = self.measure(trees)?;
        let mut made = self.fill_fitting(path, trees)?;
        let mut large = made.0.file().metadata()?.len();
        let mut small = needs.least_bytes().min(large) / STEP_BYTES * STEP_BYTES;
        // What is free is about what is too much.
        let mut next = large.saturating_sub(made.1.free_bytes / 10 * 9) / STEP_BYTES * STEP_BYTES;
        for _ in 0..MAX_TRIALS {
            if large - small <= STEP_BYTES {
                break;
            }
            let bytes = next.clamp(small + STEP_BYTES, large - STEP_BYTES);
            match self.fill_unnamed(path, trees, bytes, Some(files)) {
                Ok(smaller) => (made, large) = (smaller, bytes),
                Err(error) if is_too_small(&error) => small = bytes,
                Err(error) => return Err(error),
            }
            next = (small + (large - small) / 2) / STEP_BYTES * STEP_BYTES;
        }
        Ok(made)
    }

    fn fill_unnamed(&self, path: &Path, trees: &Trees, bytes: u64, files: Option<u64>) -> Result<(NewFile, Filled)> {
        let unnamed = NewFile::new_beside(path)?;
        let device = FileDevice::create(unnamed.path(), bytes).with_context(|| path.display().to_string())?;
        let own = device.metadata().with_context(|| path.display().to_string())?;
        let filled = self.fill(&Arc::new(Unfinished::new(Arc::new(device))), Some(own), trees, files)?;
        Ok((unnamed, filled))
    }

    /// The files that the image replaces or is written to, if they exist by these names.
    fn existing_files(&self) -> Vec<Metadata> {
        let operands = [Some(self.args.image()), self.options.log_device.as_deref()];
        let paths = operands.into_iter().flatten().flat_map(operand::files);
        paths.filter_map(|path| std::fs::metadata(path).ok()).collect()
    }

    /// Refuses a source for which a device is too small, before the contents of the device are lost. A stream
    /// cannot be measured, since it can be read only once; for the other sources, returns the number of files.
    fn check_room(&self, trees: &Trees, bytes: u64) -> Result<Option<u64>> {
        if trees.are_read_once() {
            return Ok(None);
        }
        let mut needs = LeastNeeds::new(self.shape());
        let files = self.pass(trees, survey_sizes, &mut |node| needs.count(node))?;
        let has = self.options.data_bytes().unwrap_or(bytes);
        if needs.image_bytes() >= has {
            let (image, needs) = (self.args.image().display(), needs.image_bytes());
            let what =
                format!("{image}: it has {has} bytes, and the source needs more than {needs}; what it holds stays");
            return Err(CommandError::from(Error::NoSpace).context(what));
        }
        Ok(Some(files))
    }

    /// The space that the image needs, and the number of files.
    fn measure(&self, trees: &Trees) -> Result<(Needs, u64)> {
        let mut needs = Needs::new(self.shape());
        let files = self.pass(trees, survey, &mut |node| needs.count(node))?;
        Ok((needs, files))
    }

    /// Gives the files of the sources to `each`; returns their number.
    fn pass(&self, trees: &Trees, survey: Survey, each: &mut dyn FnMut(&Node)) -> Result<u64> {
        let bar = CopyBar::new(&self.session.output, "measuring");
        let mut source = trees.open(&self.existing_files(), &self.adjust, self.env.now())?;
        survey(&mut *source, each, &self.adjust, &bar)?;
        Ok(bar.files())
    }

    fn shape(&self) -> Shape {
        let block_bytes = u64::from(self.options.block_bytes);
        let inode_bytes = match self.options.inode_size {
            InodeSize::Default => 512,
            InodeSize::Bytes(bytes) => bytes.into(),
            InodeSize::PerBlock(count) => block_bytes / u64::from(count.max(1)),
        };
        let dir_block_bytes = self.options.dir_block_bytes.map_or(block_bytes.max(4096), u64::from);
        Shape { block_bytes, inode_bytes: inode_bytes.max(256), dir_block_bytes, small: self.args.small }
    }

    fn fill(
        &self,
        device: &Arc<Unfinished>,
        own: Option<Metadata>,
        trees: &Trees,
        files: Option<u64>,
    ) -> Result<Filled> {
        let (args, options) = (self.args, self.options);
        let shown = || args.image().display().to_string();
        let written: Vec<Metadata> = self.existing_files().into_iter().chain(own).collect();
        // Each attempt makes the same image.
        let env = environment(options)?;
        let log = options.log_device.as_deref();
        let log = log
            .map(|path| {
                Existing::open(self.session, path)?.into_device(self.session.confine()?, path, args.overwrite())
            })
            .transpose()?;
        let mut source = trees.open(&written, &self.adjust, self.env.now())?;
        let superblock = make(device, log.as_deref(), options, env.now()).with_context(shown)?;
        let filesystem = Volume::open_in(device.clone(), log, MountOptions::default(), env).with_context(shown)?;
        let bar = CopyBar::new(&self.session.output, "filling").of_files(files);
        let mut sink = ImageSink::new(&filesystem, filesystem.root())?.with_kinds_replaced();
        if let Some(whiteouts) = trees.layers() {
            sink = sink.with_layers(whiteouts);
        }
        let mut watched = Watched::new(&mut sink);
        transfer(&mut *source, &mut watched, &self.adjust, &bar)?;
        let is_private = watched.is_private();
        drop(sink);
        bar.finish();
        let losses = source.losses();
        let usage = filesystem.statfs();
        let free_bytes = usage.free_blocks * u64::from(usage.block_bytes);
        let _waits = waiting_for(&self.session.output, "closing the image");
        filesystem.unmount().with_context(|| format!("{}: closing the image", shown()))?;
        device.finish().map_err(|source| OpenError::Io { path: args.image().to_path_buf(), source })?;
        Ok(Filled { superblock, losses, is_private, free_bytes })
    }
}

/// What room is to be free is for an image whose size is to be found.
fn verify_no_room(args: &MkfsArgs) -> Result<(), Usage> {
    match args.free.is_some() || args.minimize {
        true => Err(Usage("--free and --minimize are for --size auto, which finds the size".into())),
        false => Ok(()),
    }
}

/// The room that is to be free in an image of this size.
fn room(bytes: u64, free: Option<Space>) -> u64 {
    match free {
        None => 0,
        Some(Space::Bytes(room)) => room,
        Some(Space::Percent(percent)) => bytes / 100 * u64::from(percent),
    }
}

/// The size of an image that has this size without the room that is to be free.
fn with_room(bytes: u64, free: Option<Space>) -> u64 {
    let bytes = match free {
        None => bytes,
        Some(Space::Bytes(room)) => bytes + room,
        Some(Space::Percent(percent)) => bytes * 100 / (100 - u64::from(percent)),
    };
    bytes.next_multiple_of(STEP_BYTES)
}

fn is_full(error: &CommandError) -> bool {
    error.cause().is_some_and(TransferError::is_full)
}

/// Whether an image cannot be made in this size, or has too little room.
fn is_too_small(error: &CommandError) -> bool {
    is_full(error) || error.cause::<xfskit_mkfs::MakeError>().is_some()
}
