//! The file below a loop device, as the device itself reports it: the name in sysfs may be gone by now, be that of
//! another file, or lie in another mount namespace.
//!
//! Source of facts: loop(4), `LOOP_GET_STATUS64`.

use rustix::fs::OFlags;
use rustix::ioctl::{Getter, Opcode};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const LOOP_GET_STATUS64: Opcode = 0x4c05;

/// What distinguishes files from each other: device and inode; and for a block device, which has several nodes, its
/// number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
    /// Zero if it is not a block device.
    block_device: u64,
}

impl FileId {
    pub(crate) fn of(file: &Metadata) -> Self {
        let block_device = if file.file_type().is_block_device() { file.rdev() } else { 0 };
        Self { device: file.dev(), inode: file.ino(), block_device }
    }

    /// A block device by its number, whatever its nodes are.
    pub(crate) fn of_block_device(number: u64) -> Self {
        Self { device: 0, inode: 0, block_device: number }
    }

    /// Its number, if it is a block device.
    pub(crate) fn block_device(&self) -> Option<u64> {
        Some(self.block_device).filter(|number| *number != 0)
    }

    /// Whether both contain the same bytes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inode != 0 && (self.device, self.inode) == (other.device, other.inode)
            || self.block_device != 0 && self.block_device == other.block_device
    }
}

/// `struct loop_info64`, of whose 232 bytes only the first three fields are used here.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    block_device: u64,
    rest: [u64; 26],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);

/// The file below the loop device with the number `number`, if this process may ask the device.
pub(crate) fn file_below(path: &Path, number: u64) -> Option<FileId> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let device = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = device.metadata().ok()?;
    if !metadata.file_type().is_block_device() || metadata.rdev() != number {
        return None;
    }
    let LoopInfo { device, inode, block_device, .. } = status(&device).ok()?;
    Some(FileId { device, inode, block_device })
}

#[allow(unsafe_code)]
fn status(device: &File) -> rustix::io::Result<LoopInfo> {
    // SAFETY: LOOP_GET_STATUS64 fills a `loop_info64`, which `LoopInfo` has the size and the layout of; any bytes are a
    // valid one. A device that is not a loop device refuses the request.
    unsafe { rustix::ioctl::ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }
}
