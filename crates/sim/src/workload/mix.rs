//! Everything, in any order.

use super::common::{Workload, varied};
use super::{attributes, contents, renames, settings};
use crate::far::Distance;
use crate::node::ROOT;
use crate::node::is_dir;
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload =
    Workload { name: "mix", about: "everything, in any order", share: 1, distance: Distance::of, shape: varied, run };

fn run(run: &mut Run) -> Result<(), Stop> {
    for _ in 0..300 {
        step(run)?;
        run.settle(18)?;
        if run.random.one_in(150) {
            run.remount()?;
        }
    }
    Ok(())
}

pub(super) fn step(run: &mut Run) -> Result<(), Stop> {
    let node = if run.sets_attributes { run.any_inode() } else { ROOT };
    if settings::perform(run, node, 5)? {
        return Ok(());
    }
    match run.random.below(15) {
        0..=2 => {
            let dir = run.any_dir();
            let name = run.fresh_name(dir);
            let mode = [0o100_644, 0o100_600, 0o010_644, 0o140_644, 0o040_755, 0o040_700][run.random.below(6)];
            run.create(dir, name, mode)?;
        }
        3 => {
            let dir = run.any_dir();
            let name = run.fresh_name(dir);
            let device = 0x103;
            run.perform(&Operation::Create { dir, name, mode: 0o060_600, device })?;
        }
        4 => {
            let dir = run.any_dir();
            let name = run.fresh_name(dir);
            let target = 1 + run.random.below(1020);
            run.perform(&Operation::Symlink { dir, name, target })?;
        }
        5 | 6 => {
            let node = run.any_inode();
            let operation = attributes::change(run, node, 4);
            run.perform(&operation)?;
        }
        7 | 8 => {
            if let Some(operation) = renames::rename(run) {
                run.perform(&operation)?;
            }
        }
        9 => {
            let node = run.any_inode();
            let (mode, uid) = (run.random.below(0o1000) as u16, run.random.below(3) as u32);
            run.perform(&Operation::Change { node, mode, uid })?;
        }
        10 => {
            let (dir, node) = (run.any_dir(), run.any_inode());
            if !is_dir(run.model.mode(node)) && run.model.names_of(node) > 0 {
                let name = run.fresh_name(dir);
                run.perform(&Operation::Link { node, dir, name })?;
            }
        }
        11 | 12 => {
            let files = run.model.files();
            if let Some(&node) = run.random.pick(&files)
                && let Some(operation) = contents::change(run, node)
            {
                run.perform(&operation)?;
            }
        }
        _ => remove(run)?,
    }
    Ok(())
}

fn remove(run: &mut Run) -> Result<(), Stop> {
    let Some((dir, name)) = run.any_name() else { return Ok(()) };
    let Some(node) = run.model.lookup(dir, &name) else { return Ok(()) };
    if !is_dir(run.model.mode(node)) {
        run.perform(&Operation::Unlink { dir, name })?;
    } else if run.model.names(node).is_empty() {
        run.perform(&Operation::Rmdir { dir, name })?;
    }
    Ok(())
}
