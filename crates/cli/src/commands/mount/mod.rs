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
mod remount;
mod server;
mod service;
mod syslog;

use crate::args::{MountArgs, MountSettings};
use crate::output::exit::{Reported, Usage};
use crate::output::screen;
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use xfskit_fuse::MountError;

/// The helper of umount(8).
const HELPER: &str = "/sbin/umount.fuse.xfskit";
/// What a server prints when the mount is ready for use.
const READY: &str = "ready";

/// Runs `mount`.
pub fn run(args: &MountArgs) -> Result<()> {
    if args.service {
        return service::run();
    }
    if remount::is_asked_for(&args.options) {
        return remount::run(&args.image, &args.mount_point, &args.options);
    }
    let settings = MountSettings::parse(&args.options)?;
    match (args.server_process, args.foreground || args.server) {
        (true, _) => server::run(args, settings),
        (false, true) => parent::run(args, settings),
        (false, false) => start_parent(args),
    }
}

/// This program again, to mount the same.
fn this_program(args: &MountArgs, flags: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.arg("mount").args(flags).args(["--wait", &crate::open::image::wait().as_secs_f64().to_string()]);
    command.args(crate::open::network::option());
    command.args(crate::open::sandbox::option());
    command.args(crate::open::qemu::option());
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(file);
    }
    command.arg("--").arg(&args.image).arg(&args.mount_point);
    Ok(command)
}

/// Starts the parent of a mount and waits until the mount can be used.
fn start_parent(args: &MountArgs) -> Result<()> {
    let mut command = this_program(args, &["--server"])?;
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

/// Checks the mount point before the journal is replayed.
fn check_mount_point(path: &Path) -> anyhow::Result<()> {
    let found = std::fs::metadata(path)
        .and_then(|data| if data.is_dir() { Ok(()) } else { Err(rustix::io::Errno::NOTDIR.into()) });
    found.map_err(|source| MountError::of_mount_point(path, source))?;
    // A mount over the root is hidden below it for every program that runs.
    if std::fs::canonicalize(path).is_ok_and(|real| real == Path::new("/")) {
        return Err(Usage(format!("{}: the root of this system is no mount point", path.display())).into());
    }
    Ok(())
}

/// Leaves the terminal's session, so that the end of the terminal does not end the mount. Until the mount is made this
/// process stays in the group of the one that started it: of a mount on demand the kernel knows by the group who may
/// look at the mount point meanwhile, and lets all others wait for the mount (autofs, the automount units of systemd).
fn leave_session() {
    // It fails only if this process has left it already.
    let _ = rustix::process::setsid();
}

/// The files that replace the output of a server in the background once its mount is ready.
struct ServerOutput {
    nothing: File,
    log: File,
}

impl ServerOutput {
    fn open(log_file: Option<&Path>) -> Result<Self> {
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null").context("/dev/null")?;
        let log = match log_file {
            Some(path) => open_log(path)?,
            None => nothing.try_clone().context("/dev/null")?,
        };
        Ok(Self { nothing, log })
    }

    /// Reports to the process that started this one that the mount is ready, and closes the output. The mount exists,
    /// so a failure of the report does not end it.
    fn report_ready(&self) {
        let mut out = stdout().lock();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        self.replace();
    }

    /// From now on what this process prints goes to the log file, if there is one.
    fn replace(&self) {
        let _ = rustix::stdio::dup2_stdout(&self.nothing);
        let _ = rustix::stdio::dup2_stderr(&self.log);
    }
}

fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path).with_context(|| path.display().to_string())
}
