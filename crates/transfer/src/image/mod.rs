//! Trees in XFS images.

mod layer;
mod layer_paths;
mod links;
mod reader;
mod sink;
mod source;
mod walk;

pub use sink::ImageSink;
pub use source::ImageSource;
pub use walk::{Found, ImageWalk, WalkEvent};
