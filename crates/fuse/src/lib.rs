//! A FUSE server over [`xfskit_engine::Volume`]: it translates the kernel's requests, and does nothing else.
//!
//! ```text
//! Session::mount ──▶ mounted; the kernel's requests wait
//! Session::run   ──▶ threads answer them until the mount is unmounted; then the image is closed in good order
//! Unmounter      ──▶ unmounts from a signal handler's thread
//! Mounting       ──▶ mounts for a server in another process, which is a Serving: it needs no right to mount
//! serve          ──▶ answers over a connection that the caller has made, without a mount of its own
//! ```
//! - Requests run on several threads, each with its own queue to the kernel; none waits for one
//!   that waits for the device (docs/design/fuse.md).
//! - The kernel is the only way in while the image is mounted, so what it caches (names, attributes, absent names,
//!   directory listings) stays right without a time limit.
//! - Permissions and ACLs are checked by the kernel (`default_permissions`); the engine keeps ACLs and modes consistent
//!   with each other.
//! - Each look-up that the kernel remembers is a reference to the inode, so that a removed file that is open is freed
//!   only when it is closed.
//! - What no system call through FUSE tells (figures of the mount, paths of a file, the superblock) is the value of
//!   attributes that no listing shows, see [`STATS_XATTR`] and [`PATHS_XATTR`].
//!
//! An unmount is complete when [`Session::run`] returns, a moment after `umount` does: the kernel does not wait for the
//! server of a FUSE mount that is not a block device. A program that opens the image before that finds it locked;
//! `xfskit umount`, and `umount` where its helper is installed, wait for the server.
#![forbid(unsafe_code)]

mod attach;
mod attributes;
mod cached;
mod caller;
mod clock;
mod contents;
mod convert;
mod ending;
mod error;
mod flags;
mod handler;
mod ioctls;
mod mountinfo;
mod mounting;
mod options;
mod place;
mod privileges;
mod read_ahead;
mod readdir;
mod server;
mod session;
mod stats;
mod sync_group;
mod unmount;
mod unused;
mod virtual_xattrs;

pub use attach::{Attached, attach};
pub use clock::KernelClock;
pub use ending::{Ending, Watch};
pub use error::MountError;
pub use mountinfo::{MountEntry, MountsOf, is_mounted, mount_around, mount_at, mount_of_root, mounts_of};
pub use mounting::Mounting;
pub use options::{KernelOption, Opens, Options, WriteCache, features};
pub use place::{unmount, unmount_entry};
pub use session::{Serving, Session, serve};
pub use unmount::{Served, Unmounted, Unmounter};
pub use virtual_xattrs::{
    LARP_XATTR, PARENTS_XATTR, PATHS_XATTR, STATS_XATTR, SUPERBLOCK_XATTR, inode_at, make_durable, set_label, trim,
};
pub use xfskit_fuse_session as protocol;
