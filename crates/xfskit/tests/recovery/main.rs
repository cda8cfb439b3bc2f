//! Crash images that others made, recovered by us: the result must be the kernel's own.

mod kernel;
mod workload;
