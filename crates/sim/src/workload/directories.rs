//! A directory through every form: it grows from the inode to blocks with an index of several levels, and shrinks
//! again.

use super::common::{Workload, varied};
use crate::far::Distance;
use crate::node::ROOT;
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "directories",
    about: "a directory from the inode to several index blocks, and back",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(dir) = run.create(ROOT, b"dir".to_vec(), 0o040_755)? else { return Ok(()) };
    let Some(file) = run.create(ROOT, b"file".to_vec(), 0o100_644)? else { return Ok(()) };
    for _ in 0..260 {
        let name = run.fresh_name(dir);
        match run.random.below(8) {
            0 => drop(run.create(dir, name, 0o040_755)?),
            1 => {
                let target = 1 + run.random.below(1000);
                run.perform(&Operation::Symlink { dir, name, target })?;
            }
            // Names of inodes that exist cost no inode, so the directory grows faster.
            2..=5 => drop(run.perform(&Operation::Link { node: file, dir, name })?),
            _ => drop(run.create(dir, name, 0o100_644)?),
        }
        run.settle(25)?;
    }
    while let names @ [_, ..] = run.model.names(dir).as_slice() {
        let name = names[run.random.below(names.len())].clone();
        let node = run.model.lookup(dir, &name).unwrap_or(ROOT);
        let operation = if crate::node::is_dir(run.model.mode(node)) {
            Operation::Rmdir { dir, name }
        } else {
            Operation::Unlink { dir, name }
        };
        run.perform(&operation)?;
        run.settle(25)?;
    }
    run.perform(&Operation::Rmdir { dir: ROOT, name: b"dir".to_vec() }).map(|_| ())
}
