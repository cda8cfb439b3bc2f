//! Moves trees of files between XFS images, folders of the host, tar streams and container images.
//!
//! ```text
//! source (in a thread of its own)  ──batches of events──▶  sink
//!   HostSource, ProtoSource                                 HostSink
//!   ImageSource                                             ImageSink
//!   TarSource, ContainerSource                              TarSink
//!   Layers: several of these, one over the other
//! ```
//! On the way [`Adjust`] changes owners, times and attributes.
//!
//! All attributes of a file are moved: permissions, owner, times, extended attributes with ACLs, holes, further names.
//! Anything that a side refuses is counted ([`Losses`]) and reported at the end. A file that is damaged, or changes
//! while it is read, is an error, and no incomplete file keeps its name.
//!
//! Layer 13: it uses the engine's operations and nothing below them.
#![forbid(unsafe_code)]

mod adjust;
mod archive;
mod environment;
mod error;
mod event;
mod host;
mod image;
mod labels;
mod layers;
mod manifest;
mod manifest_source;
mod oci;
mod paths;
mod pipe;
mod queue;
mod size;
mod whiteout;
mod whole;

pub use adjust::{Adjust, Asked, Attributes, IdMap, IdRange, Labels, Owners};
pub use archive::{TarSink, TarSource, acl_text, unpacked};
pub use environment::FixedEnvironment;
pub use error::{LeftOut, Losses, NotReplaced, Result, TransferError, shown};
pub use event::{Contents, Event, FileKind, Hidden, Kind, Meta, Node, OverLinks, is_not_the_files};
pub use host::{
    Durability, HostSink, HostSource, Keeper, NotSeen, ProtoSource, Slashes, Written, ask_pretender, refuse_other_names,
};
pub use image::{Found, ImageSink, ImageSource, ImageWalk, WalkEvent};
pub use labels::FileContexts;
pub use layers::Layers;
pub use manifest::Manifest;
pub use manifest_source::ManifestSource;
pub use oci::{ContainerImage, ContainerSource, Platform};
pub use pipe::{Existing, LeaveOut, Outlet, Progress, Sink, Sort, Source, survey, survey_sizes, transfer};
pub use size::{LeastNeeds, Needs, Shape};
pub use whiteout::Whiteouts;
pub use whole::{copy_in, copy_out};
