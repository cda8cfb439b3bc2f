//! Arguments of the commands for contents and whole trees.

use super::examples;
use super::image::{ImageArgs, PathArgs, ReadArgs, parse_octal};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `cat`.
#[derive(Debug, Args)]
#[command(after_help = examples::CAT)]
pub struct CatArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Begin at this byte; behind the end of the file there is nothing. Only with one path
    #[arg(long, value_name = "BYTE", value_parser = crate::output::text::parse_size)]
    pub offset: Option<u64>,
    /// Print so many bytes at most. Only with one path
    #[arg(long, value_name = "BYTES", value_parser = crate::output::text::parse_size)]
    pub length: Option<u64>,
}

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = examples::WRITE)]
pub struct WriteArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Path within the image
    pub path: OsString,
    /// Append to what is there
    #[arg(short, long)]
    pub append: bool,
    /// Write over what is there, from this byte on
    #[arg(long, value_name = "BYTE", conflicts_with = "append", value_parser = crate::output::text::parse_size)]
    pub offset: Option<u64>,
    /// Permissions of a new file, octal
    #[arg(short, long, default_value = "644", value_parser = parse_octal)]
    pub mode: u16,
}

/// Arguments of `df`.
#[derive(Debug, Args)]
pub struct DfArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Sizes with units
    #[arg(short, long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Arguments of `du`.
#[derive(Debug, Args)]
pub struct DuArgs {
    #[command(flatten)]
    pub path: PathArgs,
    /// Only the sum
    #[arg(short, long)]
    pub summarize: bool,
    /// Sizes with units
    #[arg(short, long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Sizes of the files, not of the space that they take
    #[arg(long)]
    pub apparent_size: bool,
}

const CP_NOTES: &str = "\
A path within an image is written IMAGE:/PATH, as in disk.img:/etc/passwd. A file of the host that is named like that \
comes first. SRC/. stands for what is in SRC, without SRC itself.

Permissions, owners (as numbers), times, attributes, ACLs, holes and further names are kept. What is there already \
keeps its owner, permissions and attributes, and a file gets the contents and times of the source; -p gives it \
everything. What the host refuses is listed at the end, with exit code 9; without -p an owner that only root may set \
is not.

Symbolic links are copied, never followed; but of /dev/stdin, and of <(COMMAND) in a shell, the contents are copied, \
as by cp(1). A file gets its name when it is complete; one that changes while it is read \
is an error (exit code 5). A file of the host that holds a filesystem is only replaced with -f.";

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(CP_NOTES, examples::CP))]
pub struct CpArgs {
    /// Files, and where to copy them: paths of the host, or IMAGE:/PATH; or a whole filesystem, DISK#PART, and a file
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub paths: Vec<OsString>,
    /// Copy directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Give files and directories that are there already the owner, permissions and attributes of the source too
    #[arg(short, long)]
    pub preserve: bool,
    /// As -r -p
    #[arg(short, long)]
    pub archive: bool,
    /// Replace a file of the host even if it holds a filesystem
    #[arg(short, long)]
    pub force: bool,
    /// Leave what is there already as it is; directories get what they lack
    #[arg(short, long, conflicts_with = "force")]
    pub no_clobber: bool,
    /// Print the path of each file, from the directory that is copied
    #[arg(short, long)]
    pub verbose: bool,
    /// Leave out what has a name that matches a pattern, directories with everything in them; may be given several
    /// times. Names that are given themselves are copied
    #[arg(long, value_name = "PATTERN", value_parser = super::list::glob(crate::args::glob::Case::Counts))]
    pub exclude: Vec<crate::args::glob::Glob>,
    /// Treat the last path as the new name, never as a directory to put it in
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Leave extended attributes out, ACLs among them
    #[arg(long)]
    pub no_xattrs: bool,
    /// Do not wait until copies on the host are durable: a power cut soon afterwards may take them back, and leave what
    /// they replaced empty
    #[arg(long)]
    pub no_sync: bool,
    #[command(flatten)]
    pub logging: super::xattr::LoggingArgs,
    /// Owner of the copies, in numbers: OWNER, OWNER:GROUP or :GROUP
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<crate::output::text::Owner>,
    #[command(flatten)]
    pub owners: super::source::OwnerArgs,
    /// Device of the external journal of the image that has one
    #[arg(long, value_name = "DEVICE")]
    pub logdev: Option<PathBuf>,
    /// Copy from images as they are on disk, without what only the journal holds. Only for copies to the host
    #[arg(long = "norecovery")]
    pub no_recovery: bool,
}

impl CpArgs {
    /// Whether directories are copied with everything in them.
    pub fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }
}

/// Arguments of `clone`.
#[derive(Debug, Args)]
pub struct CloneArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// An existing file, or inode:NUMBER
    pub from: OsString,
    /// The file that is to share its blocks; it is made, or replaced. In a directory it gets the name of the first one
    pub to: OsString,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = examples::EXPORT)]
pub struct ExportArgs {
    #[command(flatten)]
    pub path: PathArgs,
    /// Leave extended attributes out, ACLs among them
    #[arg(long)]
    pub no_xattrs: bool,
    /// Write the archive to a file instead of standard output (-)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file even if it is neither empty nor an archive
    #[arg(short, long, requires = "output")]
    pub force: bool,
    /// Do not wait until the file is durable
    #[arg(long, requires = "output")]
    pub no_sync: bool,
}

impl ExportArgs {
    /// The file for the archive; none for standard output, which `-` means as in tar.
    pub fn output_file(&self) -> Option<&std::path::Path> {
        self.output.as_deref().filter(|path| *path != std::path::Path::new("-"))
    }
}
