//! A small image that is full most of the time.

use super::{Workload, attributes};
use crate::model::ROOT;
use crate::operation::{Operation, Value};
use crate::random::Random;
use crate::run::{Run, Shape, Stop};

pub const WORKLOAD: Workload = Workload { name: "no-space", about: "a small image that is full", shape, run };

fn shape(random: &mut Random) -> Shape {
    let (mib, agcount) = [(20, "agcount=1"), (33, "agcount=2")][random.below(2)];
    Shape { mib, options: vec![('b', "size=1024".to_owned()), ('d', agcount.to_owned())] }
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(file) = run.create(ROOT, b"file".to_vec(), 0o100_644)? else { return Ok(()) };
    // Most of the space goes in large pieces.
    for number in 0..400u32 {
        let name = format!("user.{number}").into_bytes();
        let value = Value { length: 65_000, seed: number as u8 };
        if !run.perform(&Operation::Set { node: file, name, value })? {
            break;
        }
    }
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
