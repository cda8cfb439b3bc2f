//! Every kind of rename, between inodes whose attributes and directories are in every form.

use super::attributes;
use super::common::{Workload, varied};
use crate::far::Distance;
use crate::node::{Name, is_dir};
use crate::node::{NodeId, ROOT};
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;
use xfskit_engine::RenameFlags;

pub const WORKLOAD: Workload = Workload {
    name: "renames",
    about: "renames, exchanges, whiteouts and links with parent pointers in every combination of forms",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

fn run(run: &mut Run) -> Result<(), Stop> {
    for count in [0, 5, 40] {
        let Some(dir) = run.create(ROOT, format!("dir-{count}").into_bytes(), 0o040_755)? else { return Ok(()) };
        for _ in 0..count {
            let name = run.fresh_name(dir);
            let mode = if run.random.one_in(6) { 0o040_755 } else { 0o100_644 };
            run.create(dir, name, mode)?;
        }
    }
    for _ in 0..40 {
        let node = run.any_inode();
        let operation = attributes::change(run, node, 5);
        run.perform(&operation)?;
    }
    for _ in 0..120 {
        if let Some(operation) = rename(run) {
            run.perform(&operation)?;
        }
        if run.random.one_in(6) {
            let (dir, node) = (run.any_dir(), run.any_inode());
            if !is_dir(run.model.mode(node)) && run.model.names_of(node) > 0 {
                let name = run.fresh_name(dir);
                run.perform(&Operation::Link { node, dir, name })?;
            }
        }
        run.settle(15)?;
    }
    Ok(())
}

/// A rename that will work, if one was found.
pub fn rename(run: &mut Run) -> Option<Operation> {
    let from = run.any_name()?;
    let moved = run.model.lookup(from.0, &from.1)?;
    let to = if run.random.one_in(2) {
        let dir = run.any_dir();
        let name = if run.random.one_in(3) { same_length(run, dir, &from.1) } else { run.fresh_name(dir) };
        (dir, name)
    } else {
        run.any_name()?
    };
    let victim = run.model.lookup(to.0, &to.1);
    let exchange = victim.is_some() && run.random.one_in(2);
    let flags = RenameFlags { exchange, whiteout: !exchange && run.random.one_in(6), ..RenameFlags::default() };
    let moves_below_itself = |node: NodeId, dir: NodeId| is_dir(run.model.mode(node)) && run.model.is_above(node, dir);
    if moves_below_itself(moved, to.0) {
        return None;
    }
    if let Some(victim) = victim {
        let (old, new) = (is_dir(run.model.mode(moved)), is_dir(run.model.mode(victim)));
        let fits = if exchange {
            !moves_below_itself(victim, from.0)
        } else {
            old == new && run.model.names(victim).is_empty() && victim != from.0
        };
        if !fits || victim == moved {
            return None;
        }
    }
    Some(Operation::Rename { from, to, flags })
}

/// Another name of the same length: the parent pointer is replaced in place.
fn same_length(run: &mut Run, dir: NodeId, name: &Name) -> Name {
    let mut other = name.clone();
    for byte in &mut other {
        *byte = b'a' + run.random.below(26) as u8;
    }
    if run.model.lookup(dir, &other).is_some() { run.fresh_name(dir) } else { other }
}
