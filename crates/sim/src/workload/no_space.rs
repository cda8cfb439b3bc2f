//! A small image that is full of attribute values most of the time.

use super::attributes;
use super::common::Workload;
use crate::far::Distance;
use crate::image::Shape;
use crate::node::ROOT;
use crate::node::Value;
use crate::operation::Operation;
use crate::random::Random;
use crate::run::Run;
use crate::stop::Stop;

/// A state takes thirty times as long as those of other workloads, because all values are read and checked.
const SHARE: u64 = 64;

pub const WORKLOAD: Workload = Workload {
    name: "no-space",
    about: "a small image that is full of values",
    share: SHARE,
    distance: Distance::of,
    shape,
    run,
};

pub(super) fn shape(random: &mut Random) -> Shape {
    let (mib, agcount) = [(20, "agcount=1"), (33, "agcount=2")][random.below(2)];
    Shape { mib, options: vec![('b', "size=1024".to_owned()), ('d', agcount.to_owned())] }
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(file) = run.create(ROOT, b"file".to_vec(), 0o100_644)? else { return Ok(()) };
    // Large values take most of the space.
    for number in 0..400u32 {
        let name = format!("user.{number}").into_bytes();
        let value = Value { length: 65_000, seed: number as u8 };
        if !run.perform(&Operation::Set { node: file, name, value })? {
            break;
        }
    }
    work(run)
}

/// Adds and removes names and attributes, as far as there is space.
pub(super) fn work(run: &mut Run) -> Result<(), Stop> {
    run.perform(&Operation::Sync)?;
    run.perform(&Operation::PushTail)?;
    run.perform(&Operation::Sync)?;
    run.prepared();
    for _ in 0..150 {
        match run.random.below(4) {
            0 | 1 => {
                let name = run.fresh_name(ROOT);
                run.create(ROOT, name, 0o100_644)?;
            }
            2 => {
                let node = run.any_inode();
                let operation = attributes::change(run, node, 5);
                run.perform(&operation)?;
            }
            _ => {
                let Some((dir, name)) = run.any_name().filter(|(_, name)| name != b"file") else { continue };
                run.perform(&Operation::Unlink { dir, name })?;
            }
        }
        run.settle(12)?;
    }
    Ok(())
}
