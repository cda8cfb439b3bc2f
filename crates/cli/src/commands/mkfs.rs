//! `xfskit mkfs`.

use super::copy::{PrivilegeLoss, report_losses};
use super::fill;
use super::info::summary_of;
use super::trees::{believe_pretender, folders};
use crate::args::mkfs_config as config;
use crate::args::{MkfsArgs, Placement};
use crate::open::new_file::sync_names;
use crate::open::overwrite::{Existing, choose_part, open_part, verify_existing};
use crate::open::policy;
use crate::open::session::Session;
use crate::operand::is_remote;
use crate::output::causes::Usage;
use crate::output::error::{CommandError, Context, Result};
use crate::output::screen::{say, say_part};
use crate::output::text::parse_size;
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{BlockDevice, FileDevice, share_storage};
use xfskit_engine::{Caller, Environment, MountOptions, SetAttr, SystemEnvironment, Volume};
use xfskit_mkfs::{Options, Reader, make, set_aside, verify};
use xfskit_ondisk::Superblock;

/// The sector size of a file.
const FILE_SECTOR_BYTES: usize = 512;

/// Runs the command.
pub fn run(session: &Session, args: &MkfsArgs, as_json: bool) -> Result<()> {
    let options = options(args)?;
    verify_source(args)?;
    make_image(session, args, &options, as_json)
}

/// Makes the image that the arguments ask for, with options that are already known.
pub fn make_image(session: &Session, args: &MkfsArgs, options: &Options, as_json: bool) -> Result<()> {
    let folders = folders(args.from.iter().chain(args.proto.as_ref().map(|proto| &proto.path)));
    believe_pretender(folders.iter().map(PathBuf::as_path))?;
    session.sandbox.plan(policy::of_mkfs(args, options));
    if args.from.is_empty() && args.proto.is_none() {
        print(session, args, &make_empty(session, args, options)?, as_json)?;
        hint_at_owner(session, args);
        return Ok(());
    }
    let (superblock, losses) = fill::run(session, args, options)?;
    print(session, args, &superblock, as_json)?;
    report_losses(session, &losses, PrivilegeLoss::IsError)
}

/// Options of a source make no sense without one.
fn verify_source(args: &MkfsArgs) -> Result<(), Usage> {
    let source = &args.source;
    let given = [
        ("--no-xattrs", source.no_xattrs),
        ("--file-contexts", source.owners.file_contexts.is_some()),
        ("--uid-map", !source.owners.uid_map.is_empty()),
        ("--gid-map", !source.owners.gid_map.is_empty()),
        ("--manifest", source.manifest.is_some()),
        ("--whiteouts", args.layers.whiteouts),
        ("--platform", args.layers.platform.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given && args.from.is_empty()) {
        Some((option, _)) => Err(Usage(format!("{option} is for what --from copies into the image"))),
        None => Ok(()),
    }
}

fn make_empty(session: &Session, args: &MkfsArgs, options: &Options) -> Result<Superblock> {
    let now = match fill::source_date_epoch()? {
        Some(epoch) => epoch,
        None => SystemEnvironment.now(),
    };
    let log_device = options.log_device.as_deref();
    let open_log = |path| Ok::<_, CommandError>((path, Existing::open(session, path)?));
    let (first, last) = if log_device.is_some_and(is_remote) { (None, log_device) } else { (log_device, None) };
    let log = first.map(open_log).transpose()?;
    let look_at = |confined| move |(path, log): (&Path, Existing)| log.into_device(confined, path, args.overwrite());
    if let Some(part) = open_part(session, args)? {
        let log = last.map(open_log).transpose()?.or(log);
        let confined = session.confine()?;
        let log = log.map(look_at(confined)).transpose()?;
        let part = choose_part(confined, args.image(), part, args.overwrite())?;
        let made = make(&part, log.as_deref(), options, now).map_err(CommandError::from).and_then(|superblock| {
            own_root(args, options, part, log)?;
            Ok(superblock)
        });
        return made.with_context(|| args.image().display().to_string());
    }
    let held = args.image().exists().then(|| session.open_device(args.image(), args.access())).transpose()?;
    let log = last.map(open_log).transpose()?.or(log);
    let confined = session.confine()?;
    let log = log.map(look_at(confined)).transpose()?;
    let (device, made) = open_target(args, options, held, log.as_deref())?;
    let own = device.metadata().with_context(|| args.image().display().to_string())?;
    let device = Arc::new(device);
    let result = make(&device, log.as_deref(), options, now).map_err(CommandError::from).and_then(|superblock| {
        own_root(args, options, device, log)?;
        if made {
            sync_names(args.image().parent().unwrap_or(args.image()), &File::open(args.image())?)?;
        }
        Ok(superblock)
    });
    let is_own = || std::fs::symlink_metadata(args.image()).is_ok_and(|now| share_storage(&now, &own));
    if result.is_err() && made && is_own() {
        // A file that this command has made contains nothing worth keeping. The first error is the one to report.
        let _ = std::fs::remove_file(args.image());
    }
    result.with_context(|| args.image().display().to_string())
}

/// Sets the owner of the root directory, if one was given.
fn own_root(
    args: &MkfsArgs,
    options: &Options,
    device: Arc<dyn BlockDevice>,
    log: Option<Arc<dyn BlockDevice>>,
) -> Result<()> {
    let Some(owner) = args.owner else { return Ok(()) };
    let env = fill::environment(options)?;
    let filesystem = Volume::open_in(device, log, MountOptions::default(), env)?;
    let change = SetAttr { uid: owner.uid, gid: owner.gid, ..SetAttr::default() };
    filesystem.set_attr(filesystem.root(), &change, &Caller::root())?;
    Ok(filesystem.unmount()?)
}

/// The kernel checks permissions on a mount, so an ordinary user could make no file in an image that belongs to root.
fn hint_at_owner(session: &Session, args: &MkfsArgs) {
    let uid = rustix::process::geteuid();
    if args.owner.is_none() && !args.quiet && args.placement == Placement::Replaces && !uid.is_root() {
        let own = format!("--owner {}:{}", uid.as_raw(), rustix::process::getegid().as_raw());
        session
            .messages()
            .report(&format!("the root directory of the image belongs to root; {own} would make it yours"));
    }
}

fn print(session: &Session, args: &MkfsArgs, superblock: &Superblock, as_json: bool) -> Result<()> {
    if args.quiet {
        return Ok(());
    }
    if as_json {
        let raw = superblock.raw();
        let uuid = uuid::Uuid::from_bytes(raw.uuid).to_string();
        say!(
            session.output,
            "{:#}",
            json!({ "uuid": uuid, "blocks": raw.data_blocks.get(), "ag_count": raw.ag_count.get() })
        );
    } else {
        say_part!(session.output, "{}", summary_of(&args.image().display().to_string(), superblock));
    }
    Ok(())
}

fn options(args: &MkfsArgs) -> Result<Options> {
    let mut options = Options { allow_small: args.small, ..Options::default() };
    let readers: Vec<Reader> =
        args.readers.iter().map(|name| name.parse()).collect::<Result<_, String>>().map_err(Usage)?;
    readers.iter().for_each(|reader| options.lower_to(reader));
    let sections = [
        ('b', &args.block),
        ('d', &args.data),
        ('i', &args.inode),
        ('l', &args.log),
        ('m', &args.metadata),
        ('n', &args.naming),
        ('s', &args.sector),
    ];
    for (section, lists) in sections {
        for list in lists {
            options.apply(section, list)?;
        }
    }
    if let Some(list) = &args.config {
        for (section, option) in config::read(&config::path_of(list)?)? {
            options.apply(section, &option)?;
        }
    }
    if let Some(label) = &args.label {
        options.set_label(label)?;
    }
    readers.iter().try_for_each(|reader| options.verify_for(reader))?;
    options.uuid.get_or_insert_with(|| *uuid::Uuid::new_v4().as_bytes());
    Ok(options)
}

/// The device, and whether this command has made its file; `held` is the file that exists. With invalid options nothing
/// is made, cut or overwritten.
fn open_target(
    args: &MkfsArgs,
    options: &Options,
    held: Option<FileDevice>,
    log: Option<&dyn BlockDevice>,
) -> Result<(FileDevice, bool)> {
    if args.size.as_deref() == Some("auto") {
        return Err(Usage("--size auto: only with --from, whose files say how much that is".into()).into());
    }
    let size = args.size.as_deref().map(parse_size).transpose().map_err(Usage)?;
    // The size of the data section is also that of a new file.
    let size = size.or_else(|| options.data_bytes().filter(|_| held.is_none()));
    let log_bytes = log.map(BlockDevice::size_bytes);
    let fits = |bytes: u64, sector_bytes: usize| {
        verify(options, bytes, sector_bytes, log_bytes).with_context(|| args.image().display().to_string())
    };
    match (held, size) {
        (None, None) => Err(Usage(format!("{}: no such file; --size makes one", args.image().display())).into()),
        (None, Some(size)) => {
            fits(size, FILE_SECTOR_BYTES)?;
            Ok((FileDevice::create_new(args.image(), size)?, true))
        }
        (Some(mut device), size) => {
            verify_existing(args.image(), &device, args.overwrite(), size)?;
            if let Some(size) = size
                && std::fs::metadata(args.image()).is_ok_and(|data| data.is_file())
            {
                fits(size, device.hints().sector_bytes)?;
                let made = device.make_zeros_after(size, |device| set_aside(device, log, options));
                made.with_context(|| format!("{}: the old contents stay", args.image().display()))?;
            }
            Ok((device, false))
        }
    }
}
