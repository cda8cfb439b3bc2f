//! What the processes of a mount have in common: how they start each other, and their output.

use crate::args::MountArgs;
use crate::open::session::Session;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{Write, stdout};
use std::path::Path;
use std::process::Command;
use xfskit_fuse::MountError;

/// What a server prints when the mount is ready for use.
pub const READY: &str = "ready";

/// This program again, to mount the same.
pub fn this_program(session: &Session, args: &MountArgs, flags: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.arg("mount").args(flags).args(["--wait", &session.wait.time().as_secs_f64().to_string()]);
    command.args(session.servers.option());
    command.args(session.sandbox.option());
    command.args(session.helpers.option());
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(file);
    }
    command.arg("--").arg(&args.image).arg(&args.mount_point);
    Ok(command)
}

/// Checks the mount point before the journal is replayed.
pub fn check_mount_point(path: &Path) -> Result<()> {
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
pub fn leave_session() {
    // It fails only if this process has left it already.
    let _ = rustix::process::setsid();
}

/// The files that replace the output of a server in the background once its mount is ready.
pub struct ServerOutput {
    nothing: File,
    log: File,
}

impl ServerOutput {
    /// Opens them.
    ///
    /// # Errors
    /// The system's.
    pub fn open(log_file: Option<&Path>) -> Result<Self> {
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null").context("/dev/null")?;
        let log = match log_file {
            Some(path) => open_log(path)?,
            None => nothing.try_clone().context("/dev/null")?,
        };
        Ok(Self { nothing, log })
    }

    /// Reports to the process that started this one that the mount is ready, and closes the output. The mount exists,
    /// so a failure of the report does not end it.
    pub fn report_ready(&self) {
        let mut out = stdout().lock();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        self.replace();
    }

    /// From now on what this process prints goes to the log file, if there is one.
    pub fn replace(&self) {
        let _ = rustix::stdio::dup2_stdout(&self.nothing);
        let _ = rustix::stdio::dup2_stderr(&self.log);
    }
}

/// Opens the log file of a server.
pub fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path).with_context(|| path.display().to_string())
}

/// After a panic the server must not continue: the process ends, and the image is as after a power cut. The parent ends
/// the connection to the kernel.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}
