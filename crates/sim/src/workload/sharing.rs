//! Files that are written, truncated and unlinked while they share blocks.

use super::common::{Workload, varied};
use super::contents;
use crate::far::Distance;
use crate::node::{NodeId, ROOT};
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "sharing",
    about: "files that share blocks: copy on write, truncate, unlink",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

fn run(run: &mut Run) -> Result<(), Stop> {
    for length in [150_000, 20_000] {
        let Some(node) = run.new_file(ROOT)? else { return Ok(()) };
        run.perform(&Operation::Write { node, offset: Some(0), length, seed: run.random.clone().next() >> 32 })?;
    }
    for _ in 0..140 {
        if run.random.one_in(4) {
            contents::come_or_go(run)?;
        }
        contents::step(run, &change)?;
    }
    Ok(())
}

fn change(run: &mut Run, node: NodeId) -> Option<Operation> {
    match run.random.below(12) {
        0..=4 => contents::share(run, node),
        5..=7 => Some(contents::write(run, node)),
        8 => Some(contents::truncate(run, node)),
        9 => contents::fallocate(run, node),
        10 => contents::shift(run, node),
        _ => contents::copy(run, node),
    }
}
