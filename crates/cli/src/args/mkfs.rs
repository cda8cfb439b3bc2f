//! Arguments of the commands that fill images: `mkfs` and `import`.

use super::examples;
use super::image::ImageArgs;
use super::source::{LayerArgs, SourceArgs};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use xfskit_device::Access;

const MKFS_NOTES: &str = "\
With --from the image gets its name when it is complete. A SOURCE is a folder, a tar archive, packed with gzip or zstd \
or not, \"-\" for an archive on standard input, oci:PATH[:NAME] for a container image in a folder or an archive of the \
OCI layout, or docker-archive:FILE[:NAME] for one of docker save. A later one lies over an earlier one. \
SOURCE_DATE_EPOCH in the environment sets the clock, and no time is \
later; with that and -m uuid=UUID, the same source and options make the same image, byte for byte.";

/// Arguments of `mkfs`.
#[derive(Debug, Default, Args)]
#[command(after_help = examples::with(MKFS_NOTES, examples::MKFS))]
pub struct MkfsArgs {
    #[command(flatten)]
    pub target: Target,
    /// Fill the image from a folder, a tar archive ("-" for one on standard input) or a container image; may be given
    /// several times
    #[arg(long, value_name = "SOURCE")]
    pub from: Vec<PathBuf>,
    /// Owner of the root directory, which is 0:0 otherwise, or with --from of everything in the image, in numbers:
    /// OWNER, OWNER:GROUP or :GROUP
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<crate::output::text::Owner>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub layers: LayerArgs,
    /// Size of the image file, as in 500M or 10G; needed for a new one. With --from: auto, the default for a
    /// new file and for one of less than 16M, fits the source
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// With --size auto: leave so much room free, as in 20% of the image or 500M
    #[arg(long, value_name = "SPACE", requires = "from")]
    pub free: Option<Space>,
    /// With --size auto: find the smallest size in which everything has room, by making the image several times
    #[arg(long, requires = "from", conflicts_with = "free")]
    pub minimize: bool,
    /// Leave out what a reader does not know, as in linux-6.1 or grub-2.06; several are separated by commas
    #[arg(long = "for", value_name = "READERS", value_delimiter = ',')]
    pub readers: Vec<String>,
    /// Take options from a configuration file of mkfs.xfs: options=FILE
    #[arg(short = 'c', value_name = "OPTS")]
    pub config: Option<String>,
    /// Block size: size=
    #[arg(short = 'b', value_name = "OPTS")]
    pub block: Vec<String>,
    /// Data section: agcount=, agsize=, size=, su=, sw=, sunit=, swidth=, noalign
    #[arg(short = 'd', value_name = "OPTS")]
    pub data: Vec<String>,
    /// Inodes: size=, perblock=, maxpct=, sparse=, nrext64=, exchange=
    #[arg(short = 'i', value_name = "OPTS")]
    pub inode: Vec<String>,
    /// Journal: size=, agnum=, logdev=, su=, sunit=, sectsize=
    #[arg(short = 'l', value_name = "OPTS")]
    pub log: Vec<String>,
    /// Label, at most 12 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub label: Option<String>,
    /// Metadata: uuid=, finobt=, inobtcount=, rmapbt=, reflink=, bigtime=, autofsck=
    #[arg(short = 'm', value_name = "OPTS")]
    pub metadata: Vec<String>,
    /// Directories: size=, parent=
    #[arg(short = 'n', value_name = "OPTS")]
    pub naming: Vec<String>,
    /// Sector size: size=
    #[arg(short = 's', value_name = "OPTS")]
    pub sector: Vec<String>,
    /// Overwrite what the image file or device holds, whatever it is, and cut it to a smaller size
    #[arg(short, long)]
    pub force: bool,
    /// Allow what is too small for mkfs.xfs: less than 300 MB, one AG, a journal of less than 64 MB
    #[arg(long)]
    pub small: bool,
    /// Print nothing
    #[arg(short, long)]
    pub quiet: bool,
    /// Where the image is made.
    #[arg(skip)]
    pub placement: Placement,
    /// What else than nothing may be overwritten without `force`.
    #[arg(skip)]
    pub overwrites: Overwrite,
    /// What mkfs.xfs's `-p` names.
    #[arg(skip)]
    pub proto: Option<ProtoArgs>,
}

/// Where an image is made, by either way to say it.
#[derive(Debug, Default, Args)]
pub struct Target {
    /// Image file, which is made if it does not exist, block device, or part of a disk, as in disk.img#3
    #[arg(required_unless_present = "into")]
    image: Option<PathBuf>,
    /// The same as IMAGE
    #[arg(long, value_name = "IMAGE", conflicts_with = "image")]
    into: Option<PathBuf>,
}

impl From<PathBuf> for Target {
    fn from(image: PathBuf) -> Self {
        Self { image: Some(image), into: None }
    }
}

impl MkfsArgs {
    /// Where the image is made.
    pub fn image(&self) -> &Path {
        let Target { image, into } = &self.target;
        image.as_deref().or(into.as_deref()).unwrap_or(Path::new(""))
    }

    /// What may be overwritten.
    pub fn overwrite(&self) -> Overwrite {
        if self.force { Overwrite::Anything } else { self.overwrites }
    }

    /// How the target is opened: who calls mkfs.xfs may have locked it for that.
    pub fn access(&self) -> Access {
        if self.placement == Placement::InPlace { Access::WriteForCaller } else { Access::Write }
    }
}

/// Where an image is made whose file exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In a new file, which replaces the old one when it is complete.
    #[default]
    Replaces,
    /// In the file itself, which other programs may have open.
    InPlace,
}

/// What may be overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Zeros.
    #[default]
    Zeros,
    /// Everything but filesystems, tables of partitions and the like.
    Unformatted,
    /// Everything.
    Anything,
}

/// What mkfs.xfs's `-p` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtoArgs {
    /// A folder or a protofile.
    pub path: PathBuf,
    /// Access times are those of the source, not the time now.
    pub keeps_atime: bool,
    /// A slash in a name of a protofile stands for a blank.
    pub slashes_are_spaces: bool,
}

/// Room in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Bytes.
    Bytes(u64),
    /// Percent of the image.
    Percent(u8),
}

/// A smaller number without a unit is one whose unit was forgotten.
const MIN_PLAIN_BYTES: u64 = 1 << 20;

impl std::str::FromStr for Space {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 0..=90) => Ok(Self::Percent(percent)),
                _ => Err("expected 0% to 90%".into()),
            },
            None => match crate::output::text::parse_size(text)? {
                bytes @ 1..MIN_PLAIN_BYTES if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Err(format!("{bytes} bytes are no room: {bytes}% of the image, or {bytes}M?"))
                }
                bytes => Ok(Self::Bytes(bytes)),
            },
        }
    }
}

const IMPORT_NOTES: &str = "\
A SOURCE is a folder, a tar archive, packed with gzip or zstd or not, \"-\" for an archive on standard input, \
oci:PATH[:NAME] for a container image in a folder or an archive of the OCI layout, or docker-archive:FILE[:NAME] for \
one of docker save. Files and directories that are there already get everything from the source; a directory is \
replaced by a file only with --whiteouts or the source of a container image. Symbolic links in the image are not \
followed.";

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(IMPORT_NOTES, examples::IMPORT))]
pub struct ImportArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory within the image
    #[arg(default_value = "/")]
    pub dir: OsString,
    /// What to put there; several are taken in order
    #[arg(long, value_name = "SOURCE", default_value = "-")]
    pub from: Vec<PathBuf>,
    /// Owner of everything, in numbers: OWNER, OWNER:GROUP or :GROUP
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<crate::output::text::Owner>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub layers: LayerArgs,
    #[command(flatten)]
    pub logging: super::xattr::LoggingArgs,
}
