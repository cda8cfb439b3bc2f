//! The experiments.

mod contents;
mod cpus;
mod dbench;
mod files;
mod formats;
mod fsmark;
mod fsync;
mod fuse;
mod mount;
mod noxattr;
mod programs;
mod rename;
mod tables;
mod trees;
mod whiteout;
mod xattr;

use crate::lab::{Lab, Options};
use crate::machine::Machine;
use crate::measure::Watch;
use crate::report::{Report, Section};
use anyhow::Result;
use clap::ValueEnum;

/// An experiment, or all of them. The command shows these descriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Empty files made and removed; what parent pointers cost
    Fsmark,
    /// Attributes of 16 bytes to 64 KiB: set, replace, get, list, remove
    Xattr,
    /// Files made with an attribute of 64 KiB that is logged, intents whited out or not
    Whiteout,
    /// dbench's mix on files without attributes, their absence remembered or not
    #[value(name = "noxattr")]
    NoXattr,
    /// Renames with names of equal and of other length
    Rename,
    /// Creates, attributes and unlinks through a mount, beside a FUSE server that does nothing
    Fuse,
    /// 4 KiB made durable by 1, 8 and 64 writers, beside the kernel's loop mount
    Fsync,
    /// One file written and read, beside the kernel's with O_DIRECT and on a mount
    Contents,
    /// Questions for attributes beside a large read, and a server's memory after a million files
    Mount,
    /// tar, cp, rsync, git, a compiler, a database on a mount, beside the kernel's and fuse2fs
    Programs,
    /// Trees into images and out of them, beside mkfs.xfs -p and cp -a; through qcow2 beside a raw image
    Trees,
    /// What keeps more processors from helping: a model from lock times, and real threads
    Cpus,
    /// All of them
    All,
}

type Measure = fn(&Lab<'_>) -> Result<Section>;

const ALL: [(Experiment, Measure); 12] = [
    (Experiment::Fsmark, fsmark::measure),
    (Experiment::Xattr, xattr::measure),
    (Experiment::Whiteout, whiteout::measure),
    (Experiment::NoXattr, noxattr::measure),
    (Experiment::Rename, rename::measure),
    (Experiment::Fuse, fuse::measure),
    (Experiment::Fsync, fsync::measure),
    (Experiment::Contents, contents::measure),
    (Experiment::Mount, mount::measure),
    (Experiment::Programs, programs::measure),
    (Experiment::Trees, |lab| trees::measure(lab, formats::measure)),
    (Experiment::Cpus, cpus::measure),
];

/// The result of a run.
#[derive(Debug)]
pub struct Measured {
    /// All that was measured.
    pub report: Report,
    /// The error that ended the run before all experiments were complete.
    pub failure: Option<anyhow::Error>,
}

/// Runs an experiment, or all. If a later one fails or is interrupted, the report has those that were complete.
///
/// # Errors
/// [`BenchError`](crate::BenchError) if nothing can be measured; the error of the engine or of the system if the first
/// experiment fails.
pub fn run(experiment: Experiment, options: Options, watch: &dyn Watch) -> Result<Measured> {
    let machine = Machine::here();
    let (command, date) = (options.command.clone(), options.date.clone());
    let lab = Lab::new(options, watch)?;
    let mut experiments = Vec::new();
    let (mut failure, mut empty) = (None, None);
    for (_, measure) in ALL.iter().filter(|(each, _)| experiment == Experiment::All || *each == experiment) {
        match measure(&lab) {
            Ok(section) if section.runs.is_empty() => empty = Some(section.about),
            Ok(section) => experiments.push(section),
            Err(error) if experiments.is_empty() => return Err(error),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if let Some(about) = empty.filter(|_| experiments.is_empty() && failure.is_none()) {
        return Err(nothing_measured(&lab, &about));
    }
    Ok(Measured { report: Report { command, date, machine, experiments }, failure })
}

fn nothing_measured(lab: &Lab<'_>, about: &str) -> anyhow::Error {
    let (names, wanted) = (lab.case_names.borrow(), &lab.options.cases);
    let message = if wanted.is_empty() || wanted.iter().any(|name| names.contains(name)) {
        format!("no case of this experiment can be measured there. {about}")
    } else {
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("--case: this experiment has {}", names.join(", "))
    };
    crate::BenchError::Usage(message).into()
}
