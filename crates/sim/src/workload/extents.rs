//! A map of many extents: it grows from the inode to a tree of several blocks, is shifted, and shrinks again.

use super::common::Workload;
use super::contents;
use crate::far::Distance;
use crate::image::Shape;
use crate::node::{NodeId, ROOT};
use crate::operation::Operation;
use crate::random::Random;
use crate::run::Run;
use crate::stop::Stop;
use xfskit_engine::Fallocate;

pub const WORKLOAD: Workload = Workload {
    name: "extents",
    about: "a map from a list to a tree and back, with collapse and insert",
    share: 1,
    distance: Distance::of,
    shape,
    run,
};

/// Blocks that the file has, holes included.
const BLOCKS: u64 = 280;

fn shape(random: &mut Random) -> Shape {
    let agcount = format!("agcount={}", 1 + random.below(3));
    Shape { mib: 64, options: vec![('b', "size=1024".to_owned()), ('d', agcount)] }
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(node) = run.new_file(ROOT)? else { return Ok(()) };
    if run.new_file(ROOT)?.is_none() {
        return Ok(());
    }
    let block = run.block_bytes();
    // First every other block, in any order; then shifts of the map; then truncations, which shrink it.
    for step in 0..160 {
        let operation = match (step, run.random.below(8)) {
            (0..90, 0..=5) | (_, 0) => Some(single_block(run, node)),
            (_, 1) => contents::share(run, node),
            (90.., 2 | 3) => contents::shift(run, node),
            (120.., 4) => Some(contents::truncate(run, node)),
            (60.., 5 | 6) => {
                let offset = run.random.next() % BLOCKS * block;
                let length = (1 + run.random.next() % 40) * block;
                Some(Operation::Fallocate { node, what: Fallocate::PunchHole, offset, length })
            }
            _ => contents::fallocate(run, node),
        };
        if let Some(operation) = operation {
            run.perform(&operation)?;
        }
        run.settle(8)?;
    }
    run.perform(&Operation::Truncate { node, size: 3 * block })?;
    run.settle(1)
}

/// A write of a block between two holes.
fn single_block(run: &mut Run, node: NodeId) -> Operation {
    let block = run.block_bytes();
    let offset = run.random.next() % (BLOCKS / 2) * 2 * block;
    Operation::Write { node, offset: Some(offset), length: block as usize, seed: run.random.next() >> 32 }
}
