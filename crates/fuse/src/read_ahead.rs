//! How far the kernel reads ahead of a program that reads a file from beginning to end.
//!
//! By itself that is 128 KiB, so a long read becomes many small requests, of which one is answered at a time. The limit
//! of a mount stands in `/sys/class/bdi/MAJOR:MINOR/read_ahead_kb`, and root may raise it. A server may not ask for
//! more when it answers INIT: the kernel takes the smaller of both.
//!
//! Source of facts: `Documentation/ABI/testing/sysfs-class-bdi`; `process_init_reply` in `fs/fuse/inode.c`, Linux 6.18.

use crate::place::Place;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Four requests of the largest size: while one is answered and another one is copied, two wait.
const READ_AHEAD_KIB: u64 = 4096;

/// Raises the limit of a mount, where that is permitted. A limit that is higher, by a rule of udev perhaps, stays.
pub(crate) fn widen(place: &Place) {
    let Some(entry) = place.entry() else { return };
    let path: PathBuf = ["/sys/class/bdi", &entry.device, "read_ahead_kb"].iter().collect();
    let Ok(mut file) = File::options().read(true).write(true).open(&path) else { return };
    let mut text = String::new();
    let now = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u64>().ok());
    // While the mount is there, no other has its number, so the file is that of this one.
    if now.is_none_or(|kib| kib >= READ_AHEAD_KIB) || place.is_there() != Some(true) {
        return;
    }
    if let Err(error) = file.write_all_at(READ_AHEAD_KIB.to_string().as_bytes(), 0) {
        tracing::debug!(%error, "the kernel reads ahead by its own default");
    }
}
