//! Files that are written under a name of their own and then take another file's name, as a careful program replaces a
//! file.

use super::common::{Workload, varied};
use super::contents::{append, write};
use crate::far::Distance;
use crate::node::Name;
use crate::node::ROOT;
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;
use xfskit_engine::RenameFlags;

pub const WORKLOAD: Workload = Workload {
    name: "replacements",
    about: "files that are written and take the names of others: their contents come with the name",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

/// Files that are replaced over and over.
const NAMES: usize = 4;

fn run(run: &mut Run) -> Result<(), Stop> {
    let names: Vec<Name> = (0..NAMES).map(|number| format!("file-{number}").into_bytes()).collect();
    for name in &names {
        run.create(ROOT, name.clone(), 0o100_644)?;
    }
    for _ in 0..40 {
        let name = names[run.random.below(NAMES)].clone();
        replace(run, name)?;
        run.settle(15)?;
    }
    Ok(())
}

/// Makes a file, writes it in one to three steps, and gives it the name.
fn replace(run: &mut Run, name: Name) -> Result<(), Stop> {
    let temporary = b".new".to_vec();
    if run.model.lookup(ROOT, &temporary).is_some() {
        // The replacement before this one ran out of space.
        run.perform(&Operation::Unlink { dir: ROOT, name: temporary.clone() })?;
    }
    let Some(node) = run.create(ROOT, temporary.clone(), 0o100_644)? else { return Ok(()) };
    for _ in 0..1 + run.random.below(3) {
        let operation = if run.random.one_in(2) { Some(write(run, node)) } else { append(run, node) };
        if let Some(operation) = operation
            && !run.perform(&operation)?
        {
            return Ok(());
        }
    }
    let exchange = run.model.lookup(ROOT, &name).is_some() && run.random.one_in(5);
    let flags = RenameFlags { exchange, ..RenameFlags::default() };
    run.perform(&Operation::Rename { from: (ROOT, temporary), to: (ROOT, name), flags }).map(|_| ())
}
