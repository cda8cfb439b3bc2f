//! The options of the whole program, and its commands.

use super::admin::{AdminCommand, CheckArgs, InfoArgs, LogCommand};
#[cfg(feature = "bench")]
use super::bench::{BenchArgs, CrashTestArgs};
use super::contents::{CatArgs, CloneArgs, CpArgs, DfArgs, DuArgs, ExportArgs, WriteArgs};
use super::examples;
use super::files::{ChmodArgs, ChownArgs, LnArgs, MkdirArgs, MknodArgs, MvArgs, RmArgs, TouchArgs};
use super::image::{LIVE_NOTES, MountPointArgs, PathArgs};
use super::list::{FindArgs, InodeArgs, LsArgs, ParentsArgs, StatArgs};
use super::mkfs::{ImportArgs, MkfsArgs};
use super::mount::{MountArgs, UmountArgs};
use super::xattr::XattrCommand;
use crate::output::exit::{CHECK_EXIT_CODES, EXIT_CODES};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The heading of options that every command has.
pub const EVERY_COMMAND: &str = "Options of every command";

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
    #[arg(long, global = true, help_heading = EVERY_COMMAND)]
    pub json: bool,
    /// Wait up to so many seconds, fractions allowed, while another program uses the image, or the mount that is to be
    /// unmounted. `write`, and `cp` of /dev/stdin, wait at least 3 seconds when the input is a pipe
    #[arg(long, global = true, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    #[arg(hide_default_value = true, help_heading = EVERY_COMMAND)]
    pub wait: std::time::Duration,
    /// Write to an image on an NBD server (nbd://HOST/EXPORT): you have seen to it that no other client writes. NBD has
    /// no means for that; docs/network.md says what has
    #[arg(long, global = true, help_heading = EVERY_COMMAND)]
    pub others_kept_out: bool,
    /// Start no other program to read a virtual disk. Without this, qemu-nbd reads formats that xfskit does not, where
    /// it is installed: only the files of that disk, and without network
    #[arg(long, global = true)]
    pub no_helpers: bool,
    /// Keep all rights. Without this, xfskit gives up what it does not need before it reads an image: other files,
    /// other programs, the network
    #[arg(long, global = true, help_heading = EVERY_COMMAND)]
    pub no_sandbox: bool,
    /// Say nothing of what went as it should, such as a journal that was replayed
    #[arg(short, long, global = true, help_heading = EVERY_COMMAND)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
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

fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds".into())
}
