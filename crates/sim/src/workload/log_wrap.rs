//! The smallest log, written around many times, with and without pressure to move its tail.

use super::attributes;
use super::common::Workload;
use crate::far::Distance;
use crate::image::Shape;
use crate::node::ROOT;
use crate::operation::Operation;
use crate::random::Random;
use crate::run::Run;
use crate::stop::Stop;

pub const WORKLOAD: Workload = Workload {
    name: "log-wrap",
    about: "the smallest log, around many times",
    share: 1,
    distance: Distance::of,
    shape,
    run,
};

fn shape(random: &mut Random) -> Shape {
    let stripe = ["su=4096", "su=32768", "sunit=0"][random.below(3)];
    let options = vec![('d', "agcount=1".to_owned()), ('b', "size=1024".to_owned()), ('l', stripe.to_owned())];
    Shape { mib: 24, options }
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let Some(file) = run.create(ROOT, b"file".to_vec(), 0o100_644)? else { return Ok(()) };
    for _ in 0..500 {
        match run.random.below(3) {
            0 => {
                let name = run.fresh_name(ROOT);
                run.create(ROOT, name, 0o100_644)?;
            }
            1 => {
                let operation = attributes::change(run, file, 3);
                run.perform(&operation)?;
            }
            _ => {
                let Some((dir, name)) = run.any_name().filter(|(_, name)| name != b"file") else { continue };
                run.perform(&Operation::Unlink { dir, name })?;
            }
        }
        run.settle(2)?;
    }
    Ok(())
}
