//! Arguments that say how trees come into images.

use clap::Args;
use std::path::PathBuf;
use xfskit_transfer::{IdRange, Platform};

/// Owners and labels of what is copied.
#[derive(Debug, Default, Args)]
pub struct OwnerArgs {
    /// Give files the SELinux labels that a file of contexts has for their paths in the image, as setfiles does;
    /// labels of the source are left out
    #[arg(long, value_name = "FILE")]
    pub file_contexts: Option<PathBuf>,
    /// Give COUNT users, from the number FROM on, the numbers from TO on; may be given several times. A user in no
    /// range is an error
    #[arg(long, value_name = "FROM:TO:COUNT", conflicts_with = "owner")]
    pub uid_map: Vec<IdRange>,
    /// As --uid-map, for groups
    #[arg(long, value_name = "FROM:TO:COUNT", conflicts_with = "owner")]
    pub gid_map: Vec<IdRange>,
}

/// How a tree is changed on its way into an image.
#[derive(Debug, Default, Args)]
pub struct SourceArgs {
    /// Leave extended attributes out, ACLs among them
    #[arg(long)]
    pub no_xattrs: bool,
    #[command(flatten)]
    pub owners: OwnerArgs,
    /// Take owners, permissions, times and attributes of single paths from a file in the format of mtree, and make
    /// the directories, links and devices in it that the source lacks
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
}

/// How layers are taken.
#[derive(Debug, Default, Args)]
pub struct LayerArgs {
    /// Treat files named .wh.NAME and .wh..wh..opq as the layers of container images do: they remove what is there
    /// from sources before. Sources with oci: are always treated so
    #[arg(long)]
    pub whiteouts: bool,
    /// The platform of a source with oci: that is there for several, as in linux/arm64
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
}
