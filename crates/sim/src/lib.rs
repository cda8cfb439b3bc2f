//! The crash simulator: cuts the power of a simulated device at every write, and judges what recovery makes of it.
//!
//! ```text
//! workload + seed ─▶ run, beside a model ─▶ record of writes, flushes, acknowledgements;
//!                                           digest of the tree after each operation
//! record + cut ─▶ durable pages, and any of the sectors that no flush covered ─▶ recover
//!                   ├▶ tree = model after some operation since the last acknowledged one
//!                   └▶ work goes on, and the power fails again
//! ```
//! A run has one thread, also where the engine would have several, and is a function of its workload and seed; a state
//! is a function of its run and its cut. So one line names a failure and replays it. `docs/design/simulator.md` says
//! what is explored and what counts as right.
#![forbid(unsafe_code)]

mod bad_place;
mod below;
mod bounds;
mod campaign;
mod clock;
mod contents;
mod crash;
mod cut;
mod device;
mod events;
mod explore;
mod far;
mod faults;
mod image;
mod judge;
mod log_history;
mod lower;
mod model;
mod node;
mod observed;
mod onward;
mod operation;
mod pages;
mod random;
mod recording;
mod run;
mod stop;
mod times;
mod tree;
mod workload;

pub use bad_place::{BadPlace, FailingRequests, TornWrite};
pub use below::{Below, explore_below, judge_lower};
pub use bounds::Bounds;
pub use campaign::{Campaign, Finding, Summary};
pub use crash::{crash, crash_for_kernel};
pub use cut::{Choice, Cut};
pub use device::{Fault, SimDevice};
pub use events::{DurableParts, Event};
pub use explore::{DeviceFault, Failure, Plan, Tally, explore, replay};
pub use far::{Distance, Together};
pub use faults::{bad_place, explore_bad_places, explore_failing, explore_lies, explore_tags};
pub use judge::{Crashed, Lie};
pub use lower::Lower;
pub use pages::Pages;
pub use recording::{MakeLower, Recording, RunOptions, record, record_on};
pub use workload::{WORKLOADS, Workload, find};
