//! The attributes of an inode through every on-disk form and every conversion between forms.

use super::common::{Workload, varied};
use super::settings;
use crate::far::Distance;
use crate::node::{Name, Value};
use crate::node::{NodeId, ROOT};
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE};

pub const WORKLOAD: Workload = Workload {
    name: "attributes",
    about: "attributes from none to a btree of leaves with remote values, and back",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

const LENGTHS: &[usize] = &[0, 5, 16, 64, 200, 254, 255, 700, 1500, 3000, 9000, 30_000, 65_536];
const NAMESPACES: &[&str] = &["user.", "trusted.", "security."];

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(file) = run.create(ROOT, b"file".to_vec(), 0o100_644)? else { return Ok(()) };
    let dir = run.create(ROOT, b"dir".to_vec(), 0o040_755)?.unwrap_or(file);
    // Growing, then anything, then shrinking.
    for (operations, grow) in [(60, 6), (60, 3), (60, 1)] {
        for _ in 0..operations {
            let node = if run.random.one_in(4) { dir } else { file };
            settings::perform(run, node, 6)?;
            let operation = change(run, node, grow);
            run.perform(&operation)?;
            run.settle(12)?;
        }
    }
    for node in [file, dir] {
        for (name, _) in run.model.xattrs(node) {
            run.perform(&Operation::Remove { node, name })?;
            run.settle(12)?;
        }
    }
    Ok(())
}

/// A change of an inode's attributes; `grow` of 7 changes make a new one.
pub fn change(run: &mut Run, node: NodeId, grow: usize) -> Operation {
    let there = run.model.xattrs(node);
    let value = |run: &mut Run, length| Value { length, seed: run.random.next() as u8 };
    if there.is_empty() || run.random.below(7) < grow {
        let name = new_name(run, node);
        let length = LENGTHS[run.random.below(LENGTHS.len())];
        let value = value(run, length);
        if !run.random.one_in(6) {
            return Operation::Set { node, name, value };
        }
        let mut changes = vec![(name, Some(value))];
        changes.extend(there.first().map(|(name, _)| (name.clone(), None)));
        return Operation::Batch { node, changes };
    }
    let (name, length) = there[run.random.below(there.len())].clone();
    match run.random.below(3) {
        // A replace of the same length is done in place.
        0 => Operation::Set { node, name, value: value(run, length) },
        1 => {
            let length = LENGTHS[run.random.below(LENGTHS.len())];
            Operation::Set { node, name, value: value(run, length) }
        }
        _ => Operation::Remove { node, name },
    }
}

fn new_name(run: &mut Run, node: NodeId) -> Name {
    // `user.` is for files and directories only.
    let mode = run.model.mode(node) & MODE_TYPE;
    let first = usize::from(!matches!(mode, MODE_REGULAR | MODE_DIR));
    let namespace = NAMESPACES[first + run.random.below(NAMESPACES.len() - first)];
    let mut name = format!("{namespace}{:x}", run.random.next()).into_bytes();
    let length = [name.len(), 30, 100, 250][run.random.below(4)].max(name.len());
    name.resize(length, b'x');
    name
}
