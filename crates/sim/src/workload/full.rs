//! A small image that is full most of the time. No judge reads the blocks that fill it.

use super::common::Workload;
use super::no_space;
use crate::far::Distance;
use crate::node::ROOT;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "full",
    about: "a small image that is full",
    share: 1,
    distance: Distance::of,
    shape: no_space::shape,
    run,
};

/// Free blocks when the work begins.
const BLOCKS_LEFT: u64 = 60;

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(file) = run.create(ROOT, b"file".to_vec(), 0o100_644)? else { return Ok(()) };
    run.fill(file, BLOCKS_LEFT)?;
    no_space::work(run)
}
