//! What makes figures of a run mean little. A goal is measured all the same: the reader is told what it is worth.

use super::{Report, Section};

/// Processors that other programs may have taken before the run, as a share of all.
const BUSY_SHARE: f64 = 0.3;
/// A phase that is over sooner measures the start of threads and the state of caches.
const SHORT_SECONDS: f64 = 0.1;
/// Most names that a caution lists.
const MAX_NAMES: usize = 4;

/// The cautions of a whole run.
pub(crate) fn of_run(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let mut cautions = Vec::new();
    if machine.debug_build {
        cautions.push("This is a debug build: its times mean nothing, and neither do goals for them.".into());
    }
    let load = machine.load_before.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    if let Some(load) = load.filter(|load| *load > machine.cpus as f64 * BUSY_SHARE) {
        cautions.push(format!(
            "Other programs were busy before the run (load {load} on {} processors): goals for times mean little.",
            machine.cpus
        ));
    }
    cautions
}

/// The caution of an experiment, if it has goals.
pub(crate) fn of_section(section: &Section) -> Option<String> {
    if section.goals.is_empty() {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for run in &section.runs {
        for phase in run.phases.iter().filter(|phase| phase.wall_seconds < SHORT_SECONDS) {
            let name = format!("{} ({})", phase.name, run.case);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let (first, rest) = names.split_at_checked(MAX_NAMES).unwrap_or((&names, &[]));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    (!first.is_empty()).then(|| {
        format!(
            "Too small for goals about times: less than {SHORT_SECONDS} s for {}{more}. Larger sizes, or no --quick, \
             give more.",
            first.join(", ")
        )
    })
}
