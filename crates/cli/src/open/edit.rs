//! Changes of images.

use super::rescue::Warnings;
use super::session::Session;
use super::volume::{open, open_any, open_log_with, options_to_write};
use crate::args::ImageArgs;
use crate::interrupt;
use crate::output::error::{Context, Kind, Result};
use xfskit_device::Access;
use xfskit_engine::{Error, MountOptions, Volume};

/// Opens an image, runs an action, and closes the image: what the action did is complete when this returns. A signal
/// does not end the program before that; an action of many steps checks between them for a signal.
///
/// An action that would fail must not change the image. Opening the image would replay a dirty journal, so with one the
/// action is tried on the recovered image in memory first.
///
/// # Errors
/// As opening; those of `action`; those of closing.
pub fn edit<T>(session: &Session, args: &ImageArgs, action: impl Fn(&Volume) -> Result<T>) -> Result<T> {
    edit_with(session, args, options_to_write(), action)
}

/// As [`edit`], with other options than [`options_to_write`].
///
/// # Errors
/// As [`edit`].
pub fn edit_with<T>(
    session: &Session,
    args: &ImageArgs,
    options: MountOptions,
    action: impl Fn(&Volume) -> Result<T>,
) -> Result<T> {
    interrupt::watch()?;
    rehearse(session, args, |filesystem| action(filesystem).map(drop))?;
    let filesystem = open(session, &args.image, args.logdev.as_deref(), options)?;
    run_and_close(args, filesystem, &action)
}

/// As [`edit`], for an action that is too expensive to be run twice: `look` checks whether it can be done.
///
/// # Errors
/// As [`edit`]; those of `look`.
pub fn edit_after<T>(
    session: &Session,
    args: &ImageArgs,
    look: impl FnOnce(&Volume) -> Result<()>,
    action: impl FnOnce(&Volume) -> Result<T>,
) -> Result<T> {
    interrupt::watch()?;
    rehearse(session, args, look)?;
    let filesystem = open(session, &args.image, args.logdev.as_deref(), options_to_write())?;
    run_and_close(args, filesystem, action)
}

fn run_and_close<T>(args: &ImageArgs, filesystem: Volume, action: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let result = action(&filesystem);
    let closed = filesystem.unmount();
    let result = result?;
    closed.with_context(|| format!("{}: closing the image", args.image.display()))?;
    Ok(result)
}

/// If the journal is dirty, runs `look` on the recovered image in memory. An error of this recovery is ignored here,
/// since opening the image itself reports it.
fn rehearse(session: &Session, args: &ImageArgs, look: impl FnOnce(&Volume) -> Result<()>) -> Result<()> {
    let device = open_any(session, &args.image, Access::Read, Warnings::Left)?.device;
    let open_log = |path| open_log_with(session, path, Access::Read, Warnings::Left);
    let log_device = args.logdev.as_deref().map(open_log).transpose()?;
    let Ok(recovered) = Volume::recover_in_memory(device, log_device) else { return Ok(()) };
    if recovered.report.is_none() {
        return Ok(());
    }
    let opened = match recovered.log_device {
        Some(log) => Volume::open_with_log(recovered.device, log, MountOptions::default()),
        None => Volume::open(recovered.device, MountOptions::default()),
    };
    let Ok(filesystem) = opened else { return Ok(()) };
    match look(&filesystem) {
        // The changes need more memory than is allowed.
        Err(error) if matches!(error.cause(), Some(Error::Io { .. } | Error::Shutdown(_))) => Ok(()),
        Err(error) if matches!(error.kind(), Kind::Several(failures) if failures.are_partial()) => Ok(()),
        result => result,
    }
}
