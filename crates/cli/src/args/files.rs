//! Arguments of commands that change names and properties of files.

use super::examples;
use super::image::{ImageArgs, PathsArgs, parse_octal};
use crate::output::text::parse_time;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

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
    #[arg(short = 'd', long, value_name = "DATE", allow_hyphen_values = true, value_parser = parse_time)]
    pub date: Option<xfskit_ondisk::Timestamp>,
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
    pub mode: crate::output::text::ModeChange,
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
    pub owner: crate::output::text::Owner,
    /// Paths within the image, or inode:NUMBER
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}
