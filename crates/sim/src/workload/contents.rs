//! Contents of files: every way to write, move and remove them.

use super::common::{Workload, varied};
use super::settings;
use crate::far::Distance;
use crate::node::is_dir;
use crate::node::{NodeId, ROOT};
use crate::operation::Operation;
use crate::run::Run;
use crate::stop::Stop;
use xfskit_engine::{Fallocate, RenameFlags};

pub const WORKLOAD: Workload = Workload {
    name: "contents",
    about: "files that are written, truncated, allocated, punched, collapsed, shared, copied",
    share: 1,
    distance: Distance::of,
    shape: varied,
    run,
};

/// Files stay below this: each state reads them.
const MAX_BYTES: u64 = 300 << 10;
/// Lengths of writes; the last ones go to the device at once and do not wait in memory.
const LENGTHS: &[u64] = &[1, 7, 100, 511, 512, 1000, 1024, 4096, 5000, 8192, 20_000, 65_536, 140_000, 200_000];

fn run(run: &mut Run) -> Result<(), Stop> {
    for _ in 0..3 {
        if run.new_file(ROOT)?.is_none() {
            return Ok(());
        }
    }
    for _ in 0..130 {
        step(run, &change)?;
    }
    Ok(())
}

/// A change of a file, or now and then of its name.
pub(super) fn step(run: &mut Run, change: &dyn Fn(&mut Run, NodeId) -> Option<Operation>) -> Result<(), Stop> {
    match run.random.below(16) {
        0 => come_or_go(run)?,
        _ => {
            let files = run.model.files();
            let Some(&node) = run.random.pick(&files) else { return run.new_file(ROOT).map(|_| ()) };
            settings::perform(run, node, 6)?;
            if let Some(operation) = change(run, node) {
                run.perform(&operation)?;
            }
            if run.random.one_in(10) {
                let fdatasync = run.random.one_in(2);
                run.perform(&if fdatasync { Operation::Fdatasync { node } } else { Operation::Fsync { node } })?;
            }
        }
    }
    run.settle(12)
}

/// Makes a file, unlinks one with or without a reference to it, releases a reference, or renames a file over another.
pub(super) fn come_or_go(run: &mut Run) -> Result<(), Stop> {
    let mut names = run.model.names(ROOT);
    names.retain(|name| run.model.lookup(ROOT, name).is_some_and(|node| !is_dir(run.model.mode(node))));
    let held = run.model.held();
    if names.len() < 3 || names.len() < 6 && run.random.one_in(2) {
        return run.new_file(ROOT).map(|_| ());
    }
    if let Some(&node) = run.random.pick(&held) {
        return run.perform(&Operation::Release { node }).map(|_| ());
    }
    let Some((dir, name)) = run.random.pick(&names).map(|name| (ROOT, name.clone())) else { return Ok(()) };
    let other = names[run.random.below(names.len())].clone();
    if run.random.one_in(2) && other != name {
        let operation = Operation::Rename { from: (dir, name), to: (ROOT, other), flags: RenameFlags::default() };
        return run.perform(&operation).map(|_| ());
    }
    if let Some(node) = run.model.lookup(dir, &name).filter(|_| run.random.one_in(2)) {
        run.perform(&Operation::Hold { node })?;
    }
    run.perform(&Operation::Unlink { dir, name }).map(|_| ())
}

/// Any change of a file's contents.
pub fn change(run: &mut Run, node: NodeId) -> Option<Operation> {
    match run.random.below(16) {
        0..=4 => Some(write(run, node)),
        5 | 6 => append(run, node),
        7 => Some(truncate(run, node)),
        8..=11 => fallocate(run, node),
        12 => shift(run, node),
        13 | 14 => share(run, node),
        _ => copy(run, node),
    }
}

/// A write anywhere, also beyond the end.
pub(super) fn write(run: &mut Run, node: NodeId) -> Operation {
    let size = run.model.contents(node).size();
    let length = LENGTHS[run.random.below(LENGTHS.len())];
    let most = if run.random.one_in(3) { size + 40_000 } else { size };
    let offset = place(run, most.min(MAX_BYTES - length));
    Operation::Write { node, offset: Some(offset), length: length as usize, seed: run.random.next() >> 32 }
}

pub(super) fn append(run: &mut Run, node: NodeId) -> Option<Operation> {
    let length = LENGTHS[run.random.below(LENGTHS.len())];
    let fits = run.model.contents(node).size() + length <= MAX_BYTES;
    fits.then(|| Operation::Write { node, offset: None, length: length as usize, seed: run.random.next() >> 32 })
}

pub(super) fn truncate(run: &mut Run, node: NodeId) -> Operation {
    let size = run.model.contents(node).size();
    let most = if run.random.one_in(3) { (size + 50_000).min(MAX_BYTES) } else { size };
    Operation::Truncate { node, size: place(run, most) }
}

/// Allocates space, removes it, or makes it read as zeros.
pub(super) fn fallocate(run: &mut Run, node: NodeId) -> Option<Operation> {
    let size = run.model.contents(node).size();
    let what = [
        Fallocate::Allocate,
        Fallocate::AllocateKeepSize,
        Fallocate::PunchHole,
        Fallocate::PunchHole,
        Fallocate::ZeroRange,
        Fallocate::ZeroRangeKeepSize,
    ][run.random.below(6)];
    let offset = place(run, size + 10_000);
    // This takes no random number, which would change the runs of the states in `tests/regressions.rs`.
    let unshares = run.sets_attributes && what == Fallocate::AllocateKeepSize && offset.is_multiple_of(2);
    let what = if unshares { Fallocate::UnshareKeepSize } else { what };
    let length = 1 + place(run, 60_000);
    let fits = offset + length <= MAX_BYTES;
    fits.then_some(Operation::Fallocate { node, what, offset, length })
}

/// Removes blocks from a file, or inserts blocks.
pub(super) fn shift(run: &mut Run, node: NodeId) -> Option<Operation> {
    let (size, block) = (run.model.contents(node).size(), run.block_bytes());
    let blocks = size / block;
    if blocks < 2 {
        return None;
    }
    let first = run.random.next() % (blocks - 1);
    let count = 1 + run.random.next() % (blocks - first).min(20);
    let (offset, length) = (first * block, count * block);
    if run.random.one_in(2) {
        let fits = offset + length < size;
        return fits.then_some(Operation::Fallocate { node, what: Fallocate::CollapseRange, offset, length });
    }
    let fits = size + length <= MAX_BYTES;
    fits.then_some(Operation::Fallocate { node, what: Fallocate::InsertRange, offset, length })
}

/// Shares blocks of a file with `node`.
pub(super) fn share(run: &mut Run, node: NodeId) -> Option<Operation> {
    let files = run.model.files();
    let source = *run.random.pick(&files)?;
    let (from_size, to_size, block) =
        (run.model.contents(source).size(), run.model.contents(node).size(), run.block_bytes());
    if from_size == 0 {
        return None;
    }
    let from = run.random.next() % from_size.div_ceil(block) * block;
    let to = run.random.next() % (to_size / block + 4) * block;
    let left = from_size - from;
    // Whole blocks, or up to the end of both.
    let whole = left / block;
    let length = if to + left >= to_size && run.random.one_in(2) || whole == 0 {
        left
    } else {
        (1 + run.random.next() % whole) * block
    };
    let ends_well = length.is_multiple_of(block) || to + length >= to_size;
    let apart = source != node || from.abs_diff(to) >= length.next_multiple_of(block);
    let fits = ends_well && apart && to + length <= MAX_BYTES;
    fits.then_some(Operation::Copy { from: (source, from), to: (node, to), length, share: true })
}

/// Copies bytes of a file to `node`.
pub(super) fn copy(run: &mut Run, node: NodeId) -> Option<Operation> {
    let files = run.model.files();
    let source = *run.random.pick(&files)?;
    let from_size = run.model.contents(source).size();
    if from_size == 0 {
        return None;
    }
    let from = place(run, from_size - 1);
    let most = run.model.contents(node).size() + 10_000;
    let to = place(run, most);
    let length = 1 + run.random.next() % (from_size - from);
    let fits = (source != node || from.abs_diff(to) >= length) && to + length <= MAX_BYTES;
    fits.then_some(Operation::Copy { from: (source, from), to: (node, to), length, share: false })
}

/// An offset up to `most`; in half of the cases the start of a block.
fn place(run: &mut Run, most: u64) -> u64 {
    let at = run.random.next() % (most + 1);
    if run.random.one_in(2) { at / run.block_bytes() * run.block_bytes() } else { at }
}
