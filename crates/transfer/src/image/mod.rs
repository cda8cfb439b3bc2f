//! Trees in XFS images.

mod sink;
mod source;

pub use sink::ImageSink;
pub use source::ImageSource;
