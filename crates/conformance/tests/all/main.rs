//! The cases of this crate, on every filesystem that there is.

mod kernel;
mod memory;
mod path_volume;
mod system;
mod xfs;
