//! Arguments of `info` and `admin`.

use super::examples;
use super::image::{ImageArgs, LIVE_NOTES, ReadArgs, parse_threads};
use clap::{Args, Subcommand};

/// Arguments of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Print variables for the shell, with the names and values of blkid, and XFS_... for what it does not have
    #[arg(long, conflicts_with = "json")]
    pub export: bool,
}

/// What an image needs once it exists.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Grow an image, as xfs_growfs does, without a mount
    #[command(after_help = examples::with(GROW_NOTES, examples::GROW))]
    Grow(GrowArgs),
    /// Show or change the label, of an image or a mount
    #[command(after_help = examples::with(LIVE_NOTES, examples::LABEL))]
    Label(LabelArgs),
    /// Show or change the UUID
    #[command(after_help = examples::with(UUID_NOTES, examples::UUID))]
    Uuid(UuidArgs),
    /// Give free space back to the host, as fstrim does, of an image or a mount
    #[command(after_help = examples::with(TRIM_NOTES, examples::TRIM))]
    Trim(TrimArgs),
}

const GROW_NOTES: &str = "\
The journal is replayed first. An image file is made longer where the size asks for it; the size of a block device or \
of an export of a server is its limit. A rest of fewer than 64 blocks stays unused, as with xfs_growfs. If this is cut \
off, the image has its old size or the new one. An image does not become smaller.";

const UUID_NOTES: &str = "\
The journal is replayed first. The metadata keeps the UUID that the image was made with, as after xfs_admin -U; only \
the superblocks and the end of the journal are written. If this is cut off, the image has its old UUID or the new one.";

const TRIM_NOTES: &str = "\
Holes are punched into an image file; a block device and an export of a server are told. On a mount, name the mount \
point: fstrim cannot ask through FUSE. Only root and the user who mounted it may.";

/// Arguments of `admin grow`.
#[derive(Debug, Args)]
pub struct GrowArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// New size, as in 10G, or by how much it is to grow, as in +500M; all that the file or device has unless given
    #[arg(value_name = "SIZE", value_parser = parse_new_size)]
    pub size: Option<NewSize>,
}

/// The size that an image is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// So many bytes.
    Bytes(u64),
    /// So many bytes more than it has.
    More(u64),
}

fn parse_new_size(text: &str) -> Result<NewSize, String> {
    match text.strip_prefix('+') {
        Some(more) => crate::output::text::parse_size(more).map(NewSize::More),
        None => crate::output::text::parse_size(text).map(NewSize::Bytes),
    }
}

/// Arguments of `admin label`.
#[derive(Debug, Args)]
pub struct LabelArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// New label, at most 12 bytes; "" takes the label away
    #[arg(value_parser = parse_label)]
    pub label: Option<String>,
}

fn parse_label(text: &str) -> Result<String, String> {
    if text.len() > 12 { Err("a label has at most 12 bytes".into()) } else { Ok(text.into()) }
}

/// Arguments of `admin uuid`.
#[derive(Debug, Args)]
pub struct UuidArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// A UUID; random; nil, for zeros; restore, for the one that the image was made with; or rewrite, which changes no
    /// UUID and makes the copies of the superblock agree with the first
    #[arg(value_parser = parse_uuid)]
    pub uuid: Option<UuidChange>,
}

/// What becomes of the UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UuidChange {
    /// Another one.
    To(xfskit_engine::NewUuid),
    /// The same, in all copies of the superblock.
    Rewrite,
}

fn parse_uuid(text: &str) -> Result<UuidChange, String> {
    use xfskit_engine::NewUuid;
    Ok(UuidChange::To(match text {
        "random" | "generate" => NewUuid::Random,
        "nil" => NewUuid::Nil,
        "restore" => NewUuid::Restored,
        "rewrite" => return Ok(UuidChange::Rewrite),
        text => {
            let uuid = uuid::Uuid::parse_str(text);
            NewUuid::Given(*uuid.map_err(|_| "expected a UUID, random, nil, restore or rewrite")?.as_bytes())
        }
    }))
}

/// Arguments of `admin trim`.
#[derive(Debug, Args)]
pub struct TrimArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Overwrite free space with zeros instead, for programs that leave zeros out of a copy
    #[arg(long)]
    pub zero: bool,
    /// Leave out free extents of less than that, as in 64k
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true)]
    #[arg(value_parser = crate::output::text::parse_size)]
    pub min: u64,
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
