//! How far the kernel reads ahead of a program that reads a file from beginning to end.
//!
//! By itself that is 128 KiB, so a long read becomes many small requests, of which one is answered at a time. The limit
//! of a mount stands in `/sys/class/bdi/MAJOR:MINOR/read_ahead_kb`, and root may raise it. A server may not ask for
//! more when it answers INIT: the kernel takes the smaller of both.
//!
//! Source of facts: `Documentation/ABI/testing/sysfs-class-bdi`; `process_init_reply` in `fs/fuse/inode.c`, Linux 6.18.

use crate::mountinfo::MountEntry;
use std::fs;
use std::path::PathBuf;

/// Four requests of the largest size: while one is answered and another one is copied, two wait.
const READ_AHEAD_KIB: u64 = 4096;

/// Raises the limit of a mount, where that is permitted. A limit that is higher, by a rule of udev perhaps, stays.
pub(crate) fn widen(entry: &MountEntry) {
    let path: PathBuf = ["/sys/class/bdi", &entry.device, "read_ahead_kb"].iter().collect();
    let now = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if now.is_none_or(|kib| kib >= READ_AHEAD_KIB) {
        return;
    }
    if let Err(error) = fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, "the kernel reads ahead by its own default");
    }
}
