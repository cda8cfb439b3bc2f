//! Arguments of the commands that list and find files.

use super::ReadArgs;
use clap::Args;
use std::ffi::OsString;

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
    /// One line for each entry, with its attributes; times are those of the zone in TZ, with their distance from UTC
    #[arg(short)]
    pub long: bool,
    /// Show inode numbers
    #[arg(short)]
    pub inode: bool,
    /// Show . and .. too; other names that begin with a dot are always shown
    #[arg(short, long)]
    pub all: bool,
    /// Show directories themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    pub directory: bool,
    /// Everything below directories too; with --json a line for each entry, with its path
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// With -l: sizes with units
    #[arg(short, long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Paths within the image, or inode:NUMBER; with --json and several, a list of what was found, each with its path
    #[arg(default_value = "/")]
    pub paths: Vec<OsString>,
}
