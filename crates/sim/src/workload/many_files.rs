//! Many files on a far device: they are written out together, and a checkpoint has many records.

use super::common::{Workload, varied};
use super::contents;
use crate::far::Distance;
use crate::node::{NodeId, ROOT, Value};
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "many-files",
    about: "many files on a far device: written out together, with long checkpoints",
    share: 1,
    distance: |_| Distance::Far,
    shape: varied,
    run,
};

/// Files at most.
const FILES: usize = 16;
/// Lengths of writes that wait in memory.
const LENGTHS: &[usize] = &[1, 700, 4096, 9000, 20_000, 60_000];
/// Lengths of values: an intent of a long one takes records of its own.
const VALUES: &[usize] = &[20, 3000, 65_536, 65_536];

fn run(run: &mut Run) -> Result<(), Stop> {
    for _ in 0..FILES {
        if run.new_file(ROOT)?.is_none() {
            return Ok(());
        }
    }
    for _ in 0..10 {
        // In a third of the rounds only values are set, so that the checkpoint is a long one.
        let only_values = run.random.one_in(3);
        for _ in 0..4 + run.random.below(16) {
            step(run, only_values)?;
        }
        run.settle(1)?;
        if run.random.one_in(12) {
            run.remount()?;
        }
    }
    Ok(())
}

fn step(run: &mut Run, only_values: bool) -> Result<(), Stop> {
    let files = run.model.files();
    let Some(&node) = run.random.pick(&files) else { return run.new_file(ROOT).map(|_| ()) };
    let operation = match if only_values { 4 } else { run.random.below(8) } {
        0..=3 => write(run, node),
        4 => set(run, node),
        5 => contents::change(run, node).unwrap_or(Operation::Fdatasync { node }),
        6 => return contents::come_or_go(run),
        _ => {
            let name = run.fresh_name(ROOT);
            return run.create(ROOT, name, 0o040_755).map(|_| ());
        }
    };
    run.perform(&operation).map(|_| ())
}

/// A write that waits until the files are written out.
fn write(run: &mut Run, node: NodeId) -> Operation {
    let length = LENGTHS[run.random.below(LENGTHS.len())];
    let offset = run.random.next() % (run.model.contents(node).size() + 10_000).min(100_000);
    Operation::Write { node, offset: Some(offset), length, seed: run.random.next() >> 32 }
}

/// A value; one of several that each file has.
fn set(run: &mut Run, node: NodeId) -> Operation {
    let name = format!("user.{}", run.random.below(3)).into_bytes();
    let value = Value { length: VALUES[run.random.below(VALUES.len())], seed: run.random.next() as u8 };
    Operation::Set { node, name, value }
}
