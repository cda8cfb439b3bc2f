//! What the header of a virtual disk names, read by a process of its own that can do nothing else.
//!
//! ```text
//! command, mount ──starts──▶ header process
//!   standard input   the disk, open for reading      ─▶ opened once more, rights are given up, the header is read
//!   standard output  ◀── the names (`Below::encode`)
//! ```
//! It runs this same program by the name `xfskit-header`, without environment and without other files. Of its answer
//! this process takes names to open, as many and as long as a header may have, and nothing else.
//! docs/design/sandbox.md says why.

use crate::output::causes::Reported;
use crate::output::error::{CommandError, Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write, stdin, stdout};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use xfskit_device::FileDevice;
use xfskit_disk::{Below, Header};
use xfskit_sandbox::{Calls, Needs, confine_thread, filter_calls};

/// The name by which the program is called.
pub const NAME: &str = "xfskit-header";
/// The program that runs, whatever has its name by now.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Whether this process is that one.
pub fn is_this() -> bool {
    std::env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(NAME)))
}

/// Is that process.
pub fn run() -> Result<()> {
    // Nobody hears what it has to say of errors: an answer is whole, or there is none.
    let silent = |_| Reported(1);
    let header = Header::over(&stdin()).map_err(silent)?;
    let needs = Needs::new(Calls::Contents);
    confine_thread(&needs).map_err(|_| Reported(1))?;
    // One that an attacker has taken over may take no heed of signals, and is not to stay when the command has ended.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|_| Reported(1))?;
    filter_calls(&needs).map_err(|_| Reported(1))?;
    stdout().write_all(&header.read().encode()).and_then(|()| stdout().flush()).map_err(silent)?;
    Ok(())
}

/// Reads the header of an open file in this process: where the user wants no sandbox.
///
/// # Errors
/// Those of opening it once more.
pub fn read_here(path: &Path, file: &FileDevice) -> Result<Below> {
    let again = || Ok(Header::over(&file.try_clone_file()?)?.read());
    again().map_err(|error: std::io::Error| CommandError::from(error).context(path.display().to_string()))
}

/// Has the header of an open file read.
///
/// # Errors
/// Those of starting the process; one that gives no answer.
pub fn read_below(path: &Path, file: &FileDevice) -> Result<Below> {
    let ask = || -> Result<Vec<u8>> {
        let file = file.try_clone_file()?;
        // Another handle has neither the locks of this one, nor its right to write.
        let input = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let mut command = Command::new(THIS_PROGRAM);
        command.arg0(NAME).env_clear().stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("it has no output")?;
        let mut answer = Vec::new();
        let read = output.take(Below::MOST_BYTES as u64).read_to_end(&mut answer);
        // Its answer shows whether it came to its end.
        let _ = process.kill();
        process.wait()?;
        read?;
        Ok(answer)
    };
    let answer = ask().with_context(|| format!("{}: starting the process that reads its header", path.display()));
    let below = answer.and_then(|answer| {
        Below::decode(&answer)
            .with_context(|| format!("{}: the process that reads its header ended without an answer", path.display()))
    });
    below.context(crate::open::sandbox::HINT)
}
