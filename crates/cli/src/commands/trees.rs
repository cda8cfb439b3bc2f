//! The sources that an image is filled from, and what is changed on the way.

use crate::args::container::{Container, Form};
use crate::args::{LayerArgs, OwnerArgs, ProtoArgs, SourceArgs};
use crate::interrupt;
use crate::open::file_mode;
use crate::open::new_file::NewFile;
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use crate::output::text::Owner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{BufReader, Read, Seek, stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::OpenError;
use xfskit_ondisk::Timestamp;
use xfskit_transfer::{
    Adjust, Attributes, ContainerImage, FileContexts, HostSource, IdMap, Labels, Layers, Manifest, ManifestSource,
    Owners, ProtoSource, Slashes, Source, TarSource, TransferError, Whiteouts, ask_pretender, unpacked,
};

const READ_AHEAD_BYTES: usize = 1 << 20;
/// The name of standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// A source of an image.
enum Tree {
    Folder(PathBuf),
    Archive(PathBuf),
    /// Standard input or a pipe, read directly.
    Stream(PathBuf),
    /// Such a stream, copied to a file without a name so that it can be read more than once.
    Spooled(NewFile),
    Protofile(ProtoArgs, Vec<u8>),
    Container(ContainerImage),
}

/// How often the sources must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Once.
    Once,
    /// Several times.
    Again,
}

/// Sources, the lowest first.
pub struct Trees {
    trees: Vec<Tree>,
    whiteouts: Whiteouts,
}

impl Trees {
    /// Looks for the sources that the command line names. Each part of a container image is verified.
    ///
    /// # Errors
    /// Those of opening them.
    pub fn find(session: &Session, from: &[PathBuf], layers: &LayerArgs, reads: Reads, image: &Path) -> Result<Self> {
        if from.iter().filter(|path| path.as_os_str() == STANDARD_INPUT).count() > 1 {
            return Err(Usage("standard input can be a source once only".into()).into());
        }
        let trees: Vec<Tree> =
            from.iter().map(|path| Tree::find(session, path, layers, reads, image)).collect::<Result<_>>()?;
        if layers.platform.is_some() && !trees.iter().any(|tree| matches!(tree, Tree::Container(_))) {
            return Err(Usage("--platform chooses a container image: --from oci:PATH".into()).into());
        }
        let whiteouts = if layers.whiteouts { Whiteouts::Hide } else { Whiteouts::AreFiles };
        Ok(Self { trees, whiteouts })
    }

    /// The source that `-p` of mkfs.xfs names.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_proto(proto: &ProtoArgs) -> Result<Self> {
        let path = proto.path.clone();
        let is_dir = std::fs::metadata(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?.is_dir();
        let tree = match is_dir {
            true => Tree::Folder(path),
            false => Tree::Protofile(proto.clone(), ProtoSource::read_text(&path)?),
        };
        Ok(Self { trees: vec![tree], whiteouts: Whiteouts::AreFiles })
    }

    /// Whether one of them can be read only once.
    pub fn are_read_once(&self) -> bool {
        self.trees.iter().any(|tree| matches!(tree, Tree::Stream(_)))
    }

    /// How a sink has to take them, where one lies over another or removes what is there.
    pub fn layers(&self) -> Option<Whiteouts> {
        let has_container = self.trees.iter().any(|tree| matches!(tree, Tree::Container(_)));
        let hides = self.whiteouts == Whiteouts::Hide || has_container;
        (hides || self.trees.len() > 1).then_some(if hides { Whiteouts::Hide } else { Whiteouts::AreFiles })
    }

    /// Whether one is a file that not all users may read.
    pub fn are_private(&self) -> bool {
        let is_private = |path: &Path| std::fs::metadata(path).is_ok_and(|data| file_mode::is_private(&data));
        self.trees.iter().any(|tree| match tree {
            Tree::Archive(path) => is_private(path),
            Tree::Container(image) => image.blob_paths().any(|path| is_private(&path)),
            _ => false,
        })
    }

    /// Opens the sources. `written` are the files that the image is written to, which are left out of a folder that
    /// contains them. Behind them comes what only the manifest has.
    ///
    /// # Errors
    /// Those of opening them.
    pub fn open(&self, written: &[Metadata], adjust: &Adjust, now: Timestamp) -> Result<Box<dyn Source + '_>> {
        let mut sources = Vec::new();
        for tree in &self.trees {
            sources.push(tree.open(written, now)?);
        }
        if let Some(manifest) = &adjust.manifest {
            sources.push(Box::new(ManifestSource::new(Arc::clone(manifest), now)));
        }
        Ok(match <[Box<dyn Source + '_>; 1]>::try_from(sources) {
            Ok([one]) if self.layers().is_none() => one,
            Ok([one]) => Box::new(Layers::new(vec![one], self.whiteouts)),
            Err(several) => Box::new(Layers::new(several, self.whiteouts)),
        })
    }
}

impl Tree {
    fn find(session: &Session, path: &Path, layers: &LayerArgs, reads: Reads, image: &Path) -> Result<Self> {
        if path.as_os_str() != STANDARD_INPUT {
            if let Some(container) = Container::parse(path) {
                return Self::find_container(&container, layers);
            }
            let data = std::fs::metadata(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
            if data.is_dir() {
                hint_at_layout(session, path);
                return Ok(Self::Folder(path.into()));
            }
            if data.is_file() || data.file_type().is_block_device() {
                return Ok(Self::Archive(path.into()));
            }
        }
        if reads == Reads::Again { spool(path, image).map(Self::Spooled) } else { Ok(Self::Stream(path.into())) }
    }

    fn find_container(Container { form, path, name }: &Container, layers: &LayerArgs) -> Result<Self> {
        let (name, platform) = (name.as_deref(), layers.platform.as_ref());
        let image = match form {
            Form::Layout => ContainerImage::open(path, name, platform)?,
            Form::Saved => ContainerImage::open_saved(path, name, platform)?,
        };
        image.verify_layers()?;
        Ok(Self::Container(image))
    }

    fn open(&self, written: &[Metadata], now: Timestamp) -> Result<Box<dyn Source + '_>> {
        let tar = |stream: Box<dyn Read + Send>, name: &Path| -> Result<Box<dyn Source>> {
            let stream = unpacked(stream).with_context(|| name.display().to_string())?;
            let stream = BufReader::with_capacity(READ_AHEAD_BYTES, stream);
            let is_input = name.as_os_str() == STANDARD_INPUT;
            let name = if is_input { "standard input".into() } else { name.display().to_string() };
            Ok(Box::new(TarSource::new(stream).named(name)))
        };
        Ok(match self {
            Self::Folder(path) => Box::new(HostSource::new(&path.join("."), b"", true)?.without(written)),
            Self::Archive(path) | Self::Stream(path) => tar(stream(path)?, path)?,
            Self::Spooled(unnamed) => {
                let mut file = unnamed.file().try_clone().context("standard input")?;
                file.rewind().context("standard input")?;
                tar(Box::new(file), Path::new("standard input"))?
            }
            Self::Protofile(proto, text) => {
                let slashes = if proto.slashes_are_spaces { Slashes::AreBlanks } else { Slashes::AreRefused };
                Box::new(ProtoSource::parse(&proto.path, text, slashes, now)?)
            }
            Self::Container(image) => Box::new(image.source()),
        })
    }
}

/// A folder with a container image is copied as it is, which few mean.
fn hint_at_layout(session: &Session, dir: &Path) {
    if dir.join("oci-layout").is_file() && dir.join("index.json").is_file() && dir.join("blobs").is_dir() {
        let shown = dir.display();
        session.messages().report(&format!(
            "{shown}: the folder of a container image is copied as it is; oci:{shown} is what is in its layers"
        ));
    }
}

/// Opens standard input or a file.
fn stream(path: &Path) -> Result<Box<dyn Read + Send>> {
    if path.as_os_str() == STANDARD_INPUT {
        let input = stdin().as_fd().try_clone_to_owned().context("standard input")?;
        return Ok(Box::new(Interruptible(input.into())));
    }
    let file = File::open(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
    Ok(Box::new(Interruptible(file)))
}

/// A file that may be a pipe: its writer may stay silent for ever, so who reads looks for a signal meanwhile.
struct Interruptible(File);

/// How often that is.
const LOOK_FOR_SIGNAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            interrupt::check().map_err(std::io::Error::other)?;
            let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut polled, Some(&LOOK_FOR_SIGNAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                _ => return self.0.read(buffer),
            }
        }
    }
}

/// Copies a stream to a file without a name.
fn spool(path: &Path, image: &Path) -> Result<NewFile> {
    let (unnamed, dir) = NewFile::to_keep_input(image)?;
    let kept = || format!("{}: keeping the archive there", dir.display());
    std::io::copy(&mut stream(path)?, &mut unnamed.file()).with_context(kept)?;
    Ok(unnamed)
}

/// Asks what fakeroot or its like pretends of folders and files of the host, before rights are given up.
///
/// # Errors
/// `Usage` where that cannot be found out.
pub fn believe_pretender<'a>(sources: impl IntoIterator<Item = &'a Path>) -> Result<(), Usage> {
    let paths = sources.into_iter().filter(|path| path.symlink_metadata().is_ok()).map(Path::to_path_buf);
    let paths: Vec<PathBuf> = paths.collect();
    ask_pretender(&paths).map_err(|error| Usage(error.to_string()))
}

/// The folders among sources; archives say themselves what is in them.
pub fn folders<'a>(from: impl IntoIterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    from.into_iter().filter(|path| path.is_dir()).map(|path| path.join(".")).collect()
}

/// Whether extended attributes are copied.
pub fn attributes(dropped: bool) -> Attributes {
    if dropped { Attributes::Dropped } else { Attributes::Kept }
}

/// What is changed on the way into an image. `root` is the path within the image of the directory that the tree comes
/// into.
///
/// # Errors
/// Those of the files that are named.
pub fn adjust(source: &SourceArgs, owner: Option<Owner>, root: &[u8]) -> Result<Adjust> {
    let manifest = source.manifest.as_deref().map(Manifest::read).transpose()?.map(Arc::new);
    Ok(Adjust { attributes: attributes(source.no_xattrs), manifest, ..adjust_owners(&source.owners, owner, root)? })
}

/// As [`adjust`], for owners and labels.
///
/// # Errors
/// Those of [`adjust`].
pub fn adjust_owners(args: &OwnerArgs, owner: Option<Owner>, root: &[u8]) -> Result<Adjust> {
    let map = |option: &str, ranges: &[_]| IdMap::new(ranges).map_err(|why| Usage(format!("{option}: {why}")));
    let root = root.strip_suffix(b"/").unwrap_or(root).to_vec();
    let labels = |path: &Path| -> Result<Labels, TransferError> {
        Ok(Labels { contexts: Arc::new(FileContexts::read(path)?), root: root.clone() })
    };
    Ok(Adjust {
        owner: Owners { uid: owner.and_then(|owner| owner.uid), gid: owner.and_then(|owner| owner.gid) },
        uid_map: map("--uid-map", &args.uid_map)?,
        gid_map: map("--gid-map", &args.gid_map)?,
        labels: args.file_contexts.as_deref().map(labels).transpose()?,
        ..Adjust::default()
    })
}
