//! What the command prints, and how it ends.

pub mod causes;
pub mod dump;
pub mod error;
pub mod exit;
pub mod progress;
pub mod screen;
pub mod text;
