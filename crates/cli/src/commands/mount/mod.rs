//! `xfskit mount`.
//!
//! ```text
//! mount       starts the parent in a session of its own, and waits until that reports "ready" or fails
//! mount -f    is the parent: it mounts and unmounts, and reads no image
//!  └ server   opens the image, gives up its rights, and answers requests
//! mount --service   is the server alone: another program opens and mounts
//! ```
//! The mount ends when it is unmounted, or on SIGTERM, SIGINT or SIGHUP, on which the parent unmounts it. The server
//! closes the image in good order before it ends. docs/design/sandbox.md has the processes.

mod connection;
mod deleted;
mod parent;
mod process;
mod remount;
mod server;
mod service;
mod syslog;

use crate::args::{MountArgs, MountSettings};
use crate::open::session::Session;
use crate::output::causes::Reported;
use crate::output::error::{Context, Result, bail};
use crate::output::screen;
use process::{READY, this_program};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// The helper of umount(8).
const HELPER: &str = "/sbin/umount.fuse.xfskit";

/// Runs `mount`.
pub fn run(session: &Session, args: &MountArgs) -> Result<()> {
    if args.service {
        return service::run(session);
    }
    if remount::is_asked_for(&args.options) {
        return remount::run(session.messages(), &args.image, &args.mount_point, &args.options);
    }
    let settings = MountSettings::parse(&args.options)?;
    match (args.server_process, args.foreground || args.server) {
        (true, _) => server::run(session, args, settings),
        (false, true) => parent::run(session, args, settings),
        (false, false) => start_parent(session, args),
    }
}

/// Starts the parent of a mount and waits until the mount can be used.
fn start_parent(session: &Session, args: &MountArgs) -> Result<()> {
    let mut command = this_program(session, args, &["--server"])?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().context("starting the server")?;
    let (Some(mut output), Some(errors)) = (server.stdout.take(), server.stderr.take()) else {
        bail!("the server has no output");
    };
    // Both pipes end when the server closes them: when it is ready, or when it ends.
    let forward = std::thread::spawn(move || screen::forward_errors(errors));
    let mut answer = String::new();
    output.read_to_string(&mut answer).context("the server's answer")?;
    // An error of standard error cannot be reported.
    let _ = forward.join();
    if answer.trim() == READY {
        name_helper(args);
        return Ok(());
    }
    let status = server.wait().context("waiting for the server")?;
    match status.code() {
        Some(code) => Err(Reported(u8::try_from(code).unwrap_or(1)).into()),
        None => bail!("the server was killed: {status}"),
    }
}

/// Makes mount(8) record that this mount is to be unmounted by our helper, if that is installed. Without the record,
/// umount(8) run by root with a full path would not look for the helper. If this fails, the unmount is complete only a
/// moment after `umount` returns.
fn name_helper(args: &MountArgs) {
    if Path::new(HELPER).exists() && rustix::process::geteuid().is_root() {
        let mut note = Command::new("mount");
        note.args(["--internal-only", "--fake", "-t", "fuse.xfskit", "-o", "uhelper=fuse.xfskit", "--"]);
        let note = note.arg(&args.image).arg(&args.mount_point);
        let _ = note.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
