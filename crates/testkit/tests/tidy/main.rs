//! The whole tree, by its text: what a reader may rely on in every crate. Nothing is built for it.
//!
//! | file | what is held |
//! |---|---|
//! | `layers` | no upward call: of crates, and of the engine's modules |
//! | `circles` | no circle between the files of a folder |
//! | `shape` | the sizes of lines, functions and files |
//! | `habits` | no mutable static, no file that nothing builds, no device that wraps by half, no word that was left |

mod circles;
mod habits;
mod layers;
mod shape;
mod source;
