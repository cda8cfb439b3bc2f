//! Everything that the engine takes from outside besides its devices: the clock and randomness.

pub(crate) use xfskit_vfs::environment::mix;
pub use xfskit_vfs::{Environment, SeededEnvironment, SystemEnvironment};
