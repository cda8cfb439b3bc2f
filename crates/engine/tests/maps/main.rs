//! Operations on the extent maps of files: against a model of bytes, the kernel and xfs_repair.

mod clones;
mod clones_without_space;
mod cuts;
mod insert;
mod kernel;
mod model;
mod random;
mod rules;
mod scale;
mod short;
#[path = "../stress/mod.rs"]
mod stress;
mod threads;
mod times;
