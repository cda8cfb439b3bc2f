//! The crash simulator: cuts the power of a simulated device at every write, and judges what recovery makes of it.
//!
//! ```text
//! workload + seed ─▶ run, beside a model ─▶ record of writes, flushes, acknowledgements; digest of the tree after each operation
//! record + cut    ─▶ durable pages, and any of the sectors that no flush covered ─▶ recover ─▶ tree = model after some operation
//!                                                                                  │         since the last acknowledged one
//!                                                                                  └▶ work goes on, and the power fails again
//! ```
//! A run is single-threaded and a function of its workload and seed; a state is a function of its run and its cut. So
//! one line names a failure and replays it. `docs/design/simulator.md` says what is explored and what counts as right.
#![forbid(unsafe_code)]

mod bad_place;
mod campaign;
mod clock;
mod contents;
mod cut;
mod device;
mod explore;
mod faults;
mod image;
mod judge;
mod log_history;
mod model;
mod observed;
mod onward;
mod operation;
mod random;
mod run;
mod times;
mod tree;
mod workload;

pub use bad_place::{Around, BadPlace, Refuses};
pub use campaign::{Campaign, Finding, Summary};
pub use cut::{Bounds, Choice, Cut};
pub use device::{Event, Fault, Kept, Pages, SimDevice};
pub use explore::{DeviceFault, Failure, Plan, Tally, crash, crash_for_kernel, explore, replay};
pub use faults::{bad_place, explore_bad_places, explore_failing, explore_lies, explore_tags};
pub use judge::{Crashed, Lie};
pub use run::{Recording, Wishes, record};
pub use workload::{WORKLOADS, Workload, find};
