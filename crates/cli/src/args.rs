//! The arguments.

mod admin;
mod apart;
#[cfg(feature = "bench")]
mod bench;
mod contents;
mod examples;
mod help;
mod list;
mod mkfs;
mod source;
mod xattr;

pub use admin::{AdminCommand, GrowArgs, InfoArgs, LabelArgs, NewSize, TrimArgs, UuidArgs, UuidChange};
pub use apart::split;
#[cfg(feature = "bench")]
pub use bench::{BenchArgs, CrashTestArgs};
pub use contents::{CatArgs, CloneArgs, CpArgs, DfArgs, DuArgs, ExportArgs, WriteArgs};
pub use help::command;
pub use list::{FindArgs, LsArgs, StatArgs, with_expression};
pub use mkfs::{ImportArgs, MkfsArgs, Overwrite, Placement, ProtoArgs, Space};
pub use source::{LayerArgs, OwnerArgs, SourceArgs};
pub use xattr::{LoggingArgs, XattrCommand};

use crate::exit::{CHECK_EXIT_CODES, EXIT_CODES, Usage};
use clap::builder::ArgPredicate::IsPresent;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What names an image.
const OPERANDS: &str = "\
An image is a file, a block device, or a part of a disk (raw, qcow2, vmdk, nbd://HOST/EXPORT):
  disk.qcow2              the only XFS filesystem on it
  disk.img#3              a partition; also #partlabel=NAME, #partuuid=UUID
  disk.img#label=NAME     a filesystem by its label; also #uuid=UUID
  a.img,b.img#lv=VG/LV    a logical volume
  disk.img#offset=1M      everything from this byte on; #whole is the disk itself
'xfskit info DISK' shows what there is.";

/// Make, mount, edit and look into XFS images, without root and without the kernel's XFS.
#[derive(Debug, Parser)]
#[command(name = "xfskit", version, after_help = EXIT_CODES)]
#[command(after_long_help = examples::with(OPERANDS, EXIT_CODES))]
pub struct Cli {
    /// Print JSON, where the command prints something to parse; tree, find and xattr dump print a line for each file. A
    /// name that is not UTF-8 is also there as base64, under the name of its member with _base64 behind it
    #[arg(long, global = true, help_heading = help::EVERY_COMMAND)]
    pub json: bool,
    /// Wait up to so many seconds, fractions allowed, while another program uses the image, or the mount that is to be
    /// unmounted. `write`, and `cp` of /dev/stdin, wait at least 3 seconds when the input is a pipe
    #[arg(long, global = true, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    #[arg(hide_default_value = true, help_heading = help::EVERY_COMMAND)]
    pub wait: std::time::Duration,
    /// Write to an image on an NBD server (nbd://HOST/EXPORT): you have seen to it that no other client writes. NBD has
    /// no means for that; docs/network.md says what has
    #[arg(long, global = true, help_heading = help::EVERY_COMMAND)]
    pub others_kept_out: bool,
    /// Start no other program to read a virtual disk. Without this, qemu-nbd reads formats that xfskit does not, where
    /// it is installed: only the files of that disk, and without network
    #[arg(long, global = true)]
    pub no_helpers: bool,
    /// Keep all rights. Without this, xfskit gives up what it does not need before it reads an image: other files,
    /// other programs, the network
    #[arg(long, global = true, help_heading = help::EVERY_COMMAND)]
    pub no_sandbox: bool,
    /// Say nothing of what went as it should, such as a journal that was replayed
    #[arg(short, long, global = true, help_heading = help::EVERY_COMMAND)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of the program.
///
/// # Errors
/// Help, a version, or what is wrong with them.
pub fn parse() -> Result<Cli, clap::Error> {
    let args = with_expression(std::env::args_os().collect());
    match apart::with_images_apart(args, Cli::command()) {
        Ok(args) => Cli::from_arg_matches(&command().try_get_matches_from(args)?),
        Err(Usage(why)) => Err(command().error(clap::error::ErrorKind::ValueValidation, why)),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an image, as mkfs.xfs does
    Mkfs(Box<MkfsArgs>),
    /// Mount an image by FUSE
    Mount(MountArgs),
    /// Unmount, and wait until the image is closed
    Umount(UmountArgs),
    /// Show what an image is, or one that is mounted: label, features, sizes, free space, state of the journal; of a
    /// disk with partitions or LVM2, what there is on it
    #[command(after_help = examples::with(LIVE_NOTES, examples::INFO))]
    Info(InfoArgs),
    /// Grow an image, change its label or UUID, give its free space back to the host
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Verify a whole image without changing it
    #[command(after_help = examples::with(CHECK_EXIT_CODES, examples::CHECK))]
    Check(CheckArgs),
    /// List directories
    #[command(disable_help_flag = true)]
    Ls(LsArgs),
    /// List a directory and everything below it
    Tree(PathArgs),
    /// Find files, as find(1) does: by name, kind, size, owner, permissions, time, attribute and more
    Find(FindArgs),
    /// Show all attributes of files
    Stat(StatArgs),
    /// Show where a symbolic link points
    Readlink(PathArgs),
    /// Make directories
    Mkdir(MkdirArgs),
    /// Make a device node, a pipe, a socket or an empty file
    Mknod(MknodArgs),
    /// Make an empty file, or set a file's times
    Touch(TouchArgs),
    /// Give a file one more name, or make a symbolic link
    Ln(LnArgs),
    /// Move or rename
    Mv(MvArgs),
    /// Remove files and directories
    Rm(RmArgs),
    /// Copy files and trees between the host and images
    Cp(CpArgs),
    /// Print the contents of files
    Cat(CatArgs),
    /// Write standard input to a file, which is made or replaced
    Write(WriteArgs),
    /// Copy a file within an image by sharing its blocks
    Clone(CloneArgs),
    /// Write a tree as a tar archive
    Export(ExportArgs),
    /// Put a folder, a tar archive or a container image into an image
    Import(Box<ImportArgs>),
    /// Show how full an image is
    #[command(disable_help_flag = true)]
    Df(DfArgs),
    /// Show how much space trees take
    #[command(disable_help_flag = true)]
    Du(DuArgs),
    /// Change permissions
    Chmod(ChmodArgs),
    /// Change owner and group
    Chown(ChownArgs),
    /// Show and change extended attributes
    #[command(subcommand)]
    Xattr(XattrCommand),
    /// List every name of a file, by its parent pointers, in an image or on a mount
    Parents(ParentsArgs),
    /// List every path that leads to an inode, in an image or on a mount
    Path(InodeArgs),
    /// Show the figures of a mount: transactions, journal, caches
    Stats(MountPointArgs),
    /// Look into the journal
    #[command(subcommand)]
    Log(LogCommand),
    /// Cut the power of simulated devices at every write, and see that everything is recovered
    #[cfg(feature = "bench")]
    CrashTest(CrashTestArgs),
    /// Run published benchmarks, on xfskit and on the kernel's XFS
    #[cfg(feature = "bench")]
    Bench(BenchArgs),
    /// Write man pages into a folder
    Man {
        /// The folder
        dir: PathBuf,
    },
    /// Print a completion script
    Completions {
        /// The shell: bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

/// An image.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Image file or block device, or a part of a disk, as in disk.qcow2#3 (see xfskit --help)
    pub image: PathBuf,
    /// Device of an external journal
    #[arg(long, value_name = "DEVICE")]
    pub logdev: Option<PathBuf>,
}

/// An image that is only looked at.
#[derive(Debug, Args)]
pub struct ReadArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Do not replay a dirty journal, not even in memory: show the image as it is on disk, without what only the
    /// journal holds
    #[arg(long = "norecovery")]
    pub no_recovery: bool,
}

/// A file in an image that is only looked at.
#[derive(Debug, Args)]
pub struct PathArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Path within the image, or inode:NUMBER
    #[arg(default_value = "/")]
    pub path: OsString,
}

/// Files in an image that are changed.
#[derive(Debug, Args)]
pub struct PathsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Paths within the image
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// A mount point.
#[derive(Debug, Args)]
pub struct MountPointArgs {
    /// Where an image is mounted
    pub mount_point: PathBuf,
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Where an image is mounted; or the image, if it is mounted at one place
    #[arg(value_name = "MOUNT_POINT")]
    pub mount: PathBuf,
}

const MOUNT_OPTIONS: &str = "\
Options for -o:
  ro, rw              read only, or not; a dirty journal is replayed, with ro in memory
  norecovery          with ro: do not replay a dirty journal in memory, show the image as it is on
                      disk, without what only the journal holds
  wsync               operations are durable when they return
  inode32             new files get inode numbers of 32 bits, for programs that know no larger ones
                      (EOVERFLOW): on images of more than 1 TiB they are made in the first of it
  logdev=DEVICE       device of an external journal
  cache=SIZE          memory for metadata (256M)
  commit=SECONDS      make everything durable this often (30; 0 for never)
  threads=N           threads that answer requests
  placement=client|scheduler   a client that is alone is answered on its own processor (client), or
                      where the scheduler puts the threads
  writeback, nowriteback   what programs write waits in the kernel's cache (the default), or each
                      write reports what became of it: docs/mounting.md has what it costs
  checkopen           the kernel asks before it opens a file, so that what is immutable, or only for
                      appends (chattr), is not opened to be written; two requests more a file
  discard, nodiscard  give what is freed back to the host, when it is durable: at each commit, at
                      syncs and at the unmount; or not (the default). 'xfskit admin trim' on the
                      mount point gives back all that is free
  larp=always|never   whether updates of attributes that take several transactions are logged by
                      intents, so that recovery finishes them (never); remount changes it
  attrpath=fast|general|intents    how attributes are updated, for comparison: as fast as possible;
                      without the fast path (as nofastpath); by an intent and a transaction each
  nowhiteout          log intents that are done in the same checkpoint
  noknownabsent       search for attributes that are known to be absent
  errortag=NAME[:NTH] for tests: a place fails when it is passed for the nth time; the names are
                      in docs/mounting.md
  allow_other, allow_root, auto_unmount    as for every FUSE mount
  dev, suid, exec, atime, dirsync and their opposites, nosymfollow
                      as for every mount, but nodev and nosuid unless dev and suid are given, for
                      root too
  remount             by mount(8): changes ro, rw, larp and those of the line before

umount and fusermount3 -u return a moment before the image is closed: the kernel does not wait for a FUSE server.
'xfskit umount' waits, and so does umount where xfskit is linked to /sbin/umount.fuse.xfskit.";

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(MOUNT_OPTIONS, examples::MOUNT))]
#[command(override_usage = "xfskit mount [OPTIONS] <IMAGE> <MOUNT_POINT>\n       xfskit mount --service")]
pub struct MountArgs {
    /// Image file or block device, or a part of a disk, as in disk.qcow2#3
    #[arg(required = false, required_unless_present = "service", default_value_if("service", IsPresent, "-"))]
    pub image: PathBuf,
    /// Where to mount it
    #[arg(required = false, required_unless_present = "service", default_value_if("service", IsPresent, "-"))]
    pub mount_point: PathBuf,
    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTS")]
    pub options: Vec<String>,
    /// Write warnings and errors to a file while mounted
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// The parent of a mount that does not stay in the foreground, or its server
    #[arg(long, hide = true)]
    pub server: bool,
    /// The server of a mount, whose parent has started it
    #[arg(long, hide = true)]
    pub server_process: bool,
    /// Serve a mount in a service of the system without files, devices and network: standard input is the socket of
    /// libfuse's fuservicemount3, which names image and folder, opens and mounts (docs/mounting.md)
    #[arg(long, conflicts_with_all = ["foreground", "options", "log_file", "server", "server_process"])]
    pub service: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Threads that work at once; as many as there are processors unless given
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Show at most so many faults; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
}

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    #[command(flatten)]
    pub paths: PathsArgs,
    /// Make missing parents too, and accept a directory that exists
    #[arg(short)]
    pub parents: bool,
    /// Permissions, octal
    #[arg(short, long, default_value = "755", value_parser = parse_octal)]
    pub mode: u16,
}

/// What `mknod` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeKind {
    /// Block device
    #[value(name = "b")]
    Block,
    /// Character device
    #[value(name = "c", alias = "u")]
    Char,
    /// Pipe
    #[value(name = "p")]
    Pipe,
    /// Socket
    #[value(name = "s")]
    Socket,
    /// Empty file
    #[value(name = "f")]
    File,
}

/// Arguments of `mknod`.
#[derive(Debug, Args)]
#[command(after_help = examples::MKNOD)]
pub struct MknodArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Path within the image
    pub path: OsString,
    /// What to make
    pub kind: NodeKind,
    /// Major device number
    pub major: Option<u32>,
    /// Minor device number
    pub minor: Option<u32>,
    /// Permissions, octal
    #[arg(short, long, default_value = "644", value_parser = parse_octal)]
    pub mode: u16,
}

/// Arguments of `touch`.
#[derive(Debug, Args)]
#[command(after_help = examples::TOUCH)]
pub struct TouchArgs {
    #[command(flatten)]
    pub paths: PathsArgs,
    /// Instead of now: @SECONDS since 1970, or YYYY-MM-DD[ HH:MM[:SS]][ ZONE], with a fraction if need be; the zone
    /// is that of TZ unless given as Z or as in +0100
    #[arg(short = 'd', long, value_name = "DATE", allow_hyphen_values = true, value_parser = crate::text::parse_time)]
    pub date: Option<xfskit::ondisk::Timestamp>,
    /// Do not make files
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Permissions of a new file, octal
    #[arg(short, long, default_value = "644", value_parser = parse_octal)]
    pub mode: u16,
}

/// Arguments of `ln`.
#[derive(Debug, Args)]
#[command(after_help = examples::LN)]
pub struct LnArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The existing file; with -s, what the symbolic link is to say
    pub target: OsString,
    /// The new name
    pub name: OsString,
    /// Make a symbolic link
    #[arg(short, long)]
    pub symbolic: bool,
    /// Replace what has the name, unless it is a directory
    #[arg(short, long)]
    pub force: bool,
}

/// Arguments of `mv`.
#[derive(Debug, Args)]
pub struct MvArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// What to move
    pub from: OsString,
    /// Where to; into it, if it is a directory
    pub to: OsString,
    /// Do not replace anything
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Exchange the two names
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    /// Treat the last path as the new name, never as a directory to put it in
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    #[command(flatten)]
    pub paths: PathsArgs,
    /// Remove directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ignore paths that do not exist
    #[arg(short, long)]
    pub force: bool,
    /// Give the space that becomes free back to the host: the image file takes less then
    #[arg(long)]
    pub discard: bool,
}

/// Arguments of `chmod`.
#[derive(Debug, Args)]
#[command(after_help = examples::CHMOD)]
pub struct ChmodArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Everything below directories too, but for symbolic links
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Octal, or as in u+w,go-rwx
    #[arg(allow_hyphen_values = true)]
    pub mode: crate::text::ModeChange,
    /// Paths within the image, or inode:NUMBER
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Arguments of `chown`.
#[derive(Debug, Args)]
#[command(after_help = examples::CHOWN)]
pub struct ChownArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Everything below directories too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Numbers: OWNER, OWNER:GROUP or :GROUP
    pub owner: crate::text::Owner,
    /// Paths within the image, or inode:NUMBER
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Arguments of `parents`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(LIVE_NOTES, examples::PATHS))]
pub struct ParentsArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Path within the image, or inode:NUMBER. Left out where the first operand is the path of a file on a mount of
    /// xfskit
    pub path: Option<OsString>,
    /// The inode of each directory and the name there, instead of paths
    #[arg(short, long)]
    pub inodes: bool,
}

/// Arguments of `path`.
#[derive(Debug, Args)]
#[command(after_help = examples::with(LIVE_NOTES, examples::PATH))]
pub struct InodeArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Inode number, or inode:NUMBER
    #[arg(value_parser = parse_inode)]
    pub inode: u64,
}

/// Parses an inode number, which may be written as for the commands that take paths.
fn parse_inode(text: &str) -> Result<u64, String> {
    text.strip_prefix("inode:").unwrap_or(text).parse().map_err(|_| {
        let instead = if text.starts_with('/') {
            format!("; 'xfskit parents IMAGE {text}' lists the names of the file at a path")
        } else {
            String::new()
        };
        format!("expected the number of an inode, as ls -i and stat show it{instead}")
    })
}

const LIVE_NOTES: &str = "\
Where the image is mounted by xfskit, name the mount point instead of the image: the server answers. Only root and the \
user who mounted it may ask.";

/// Commands for the journal.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print the journal: records, operations and what they log
    #[command(after_help = examples::LOG_PRINT)]
    Print {
        #[command(flatten)]
        image: ImageArgs,
        /// All records that can still be read, not only those that recovery would look at
        #[arg(short, long)]
        all: bool,
        /// By checkpoints instead of by records, each item with what recovery would make of it
        #[arg(short, long)]
        transactions: bool,
    },
    /// Replay a dirty journal, finish what it began, and close it in good order
    Replay(ImageArgs),
}

fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds".into())
}

fn parse_threads(text: &str) -> Result<std::num::NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a number of threads, 1 at least".into())
}

fn parse_octal(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("expected an octal number up to 7777".into()),
    }
}
