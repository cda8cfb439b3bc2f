//! How often each fuzz target ran: a table in `target/fuzz-report.txt` that every target adds its line to.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The counts of one target.
#[derive(Clone, Debug)]
pub struct Count {
    /// The target.
    pub name: &'static str,
    /// Inputs that it was given.
    pub runs: u64,
    /// Duration of the runs.
    pub time: Duration,
    /// Inputs of the stored corpus.
    pub corpus: usize,
    /// Inputs of this run with traits that no seed or stored input had shown.
    pub found: usize,
}

/// Held while a line is added.
static LOCK: Mutex<()> = Mutex::new(());

/// The folder of build products that contains this program.
///
/// # Panics
/// If the program is not in such a folder.
pub(crate) fn target_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    // target/PROFILE/deps/PROGRAM
    program.ancestors().nth(3).expect("a program among build products").to_owned()
}

/// Adds a line, which replaces the target's last one, and prints it.
///
/// # Panics
/// If the report cannot be written.
pub fn add(count: &Count) {
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let Count { name, runs, time, corpus, found } = count;
    let seconds = time.as_secs_f64();
    let line = format!("{name:14} {runs:>10} {seconds:>9.1} {:>10.1} {corpus:>7} {found:>6}", *runs as f64 / seconds);
    println!("{line}");
    let folder = target_folder();
    let written = write(&folder.join("fuzz-lines"), name, &line, &folder.join("fuzz-report.txt"));
    drop(guard);
    written.expect("a report of the fuzzing");
}

fn write(lines: &std::path::Path, name: &str, line: &str, report: &std::path::Path) -> io::Result<()> {
    fs::create_dir_all(lines)?;
    fs::write(lines.join(name), line)?;
    let mut paths: Vec<PathBuf> = fs::read_dir(lines)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    let mut text = format!(
        "{:14} {:>10} {:>9} {:>10} {:>7} {:>6}\n",
        "target", "executions", "seconds", "per second", "corpus", "found"
    );
    let mut total = 0;
    for path in paths {
        let line = fs::read_to_string(path)?;
        total += line.split_whitespace().nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{:14} {total:>10}", "all");
    fs::write(report, text)
}
