//! Inodes without names: referenced when they lose their last name, made without one, linked later, released.

use super::attributes;
use super::common::{Workload, varied};
use crate::far::Distance;
use crate::node::ROOT;
use crate::node::is_dir;
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "unlinked",
    about: "files that are open when they lose their last name, and files made without one",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

fn run(run: &mut Run) -> Result<(), Stop> {
    // This many files need new clusters while every unlinked list has members, so the links of inodes change in
    // clusters that were just made.
    if run.random.one_in(3) {
        for _ in 0..66 + run.random.below(140) {
            run.perform(&Operation::Tmpfile { dir: ROOT })?;
            run.settle(8)?;
        }
    }
    for _ in 0..200 {
        step(run)?;
        run.settle(14)?;
    }
    Ok(())
}

fn step(run: &mut Run) -> Result<(), Stop> {
    let held = run.model.held();
    match run.random.below(8) {
        0 | 1 => {
            let name = run.fresh_name(ROOT);
            run.create(ROOT, name, 0o100_644)?;
        }
        2 => drop(run.perform(&Operation::Tmpfile { dir: ROOT })?),
        3 => {
            let node = run.any_inode();
            let operation = attributes::change(run, node, 5);
            run.perform(&operation)?;
        }
        4 | 5 => {
            let Some((dir, name)) = run.any_name() else { return Ok(()) };
            let Some(node) = run.model.lookup(dir, &name).filter(|node| !is_dir(run.model.mode(*node))) else {
                return Ok(());
            };
            if held.len() < 12 && !run.random.one_in(3) {
                run.perform(&Operation::Hold { node })?;
            }
            run.perform(&Operation::Unlink { dir, name })?;
        }
        6 => {
            // A file that was made without a name gets its first name; one that lost its last name can get no other.
            let tmpfile = run.model.held().into_iter().find(|node| run.model.is_new_tmpfile(*node));
            let Some(node) = tmpfile else { return Ok(()) };
            let name = run.fresh_name(ROOT);
            run.perform(&Operation::Link { node, dir: ROOT, name })?;
        }
        _ => {
            let Some(&node) = run.random.pick(&held) else { return Ok(()) };
            run.perform(&Operation::Release { node })?;
        }
    }
    Ok(())
}
