//! Images that must not be trusted. Whatever is wrong with them, the result is an error, never a panic, a hang, memory
//! without bound, or a write.

mod clusters;
mod fuzzed;
mod headers;
mod named;
mod random;
mod refused;
