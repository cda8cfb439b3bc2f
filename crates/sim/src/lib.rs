//! The crash simulator: cuts the power of a simulated device at every write, and looks at what recovery makes of it.
//!
//! ```text
//! workload + seed ─▶ run, beside a model ─▶ record of writes, flushes, acknowledgements; digest of the tree after each operation
//! record + cut    ─▶ durable pages, and any of the sectors that no flush covered ─▶ recover ─▶ tree = model after some operation
//!                                                                                  │         since the last acknowledged one
//!                                                                                  └▶ second cut during recovery, the same again
//! ```
//! A run is single-threaded and a function of its workload and seed; a state is a function of its run and its cut. So one
//! line names a failure and replays it. `docs/design/simulator.md` says what is explored and what counts as right.
#![forbid(unsafe_code)]

mod cut;
mod device;
mod explore;
mod judge;
mod model;
mod observed;
mod operation;
mod random;
mod run;
mod tree;
mod workload;

pub use cut::{Choice, Cut};
pub use device::{Event, Fault, Pages, SimDevice};
pub use explore::{Failure, Plan, Tally, crash, explore, replay};
pub use judge::Crashed;
pub use run::{Recording, Wishes, record};
pub use workload::{WORKLOADS, Workload, find};
