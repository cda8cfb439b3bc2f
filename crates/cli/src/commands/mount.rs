//! `xfskit mount`.
//!
//! ```text
//! mount       starts itself again as a server in a session of its own, and waits until that reports "ready" or fails
//! mount -f    is the server
//! ```
//! A server ends when its mount is unmounted, or on SIGTERM, SIGINT or SIGHUP, on which it unmounts. It closes the
//! image in good order before it exits.

mod options;
mod remount;

pub use options::{MountSettings, parse_engine, parse_logging};

use crate::args::MountArgs;
use crate::exit::{self, Reported};
use crate::image::open_to_mount;
use crate::operand;
use crate::screen::report;
use crate::syslog::SystemLog;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write, stdout};
use std::os::fd::RawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use xfskit_fuse::{MountError, Session, Unmounted, Unmounter};

/// The helper of umount(8).
const HELPER: &str = "/sbin/umount.fuse.xfskit";
/// What a server prints when the mount is ready for use.
const READY: &str = "ready";

/// Runs `mount`.
pub fn run(args: &MountArgs) -> Result<()> {
    if remount::is_asked_for(&args.options) {
        return remount::run(&args.image, &args.mount_point, &args.options);
    }
    if args.server {
        close_inherited();
    }
    let settings = MountSettings::parse(&args.options)?;
    if args.foreground || args.server { serve(args, settings) } else { start_server(args) }
}

/// Closes the files that this process has inherited: a server would keep them open as long as it runs. This program has
/// no files open yet but the standard ones.
fn close_inherited() {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in open {
        // One of the numbers was that of the directory that was read.
        let _ = nix::unistd::close(number);
    }
}

/// Starts a server and waits until its mount can be used.
fn start_server(args: &MountArgs) -> Result<()> {
    let program = std::env::current_exe().context("this program")?;
    let mut command = Command::new(program);
    command.args(["mount", "--server", "--wait", &crate::image::wait().as_secs_f64().to_string()]);
    command.args(crate::network::option());
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(file);
    }
    command.arg("--").arg(&args.image).arg(&args.mount_point);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().context("starting the server")?;
    let (Some(mut output), Some(mut errors)) = (server.stdout.take(), server.stderr.take()) else {
        bail!("the server has no output");
    };
    // Both pipes end when the server closes them: when it is ready, or when it ends.
    let forward = std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
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

fn serve(args: &MountArgs, settings: MountSettings) -> Result<()> {
    abort_on_panic();
    begin_logging(args);
    if args.server {
        // Leaves the terminal's session, so that the end of the terminal does not end the mount. It fails only if this
        // process has left it already.
        let _ = rustix::process::setsid();
    }
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals")?;
    // Everything that may fail is done before the mount: a server that ended afterwards would leave a mount without
    // one.
    check_mount_point(&args.mount_point)?;
    let output = args.server.then(|| ServerOutput::open(args.log_file.as_deref())).transpose()?;
    if let (None, Some(path)) = (&output, &args.log_file) {
        rustix::stdio::dup2_stderr(&open_log(path)?).context("standard error")?;
    }
    let image = operand::canonical(&args.image);
    let filesystem = open_to_mount(&args.image, settings.log_device.as_deref(), settings.engine)?;
    let mut options = settings.fuse;
    options.source = image.into();
    options.read_only = filesystem.options().read_only;
    let session = Session::mount(filesystem, &args.mount_point, &options)?;
    let unmounter = session.unmounter();
    std::thread::spawn(move || unmount_on_signal(signals, &unmounter));
    if let Some(output) = output {
        // A working directory that cannot be left stays busy; the mount works without this.
        let _ = std::env::set_current_dir("/");
        output.report_ready();
    }
    Ok(session.run()?)
}

/// Warnings go to standard error. For a server in the background that is the log file, and its errors also go to the
/// system's log.
fn begin_logging(args: &MountArgs) {
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_target(false).without_time();
    if args.server {
        log.with_ansi(false).with_writer(SystemLog::new(args.image.display().to_string())).init();
    } else {
        // Messages that standard error refuses are lost: a report of that would go to standard error too.
        log.log_internal_errors(false).with_writer(std::io::stderr).init();
    }
}

/// Checks the mount point before the journal is replayed.
fn check_mount_point(path: &Path) -> Result<(), MountError> {
    let found = std::fs::metadata(path)
        .and_then(|data| if data.is_dir() { Ok(()) } else { Err(rustix::io::Errno::NOTDIR.into()) });
    found.map_err(|source| MountError::of_mount_point(path, source))
}

/// After a panic the server must not continue: the process ends, and the image is as after a power cut.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

fn unmount_on_signal(mut signals: Signals, unmounter: &Unmounter) {
    for _ in signals.forever() {
        match unmounter.unmount() {
            Ok(Unmounted::Gone) => {}
            // The image is closed; programs with open files do not keep the server from ending.
            Ok(Unmounted::Detached) => std::process::exit(0),
            Err(error) => {
                report(&error.to_string());
                std::process::exit(exit::code(&error.into()).into());
            }
        }
    }
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

    /// Reports to the process that started the server that it is ready, and closes the output. The mount exists, so a
    /// failure of the report does not end it.
    fn report_ready(&self) {
        let mut out = stdout().lock();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        let _ = rustix::stdio::dup2_stdout(&self.nothing);
        let _ = rustix::stdio::dup2_stderr(&self.log);
    }
}

fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path).with_context(|| path.display().to_string())
}
