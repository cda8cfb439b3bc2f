//! Signals that ask the program to end (SIGINT, SIGTERM, SIGHUP) while an image is open for writing: the current file
//! is completed, the image is closed in good order, and then the program ends by the signal. A second signal ends it at
//! once; the image is then as after a power cut.
//!
//! A step may take for ever if an image was made to do that, and looks for no signal meanwhile. So some time after a
//! signal an image can no longer be read ([`check_read`]), unless something is still written; the step then fails, and
//! the image is closed.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The signals that have arrived.
#[derive(Debug, Default)]
struct Asked {
    to_end: Arc<AtomicBool>,
    by: Arc<AtomicUsize>,
    /// When that was seen, or when something was last written since.
    last_step: Mutex<Option<Instant>>,
    /// Others attend to the signals.
    is_left: AtomicBool,
}

/// How long an image that is only read can be read after a signal.
pub const PATIENCE_OF_READER: Duration = Duration::from_millis(500);
/// How long an image that is written can be read after a signal, and after each write since.
pub const PATIENCE_OF_WRITER: Duration = Duration::from_secs(5);

/// The one static of the command, since signals come to the process: a handler cannot be handed a value, and the loops
/// that look for a signal are as deep as a read of a device.
static ASKED: OnceLock<Asked> = OnceLock::new();

/// The work ended early because of a signal.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; what was done so far is complete, and the image is closed")]
pub struct Interrupted;

/// From now on signals end the work in good order. Signals that are ignored at the start of the program stay ignored.
///
/// # Errors
/// Those of the system.
pub fn watch() -> io::Result<()> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let asked = Asked::default();
    let ignored = ignored_signals();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked.to_end))?;
        signal_hook::flag::register_usize(signal, Arc::clone(&asked.by), signal.unsigned_abs() as usize)?;
        signal_hook::flag::register(signal, Arc::clone(&asked.to_end))?;
    }
    // Only the main thread calls this.
    ASKED.get_or_init(|| asked);
    Ok(())
}

/// From now on [`came`] says whether a signal has arrived; what a signal does otherwise stays as it is.
///
/// # Errors
/// Those of the system.
pub fn watch_alone() -> io::Result<()> {
    let asked = Asked::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&asked.to_end))?;
    }
    ASKED.get_or_init(|| asked);
    Ok(())
}

/// The signals that are ignored, as a set of bits.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a signal has arrived.
pub fn came() -> bool {
    ASKED.get().is_some_and(|asked| asked.to_end.load(Ordering::Relaxed) && !asked.is_left.load(Ordering::Relaxed))
}

/// Ends the work between two of its steps if a signal has arrived.
///
/// # Errors
/// `Interrupted`.
pub fn check() -> Result<(), Interrupted> {
    if came() { Err(Interrupted) } else { Ok(()) }
}

/// Fails if a signal has arrived, and nothing was written for so long.
///
/// # Errors
/// `Interrupted`, as the system's.
pub fn check_read(patience: Duration) -> io::Result<()> {
    let Some(asked) = ASKED.get().filter(|_| came()) else { return Ok(()) };
    let mut last_step = asked.last_step.lock().unwrap_or_else(PoisonError::into_inner);
    let since = last_step.get_or_insert_with(Instant::now);
    if since.elapsed() < patience { Ok(()) } else { Err(io::Error::other(Interrupted)) }
}

/// Something was written: after a signal, what is done is still being completed.
pub fn note_write() {
    if let Some(asked) = ASKED.get().filter(|_| came()) {
        *asked.last_step.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// From now on a signal that has arrived, or will, is the affair of others.
pub fn leave_to_others() {
    if let Some(asked) = ASKED.get() {
        asked.is_left.store(true, Ordering::Relaxed);
    }
}

/// Ends the program by the signal that has arrived, if there is one.
pub fn end() {
    let Some(asked) = ASKED.get().filter(|_| came()) else { return };
    let signal = i32::try_from(asked.by.load(Ordering::Relaxed)).unwrap_or(SIGINT);
    // This returns only where the system forbids it; then the exit code reports the signal.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
