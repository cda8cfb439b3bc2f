//! Holes, data and extents of files.

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// Bytes that read as zeros because nothing was written. The end of the file is one.
    Hole,
}

/// A run of a file's blocks that follow each other on disk. It may reach or lie behind the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Byte offset on the device.
    pub disk: u64,
    /// Nothing was written: it reads as zeros.
    pub unwritten: bool,
    /// Another file has the same blocks, or this one has them twice.
    pub shared: bool,
}
