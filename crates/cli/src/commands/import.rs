//! `xfskit import`: trees into a directory of an image that exists.
//!
//! Everything that is named is looked at before the image is opened for writing. Within one source the files that are
//! complete stay if a later one cannot be read, as with `cp`.

use super::copy::{PrivilegeLoss, report_losses};
use super::trees::{Reads, Trees, adjust, believe_pretender, folders};
use crate::args::ImportArgs;
use crate::interrupt::{self, Interrupted};
use crate::open::edit::edit_after;
use crate::open::paths::{path_of_dir, resolve};
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::{CommandError, Context, Result};
use crate::output::progress::CopyBar;
use xfskit_device::share_storage;
use xfskit_engine::{Environment, Error, LastLink, SystemEnvironment, Volume};
use xfskit_transfer::{ImageSink, Losses, transfer};

/// Runs the command.
pub fn run(session: &Session, args: &ImportArgs) -> Result<()> {
    believe_pretender(folders(&args.from).iter().map(std::path::PathBuf::as_path))?;
    session.before_opening()?;
    let trees = Trees::find(session, &args.from, &args.layers, Reads::Once, &args.image.image)?;
    // What the options name is read before the image is opened, too.
    adjust(&args.source, args.owner, b"")?;
    let own = std::fs::metadata(&args.image.image).ok();
    let is_own = |path: &std::path::PathBuf| {
        std::fs::metadata(path).is_ok_and(|data| own.as_ref().is_some_and(|own| share_storage(own, &data)))
    };
    if let Some(path) = args.from.iter().find(|path| is_own(path)) {
        return Err(Usage(format!("{}: an image cannot be copied into itself", path.display())).into());
    }
    interrupt::watch()?;
    let losses = edit_after(
        session,
        &args.image,
        |filesystem| find_dir(filesystem, args).map(drop),
        |filesystem| {
            args.logging.apply(filesystem);
            import(session, filesystem, args, &trees)
        },
    )?;
    report_losses(session, &losses, PrivilegeLoss::IsError)
}

fn find_dir(filesystem: &Volume, args: &ImportArgs) -> Result<xfskit_ondisk::InodeNumber> {
    let stat = resolve(filesystem, &args.dir, LastLink::Follow).at(&args.dir)?;
    if !stat.file_type.is_dir() {
        return Err(CommandError::from(Error::NotADirectory).at(&args.dir));
    }
    Ok(stat.inode)
}

fn import(session: &Session, filesystem: &Volume, args: &ImportArgs, trees: &Trees) -> Result<Losses> {
    let dir = find_dir(filesystem, args)?;
    let adjust = adjust(&args.source, args.owner, &path_of_dir(filesystem, dir)?)?;
    let written: Vec<_> = std::fs::metadata(&args.image.image).into_iter().collect();
    // A source that a signal has ended says so as an error of its stream.
    let ended = |error: CommandError| if interrupt::came() { Interrupted.into() } else { error };
    let mut source = trees.open(&written, &adjust, SystemEnvironment.now()).map_err(ended)?;
    let mut sink = ImageSink::new(filesystem, dir)?;
    if let Some(whiteouts) = trees.layers() {
        sink = sink.with_layers(whiteouts);
    }
    transfer(&mut *source, &mut sink, &adjust, &CopyBar::new(&session.output, "importing"))
        .map_err(|error| ended(error.into()))?;
    Ok(source.losses())
}
