//! Arguments of `xattr`.

use super::examples;
use super::image::{ImageArgs, PathArgs, ReadArgs};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use xfskit_engine::{AttrLogging, Volume};

/// Whether a command's changes of attributes are logged by intents.
#[derive(Debug, Args)]
pub struct LoggingArgs {
    /// Whether changes that take several transactions are logged, so that after a crash they are finished instead of
    /// left out: always or never [default: never]
    #[arg(long, value_name = "always|never", value_parser = super::mount_options::parse_logging)]
    pub larp: Option<AttrLogging>,
}

impl LoggingArgs {
    /// Makes it so for an image that is open.
    pub fn apply(&self, filesystem: &Volume) {
        if let Some(logging) = self.larp {
            filesystem.set_attr_logging(logging);
        }
    }
}

/// Commands for attributes.
#[derive(Debug, Subcommand)]
pub enum XattrCommand {
    /// List the names of all attributes
    List(PathArgs),
    /// Show the value of an attribute
    Get {
        #[command(flatten)]
        read: ReadArgs,
        /// Path within the image, or inode:NUMBER
        path: OsString,
        /// Name, as in user.colour
        name: String,
        /// Print it encoded instead of as it is
        #[arg(short, long)]
        encoding: Option<crate::output::dump::Encoding>,
    },
    /// Make or replace an attribute
    #[command(after_help = examples::XATTR_SET)]
    Set {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        logging: LoggingArgs,
        /// Path within the image, or inode:NUMBER
        path: OsString,
        /// Name, as in user.colour
        name: String,
        /// Value: text, 0x and hex digits, or 0s and base64
        #[arg(required_unless_present = "value_file")]
        value: Option<OsString>,
        /// Take the value from a file as it is; "-" for standard input
        #[arg(long, value_name = "FILE", conflicts_with = "value")]
        value_file: Option<PathBuf>,
        /// Fail if it exists
        #[arg(long)]
        create: bool,
        /// Fail if it does not exist
        #[arg(long, conflicts_with = "create")]
        replace: bool,
    },
    /// Remove attributes
    Rm {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        logging: LoggingArgs,
        /// Path within the image, or inode:NUMBER
        path: OsString,
        /// Names
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Print attributes as getfattr --dump does
    #[command(after_help = examples::XATTR_DUMP)]
    Dump {
        #[command(flatten)]
        path: PathArgs,
        /// Everything below it too
        #[arg(short = 'R', long)]
        recursive: bool,
        /// Only names with this prefix; "-" for all. Without this option, those that begin with user., and how many
        /// others there are is printed to standard error
        #[arg(short = 'm', long = "match", value_name = "PREFIX")]
        prefix: Option<String>,
        /// Encode all values in one way
        #[arg(short, long)]
        encoding: Option<crate::output::dump::Encoding>,
    },
    /// Give files the SELinux labels that a file of contexts has for their paths
    #[command(after_help = examples::XATTR_LABEL)]
    Label {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        logging: LoggingArgs,
        /// Paths within the image, each with everything below it
        #[arg(default_value = "/")]
        paths: Vec<OsString>,
        /// The file of contexts, as setfiles reads it
        #[arg(long, value_name = "FILE")]
        file_contexts: PathBuf,
        /// Print each path whose label is changed, and its new label
        #[arg(short, long)]
        verbose: bool,
    },
    /// Set attributes from what dump or getfattr --dump printed, all or nothing for each file
    Restore {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        logging: LoggingArgs,
        /// The dump; "-" for standard input
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Directory within the image that the dump's paths start from
        #[arg(long, default_value = "/")]
        root: OsString,
    },
}
