//! Tar streams: GNU's and POSIX's (PAX) headers, attributes and ACLs as GNU tar and bsdtar write them, sparse files in
//! all of GNU's forms.
//!
//! ```text
//! header (512 bytes)  [contents, padded to 512]  header  ...  two blocks of zeros
//! before a header:    x: records "LENGTH KEY=VALUE\n" for the next header     g: records for all headers that follow
//!                     L: a long name     K: a long target
//! ```
//! Facts: POSIX.1-2017 pax, GNU tar's manual ("Tar Internals"), libarchive's tar(5).

mod acl;
mod header;
mod index;
mod packed;
mod pax;
mod places;
mod reader;
mod sink;
mod source;
mod sparse;

pub use acl::acl_text;
pub(crate) use index::ArchiveIndex;
pub use packed::unpacked;
pub use sink::TarSink;
pub use source::TarSource;

/// Everything in a stream is in blocks of this size.
const BLOCK: usize = 512;
