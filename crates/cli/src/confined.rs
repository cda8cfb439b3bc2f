//! When this program gives up its rights, and which it keeps: docs/design/sandbox.md.
//!
//! ```text
//! plan ─▶ the image's files are opened ─▶ enter ─▶ the image is parsed
//!      ─▶ before_connecting ─▶ its server is connected to ─▶ enter ─▶ the same
//! ```
//! Without a plan nothing is given up.

use anyhow::{Context, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xfskit_nbd::Address;
use xfskit_sandbox::{Calls, Confined, FileUse, IoUring, Needs, confine_thread, filter_calls};

/// Where the kernel says whether it offers FUSE over io_uring.
const OFFERS_RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

#[derive(Debug, Default)]
struct State {
    plan: Option<Needs>,
    /// What of it is in force.
    confined: Confined,
    is_thread_confined: bool,
    has_entered: bool,
    is_left_out: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    plan: None,
    confined: Confined { landlock: None, seccomp: false },
    is_thread_confined: false,
    has_entered: false,
    is_left_out: false,
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the server of a mount needs once it has opened an image.
pub fn needs_of_server() -> Needs {
    let offers = std::fs::read_to_string(OFFERS_RINGS).is_ok_and(|answer| answer.trim() == "Y");
    let mut needs = Needs::new(Calls::Serve(if offers { IoUring::Offered } else { IoUring::Not }));
    // Where a lone client runs, which groups a caller is in, and how many processors there are.
    needs.files = vec![
        ("/proc".into(), FileUse::Read),
        ("/sys/devices/system/cpu".into(), FileUse::Read),
        ("/sys/fs/cgroup".into(), FileUse::Read),
        // Another descriptor of the connection for each thread.
        ("/dev/fuse".into(), FileUse::Write),
    ];
    needs
}

/// From now on [`enter`] keeps only this.
pub fn plan(needs: Needs) {
    let mut state = state();
    if !state.is_left_out {
        state.plan = Some(needs);
    }
}

/// The user wants no sandbox.
pub fn leave_out() {
    state().is_left_out = true;
}

/// The option for a program that is started to do the same, if it was given.
pub fn option() -> Option<&'static str> {
    state().is_left_out.then_some("--no-sandbox")
}

/// For an image on a server, whose client has threads from the beginning: gives up what belongs to threads, but for the
/// connection.
///
/// # Errors
/// The system's.
pub fn before_connecting(address: &Address) -> Result<()> {
    let mut state = state();
    let Some(needs) = &mut state.plan else { return Ok(()) };
    match address.tcp_port() {
        Some(port) => {
            needs.ports.push(port);
            // The C library looks the server's name up.
            needs.files.extend(["/etc", "/lib", "/lib64", "/usr", "/run"].map(|path| (path.into(), FileUse::Read)));
        }
        None => needs.abstract_sockets = true,
    }
    confine(&mut state)
}

fn confine(state: &mut State) -> Result<()> {
    let Some(needs) = state.plan.as_ref().filter(|_| !state.is_thread_confined) else { return Ok(()) };
    let confined = confine_thread(needs).context(HINT)?;
    state.confined = state.confined.and(confined);
    state.is_thread_confined = true;
    Ok(())
}

const HINT: &str = "entering the sandbox (--no-sandbox goes on without one)";

/// Gives up what the plan does not name. The files of the image are open.
///
/// # Errors
/// The system's.
pub fn enter() -> Result<()> {
    let mut state = state();
    confine(&mut state)?;
    let Some(calls) = state.plan.as_ref().filter(|_| !state.has_entered).map(|needs| needs.calls) else {
        return Ok(());
    };
    let confined = filter_calls(calls).context(HINT)?;
    state.confined = state.confined.and(confined);
    state.has_entered = true;
    Ok(())
}

/// What is in force.
pub fn in_force() -> Confined {
    state().confined
}
