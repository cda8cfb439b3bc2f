//! Images that nobody should trust: whatever is wrong with them, the answer is a message, never a panic, a hang, memory
//! without bound, or a write.

mod clusters;
mod fuzzed;
mod headers;
mod named;
mod random;
mod refused;
