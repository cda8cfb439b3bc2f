//! The arguments.

mod admin;
mod apart;
#[cfg(feature = "bench")]
mod bench;
mod cli;
pub mod completion;
pub mod container;
mod contents;
pub mod copy_operand;
mod examples;
mod files;
pub mod find_refused;
pub mod find_words;
pub mod glob;
mod help;
mod image;
mod known_mount_options;
mod list;
pub mod mistakes;
mod mkfs;
pub mod mkfs_config;
mod mount;
pub mod mount_helper;
mod mount_options;
mod parse;
mod source;
mod xattr;

pub use admin::{
    AdminCommand, CheckArgs, GrowArgs, InfoArgs, LabelArgs, LogCommand, NewSize, TrimArgs, UuidArgs, UuidChange,
};
#[cfg(feature = "bench")]
pub use bench::{BenchArgs, CrashTestArgs};
pub use cli::{Cli, Command};
pub use contents::{CatArgs, CloneArgs, CpArgs, DfArgs, DuArgs, ExportArgs, WriteArgs};
pub use files::{ChmodArgs, ChownArgs, LnArgs, MkdirArgs, MknodArgs, MvArgs, NodeKind, RmArgs, TouchArgs};
pub use help::command;
pub use image::{ImageArgs, MountPointArgs, PathArgs, ReadArgs};
#[cfg(test)]
pub use list::with_expression;
pub use list::{FindArgs, InodeArgs, LsArgs, ParentsArgs, StatArgs};
pub use mkfs::{ImportArgs, MkfsArgs, Overwrite, Placement, ProtoArgs, Space};
pub use mount::MountArgs;
pub use mount_options::{MountSettings, is_ignored};
#[cfg(feature = "bench")]
pub use mount_options::{error_tag, parse_engine};
pub use parse::parse;
pub use source::{LayerArgs, OwnerArgs, SourceArgs};
pub use xattr::XattrCommand;
