//! The bits of a mode that name a type of file, as stat(2) gives them.

/// The bits of a mode that say what kind of file it is.
pub const MODE_TYPE: u16 = 0o170_000;
/// A directory's [`MODE_TYPE`] bits.
pub const MODE_DIR: u16 = 0o040_000;
/// A regular file's.
pub const MODE_REGULAR: u16 = 0o100_000;
/// A symbolic link's.
pub const MODE_SYMLINK: u16 = 0o120_000;
/// A character device's.
pub const MODE_CHAR: u16 = 0o020_000;
/// A block device's.
pub const MODE_BLOCK: u16 = 0o060_000;
/// A named pipe's.
pub const MODE_FIFO: u16 = 0o010_000;
/// A socket's.
pub const MODE_SOCKET: u16 = 0o140_000;
