//! dbench itself, on the sides that are directories.

use super::tables::columns;
use crate::BenchError;
use crate::lab::Lab;
use crate::report::{Cell, Section, Table};
use crate::side::Opened;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PUBLISHED_CLIENTS: usize = 40;
const PUBLISHED_SECONDS: u64 = 200;
const SECONDS: u64 = 20;
const QUICK_SECONDS: u64 = 5;
/// Lines of its output that are shown when it fails.
const LAST_LINES: usize = 4;
const LOOK: Duration = Duration::from_millis(100);

/// The results that dbench prints.
pub(super) struct DbenchFigures {
    pub(super) megabytes_per_second: f64,
    longest_milliseconds: f64,
}

/// Runs dbench on each side that is a directory, and adds its results to the section.
pub(super) fn measure(lab: &Lab<'_>, section: &mut Section) -> Result<()> {
    let sides: Vec<_> = lab.sides.iter().filter(|side| !side.is_engine()).collect();
    if sides.is_empty() {
        return Ok(());
    }
    if !is_installed() {
        section
            .notes
            .push("dbench itself was not run: it is not installed (Debian's package is called dbench).".into());
        return Ok(());
    }
    let clients = lab.options.threads.unwrap_or(PUBLISHED_CLIENTS);
    let seconds = match (lab.options.quick, lab.options.published) {
        (true, _) => QUICK_SECONDS,
        (false, true) => PUBLISHED_SECONDS,
        (false, false) => SECONDS,
    };
    let mut rows = Vec::new();
    for side in sides {
        let case = lab.case("dbench", 100_000, 0);
        if !side.can(&case) {
            continue;
        }
        let opened = side.open(&case, &lab.scratch)?;
        let outcome = match &opened {
            Opened::Path(target, _) => Some(run(lab, target.folder(), clients, seconds)),
            Opened::Engine(_) => None,
        };
        side.close(opened)?;
        let Some(outcome) = outcome.transpose()? else { continue };
        rows.push(vec![
            Cell::text(&side.name),
            Cell::number(outcome.megabytes_per_second, 1),
            Cell::number(outcome.longest_milliseconds, 1),
        ]);
    }
    section.tables.push(Table {
        title: format!(
            "dbench, {clients} clients, {seconds} s (published: {PUBLISHED_CLIENTS} clients, {PUBLISHED_SECONDS} s)"
        ),
        columns: columns(["", "MB per s", "longest ms"]),
        rows,
    });
    Ok(())
}

/// Whether the program is there.
pub(super) fn is_installed() -> bool {
    Command::new("dbench").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs dbench in a folder.
pub(super) fn run(lab: &Lab<'_>, folder: &Path, clients: usize, seconds: u64) -> Result<DbenchFigures> {
    lab.watch.begin("dbench", seconds);
    let mut command = Command::new("dbench");
    command.arg("-D").arg(folder).arg("-t").arg(seconds.to_string()).arg(clients.to_string());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("dbench")?;
    let output = child.stdout.take().context("dbench has an output")?;
    let errors = child.stderr.take().context("dbench has an output for errors")?;
    let reader = std::thread::spawn(move || std::io::read_to_string(output));
    let errors = std::thread::spawn(move || std::io::read_to_string(errors));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if lab.watch.stopped() {
            child.kill()?;
            child.wait()?;
            return Err(BenchError::Interrupted.into());
        }
        std::thread::sleep(LOOK);
    };
    let text = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let errors = errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(status.success(), "dbench with {clients} clients: {status}: {}", reason(&text, &errors));
    parse(&text).context("dbench's last line, with its throughput, is not understood")
}

/// The last lines that dbench printed before it failed, which it does on either output.
fn reason(output: &str, errors: &str) -> String {
    let lines: Vec<_> = output.lines().chain(errors.lines()).map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "it said nothing".into(),
        lines => lines[lines.len().saturating_sub(LAST_LINES)..].join("; "),
    }
}

fn parse(text: &str) -> Option<DbenchFigures> {
    let line = text.lines().rev().find(|line| line.starts_with("Throughput "))?;
    let megabytes_per_second = line.split_whitespace().nth(1)?.parse().ok()?;
    let longest = line.split("max_latency=").nth(1)?.split_whitespace().next()?;
    Some(DbenchFigures { megabytes_per_second, longest_milliseconds: longest.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_understood() {
        let outcome =
            parse(" Flush 403792 10.944\n\nThroughput 908.444 MB/sec  40 clients  40 procs  max_latency=359.500 ms\n");
        let outcome = outcome.unwrap();
        assert_eq!((outcome.megabytes_per_second, outcome.longest_milliseconds), (908.444, 359.5));
        assert!(parse("Throughput unknown").is_none());
    }
}
