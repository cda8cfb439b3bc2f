//! Workloads: what is done to a filesystem whose power is then cut.

mod attributes;
mod common;
mod contents;
mod directories;
mod extents;
mod full;
mod full_contents;
mod log_wrap;
mod many_files;
mod mix;
mod no_space;
mod renames;
mod replacements;
mod settings;
mod sharing;
mod unlinked;

pub use common::Workload;

use crate::run::Run;
use crate::stop::Stop;

/// All workloads.
pub static WORKLOADS: &[Workload] = &[
    attributes::WORKLOAD,
    renames::WORKLOAD,
    directories::WORKLOAD,
    unlinked::WORKLOAD,
    log_wrap::WORKLOAD,
    full::WORKLOAD,
    no_space::WORKLOAD,
    mix::WORKLOAD,
    contents::WORKLOAD,
    sharing::WORKLOAD,
    extents::WORKLOAD,
    full_contents::WORKLOAD,
    replacements::WORKLOAD,
    many_files::WORKLOAD,
];

/// The workload of a name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// A few operations of any kind on what a recovery left.
///
/// # Errors
/// `Stop`.
pub fn go_on(run: &mut Run) -> Result<(), Stop> {
    for _ in 0..3 + run.random.below(8) {
        mix::step(run)?;
        run.settle(4)?;
    }
    Ok(())
}
