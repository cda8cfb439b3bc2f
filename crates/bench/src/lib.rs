//! The experiments of `xfskit bench`: each published measurement of a mechanism, with the mechanism on and off, in
//! this process, on the kernel's XFS or in any directory.
//!
//! ```text
//! Lab      what is measured, and where: sides, cases (what differs), rounds
//!   │  for each round, case and side
//!   ▼
//! Target   an image in this process, or a directory by system calls
//!   │  Work::run, one for each workload
//!   ▼
//! Bench    phases: threads, wall and CPU time, transactions and log bytes
//!   │
//!   ▼
//! Report   tables, plots and goals: text, Markdown, JSON, a page
//! ```
//! Only the ratios of times mean something, so sides take turns, and the best of the rounds counts. Counts are exact.
//! Scratch images and mount points lie in one folder, which is removed also after an error.
#![forbid(unsafe_code)]

mod case;
mod ceiling;
mod error;
mod ext4_mount;
mod fuse_mount;
mod lab;
mod loop_mount;
mod machine;
mod measure;
mod names;
mod null;
mod report;
mod scratch;
mod served_mount;
mod side;
mod subject;
mod workload;

pub use error::BenchError;
pub use lab::{Against, Options};
pub use measure::Watch;
pub use report::{Report, json, markdown, page, text};
pub use workload::{Experiment, Measured, run};
