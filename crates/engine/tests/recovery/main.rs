//! Crash images of other implementations, recovered by us: the result must be the same as the kernel's. And the same
//! images with recovery cut off, blocks torn, and records changed.

mod afterwards;
mod again;
mod alike;
mod base;
mod by_hand;
mod chunks;
mod device;
mod formatted;
mod kernel;
mod links;
mod pieces;
mod quota;
mod quota_items;
mod refused;
mod replayed;
mod workload;
