//! `xfskit mount --service`: serves one mount in a service of the system that has no files, no devices and no network.
//! `fuservicemount3` of libfuse, which the user has started, opens the image and mounts; docs/design/sandbox.md has the
//! processes.
//!
//! ```text
//! accept ─▶ arguments ─▶ files are opened by the helper ─▶ sandbox ─▶ image ─▶ the helper mounts ─▶ serve
//! ```

mod helper;
mod packet;

use super::process::abort_on_panic;
use crate::args::MountSettings;
use crate::args::mount_helper::parse;
use crate::open::policy;
use crate::open::session::Session;
use crate::open::volume::mount_over;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use crate::output::screen::{Messages, ServerLog};
use helper::{Helper, MountRequest, Request};
use rustix::fs::OFlags;
use rustix::mount::MountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError};
use xfskit_disk::{DiskError, Disks, Operand, Unnamed, Unread};
use xfskit_engine::Volume;
use xfskit_fuse::{KernelOption, MountError, Options, Serving};

/// The device of which each thread gets a descriptor of its own.
const FUSE: &str = "/dev/fuse";

/// Serves the mount that the program at standard input asks for.
pub(super) fn run(session: &Session) -> Result<()> {
    abort_on_panic();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_target(false).without_time();
    log.with_ansi(false).log_internal_errors(false).with_writer(ServerLog).init();
    // A pair of sockets is made for them, which the sandbox would forbid.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals")?;
    let (helper, request) = Helper::accept().context("the program that mounts")?;
    match mount(session, &helper, request) {
        Ok((serving, _disks)) => {
            let (end, messages) = (serving.end(), session.messages());
            std::thread::spawn(move || close_on_signal(messages, signals, || Ok(end.close()?)));
            // It has mounted, and has no part in what follows.
            let _ = helper.bye(0);
            drop(helper);
            Ok(serving.run()?)
        }
        Err(error) => {
            // What the helper prints is that this one has the reason.
            let _ = helper.bye(error.code());
            Err(error)
        }
    }
}

/// Closes the image, since this process cannot unmount: it does not see the mount.
fn close_on_signal(messages: Messages, mut signals: Signals, close: impl FnOnce() -> Result<()>) {
    if signals.forever().next().is_none() {
        return;
    }
    let code = close().map_or_else(
        |error| {
            messages.report(&error.to_string());
            error.code()
        },
        |()| 0,
    );
    std::process::exit(code.into());
}

/// Opens the image and has it mounted. The disks have the locks of the image.
fn mount(session: &Session, helper: &Helper, request: Request) -> Result<(Serving<Volume>, Vec<Disks>)> {
    let args = parse(request.arguments.into_iter().skip(1))?;
    let [image, mount_point] = args.paths.as_slice() else {
        return Err(Usage("expected an image and a folder".into()).into());
    };
    let settings = MountSettings::parse(&args.options)?;
    verify(image, &settings)?;
    if !settings.no_sandbox {
        session.sandbox.plan(policy::of_server([]));
    }
    let devices = (0..settings.fuse.session().threads).map(|_| helper.open(FUSE.as_ref(), OFlags::RDWR));
    let devices = devices.map(|device| Ok(device?.into())).collect::<io::Result<Vec<OwnedFd>>>().context(FUSE)?;
    let access = if settings.engine.read_only { Access::Read } else { Access::Write };
    let log = settings.log_device.as_deref().map(|path| open(helper, path, access)).transpose()?;
    let files = open(helper, image, access)?;
    let confined = session.confine()?;
    let mut disks = Vec::new();
    let log = log.map(|files| read(helper, files, access, Unnamed::WholeDisk, &mut disks)).transpose()?;
    let device = read(helper, files, access, Unnamed::OnlyXfs, &mut disks)?;
    let filesystem = mount_over(confined, image, device, log, settings.engine)?;
    let serving = attach(session, helper, request.connection, filesystem, (image, mount_point), &settings.fuse)?;
    Ok((serving.with_devices(devices).with_follower(session.sandbox.take_follower()), disks))
}

/// Refuses what this process cannot do.
fn verify(image: &Path, settings: &MountSettings) -> Result<(), Usage> {
    if !image.is_absolute() {
        return Err(Usage(format!("{}: a service needs the full path of the image", image.display())));
    }
    let refused = [
        (settings.fuse.auto_unmount, "auto_unmount", "a service is not told which process is to unmount"),
        (settings.fuse.allow_root, "allow_root", "a service is not told who mounts; allow_other lets root in, too"),
    ];
    match refused.into_iter().find(|(is_asked_for, ..)| *is_asked_for) {
        Some((_, option, why)) => Err(Usage(format!("-o {option}: {why}"))),
        None => Ok(()),
    }
}

/// Opens the files of an operand, with their locks. No more than signatures is read.
fn open(helper: &Helper, operand: &Path, access: Access) -> Result<(Operand, Vec<Unread>)> {
    let operand = Operand::decode(operand.as_os_str(), |path| helper.has(path))?;
    let open = |path: &PathBuf| Ok(Unread::over(path, open_file(helper, path, access)?, access));
    let files = operand.paths.iter().map(open).collect::<Result<_, DiskError>>()?;
    Ok((operand, files))
}

/// The part of a disk that an operand names; `disks` keeps the disk and its locks. Files that a virtual disk names must
/// lie in the disk's folder: nobody reads a warning of a service. The helper opens them, as the user, for a process
/// that has given up its rights.
fn read(
    helper: &Helper,
    (operand, files): (Operand, Vec<Unread>),
    access: Access,
    unnamed: Unnamed,
    disks: &mut Vec<Disks>,
) -> Result<Arc<dyn BlockDevice>> {
    let folders: Vec<_> = operand.paths.iter().map(|path| path.parent()).collect();
    let opener = |path: &Path, access: Access| match folders.contains(&path.parent()) {
        true => open_file(helper, path, access),
        false => Err(OpenError::Io { path: path.into(), source: io::Error::other("it is in another folder") }),
    };
    let mut files = files.into_iter();
    let opened = Disks::open_with(&operand, access, |_| {
        files.next().expect("each path of the operand has its file").read_by(&opener)
    })?;
    let chosen = opened.find(&operand.part, unnamed)?;
    disks.push(opened);
    Ok(chosen.device)
}

/// Opens a file with its locks, as [`FileDevice::open`] does.
fn open_file(helper: &Helper, path: &Path, access: Access) -> Result<FileDevice, OpenError> {
    let flags = match access {
        // Of a block device the kernel then sees to it that no one else has it; for a file it means nothing.
        Access::Write => OFlags::RDWR | OFlags::EXCL,
        _ => OFlags::RDONLY,
    };
    let opened = helper.open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY);
    let file = opened.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing(path.into()),
        _ => OpenError::Io { path: path.into(), source },
    })?;
    FileDevice::over(path, file, access)
}

/// Has the helper mount, and begins to serve. On an error the image is closed.
fn attach(
    session: &Session,
    helper: &Helper,
    connection: OwnedFd,
    filesystem: Volume,
    (source, mount_point): (&Path, &Path),
    options: &Options,
) -> Result<Serving<Volume>> {
    let mut names = vec!["default_permissions"];
    names.extend(options.allow_other.then_some("allow_other"));
    let flags = flags(options, filesystem.options().read_only);
    let request = MountRequest { source, mount_point, options: &names.join(","), flags };
    if let Err(error) = helper.mount(&request) {
        filesystem.unmount().map_err(MountError::Close)?;
        return Err(MountError::Mount(error).into());
    }
    let serving = Serving::over(filesystem, connection, None, options)?;
    serving.set_sandbox(session.sandbox.in_force().to_string());
    Ok(serving)
}

/// The flags of mount(2). Devices and set-id files have no effect, whatever the options say: `mount.fuse3` asks for
/// them where its user has not.
fn flags(options: &Options, read_only: bool) -> MountFlags {
    let mut flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let asked_for = options.kernel.iter().filter(|option| !matches!(option, KernelOption::Dev | KernelOption::Suid));
    for option in asked_for {
        let (set, clear) = option.flags();
        flags = (flags - clear) | set;
    }
    flags | MountFlags::NODEV | MountFlags::NOSUID
}
