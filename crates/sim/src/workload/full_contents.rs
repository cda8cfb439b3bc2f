//! A small image with next to no space, and files that are written.

use super::common::Workload;
use super::{contents, no_space};
use crate::far::Distance;
use crate::node::ROOT;
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "full-contents",
    about: "a small image that is full, and files that are written",
    share: 1,
    distance: Distance::of,
    shape: no_space::shape,
    run,
};

/// Free blocks for the files.
const BLOCKS_LEFT: u64 = 260;

fn run(run: &mut Run) -> Result<(), Stop> {
    // The work removes names in the root, so the filler has a directory of its own.
    let Some(dir) = run.create(ROOT, b"dir".to_vec(), 0o040_755)? else { return Ok(()) };
    let Some(filler) = run.new_file(dir)? else { return Ok(()) };
    run.fill(filler, BLOCKS_LEFT)?;
    run.perform(&Operation::Sync)?;
    run.perform(&Operation::PushTail)?;
    run.perform(&Operation::Sync)?;
    run.prepared();
    for _ in 0..130 {
        contents::step(run, &|run, node| if node == filler { None } else { contents::change(run, node) })?;
    }
    Ok(())
}
