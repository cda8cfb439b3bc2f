//! The names by which the program can be called, besides its own. `mount` and `umount` call their helpers for the type
//! `fuse.xfskit` with arguments of a form of their own; those of xfsprogs are in [`crate::commands::xfsprogs`], that of
//! the process that reads headers is in [`crate::open::header`], and that of the one that becomes qemu-nbd in
//! [`crate::open::qemu`].
//!
//! ```text
//! mount.fuse.xfskit IMAGE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
//! xfskit IMAGE DIR -o OPTIONS                              by mount.fuse, which knows the program's name
//! umount.fuse.xfskit DIR [-nlfrv] [-N NAMESPACE] [-t TYPE]
//! ```

use crate::args::mount_helper::{HelperArgs, parse};
use crate::args::{MountArgs, MountSettings};
use crate::commands::xfsprogs;
use crate::commands::{self, umount};
use crate::open::header;
use crate::open::qemu;
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::Result;
use std::path::Path;

/// What to run if the program was called by another name than its own.
pub fn called_as() -> Option<fn(&Session) -> Result<()>> {
    let name = std::env::args_os().next()?;
    match Path::new(&name).file_name()?.to_str()? {
        "mount.fuse.xfskit" => Some(run_mount),
        "umount.fuse.xfskit" => Some(run_unmount),
        "mkfs.xfs" => Some(xfsprogs::mkfs),
        "fsck.xfs" => Some(xfsprogs::fsck),
        "xfs_info" => Some(xfsprogs::info),
        header::NAME => Some(|_| header::run()),
        qemu::NAME => Some(|_| qemu::run()),
        _ => None,
    }
}

fn run_mount(session: &Session) -> Result<()> {
    mount(session, parse(std::env::args_os().skip(1))?)
}

/// Mounts.
pub fn mount(session: &Session, args: HelperArgs) -> Result<()> {
    let [image, mount_point] = args.paths.as_slice() else {
        return Err(Usage("expected an image and a folder".into()).into());
    };
    if args.fake {
        // Does everything but the mount itself, so that a wrong line in fstab is reported.
        MountSettings::parse(&args.options)?;
        return Ok(());
    }
    let (image, mount_point) = (image.clone(), mount_point.clone());
    let options = args.options;
    commands::mount::run(
        session,
        &MountArgs {
            image,
            mount_point,
            foreground: false,
            options,
            log_file: None,
            server: false,
            server_process: false,
            service: false,
        },
    )
}

fn run_unmount(session: &Session) -> Result<()> {
    let args = parse(std::env::args_os().skip(1))?;
    let [mount_point] = args.paths.as_slice() else { return Err(Usage("expected a folder".into()).into()) };
    umount::run(session, mount_point)
}
