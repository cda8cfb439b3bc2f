//! What the tests with damaged images and the fuzzers share.
//!
//! ```text
//! image()  ──▶ a populated image in memory       blocks()  ──▶ where its metadata lies, with checksums
//! Mutator  ──▶ damages blocks, fixes checksums   Overlay   ──▶ a device over the damaged image, that counts writes
//! walk()   ──▶ reads everything reachable        exercise()──▶ makes random changes
//! Watchdog ──▶ ends a process that hangs         targets, fuse, archive, disk: the fuzz targets
//! fuzz::run() drives a target for a while        report    ──▶ counts what the targets did
//! ```
//! Every read and every change may fail. It must not panic, hang, or take memory without bound.
#![forbid(unsafe_code)]

pub mod archive;
mod behaviour;
mod blocks;
pub mod disk;
mod exercise;
pub mod fuse;
pub mod fuzz;
mod image;
mod mutate;
mod overlay;
mod random;
pub mod report;
pub mod targets;
mod walk;
mod watchdog;

pub use behaviour::Behaviour;
pub use blocks::{Block, Kind, Metadata, blocks};
pub use exercise::exercise;
pub use image::{Recipe, image, populate};
pub use mutate::Mutator;
pub use overlay::Overlay;
pub use random::Random;
pub use walk::{Findings, look, walk};
pub use watchdog::{Watchdog, peak_memory_bytes};
