//! The cases of this crate, on every filesystem that there is.

mod memory;
mod xfs;
