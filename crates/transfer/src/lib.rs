//! Moves trees of files between XFS images, folders of the host and tar streams.
//!
//! ```text
//! source (in a thread of its own)  ──batches of events──▶  sink
//!   HostSource                                              HostSink
//!   ImageSource                                             ImageSink
//!   TarSource                                               TarSink
//! ```
//! All attributes of a file are moved: permissions, owner, times, extended attributes with ACLs, holes, further names.
//! Anything that a side refuses is counted ([`Losses`]) and reported at the end. A file that is damaged, or changes
//! while it is read, is an error, and no incomplete file keeps its name.
//!
//! Layer 13: it uses the engine's operations and nothing below them.
#![forbid(unsafe_code)]

mod archive;
mod environment;
mod error;
mod event;
mod host;
mod image;
mod pipe;
mod size;

pub use archive::{TarSink, TarSource};
pub use environment::FixedEnvironment;
pub use error::{LeftOut, Losses, NotReplaced, Result, TransferError};
pub use event::{Contents, Event, Kind, Meta, Node};
pub use host::{Durability, HostSink, HostSource, Keeper, Written};
pub use image::{Found, ImageSink, ImageSource, ImageWalk, WalkEvent};
pub use pipe::{Adjust, Attributes, Existing, LeaveOut, Outlet, Progress, Sink, Sort, Source, survey, transfer};
pub use size::{Needs, Shape};
