//! Exit codes, by which a script distinguishes results. `--help` and the man pages show these tables; which error has
//! which code is in [`super::causes`].

/// The exit codes of every command but `check`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed (no such file, nothing is mounted there, no space left in the image or on
     the host, standard output that cannot be written, ...)
  2  wrong usage, or a file or device that is only overwritten with -f
  3  the image is damaged or cut short, its journal or its first superblock too, or a part of it
     cannot be read (the rest was listed or copied), or it is not an XFS image
  4  the image is in use by another program or the kernel
  5  the source of cp, import or mkfs --from is damaged, unsafe, no tar archive, or it changed
     meanwhile; or a manifest or a file of contexts makes no sense
  6  the image cannot be opened or read (missing, a folder, an I/O error)
  7  the image uses a feature that xfskit does not support
  8  this machine cannot mount it (no /dev/fuse, no fusermount3, a bad mount point)
  9  copied, but for what was refused: device nodes, attributes; with -p or -a, owners
  130, 143, 129, 141  in a shell: ended by SIGINT, SIGTERM or SIGHUP, with the image closed in good
     order; or by SIGPIPE, where the reader of cat, export, xattr get or xattr dump has gone";

/// The exit codes of `check`.
pub const CHECK_EXIT_CODES: &str = "\
Exit codes (those of fsck):
  0   nothing is wrong
  1   faults were found; nothing was changed, xfs_repair mends them
  4   the journal is dirty and was not replayed: faults may disappear after a replay
  8   the image could not be checked (missing, in use, not supported, an I/O error), or the report
      could not be written
  16  wrong usage, the device of an external journal that is missing among it";

/// The operation failed.
pub const FAILED: u8 = 1;
/// The arguments are wrong.
pub const USAGE: u8 = 2;
/// The image is damaged.
pub const DAMAGED: u8 = 3;
/// The image is in use.
pub const BUSY: u8 = 4;
/// The source of a copy is damaged or unsafe.
pub const BAD_SOURCE: u8 = 5;
/// The image cannot be opened or read.
pub const UNREADABLE: u8 = 6;
/// The image uses a feature that is not supported.
pub const UNSUPPORTED: u8 = 7;
/// This machine cannot mount it.
pub const NO_MOUNT: u8 = 8;
/// Something was copied, but parts were refused.
pub const LOSSES: u8 = 9;
