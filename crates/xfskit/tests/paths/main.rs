//! The level of paths: the same calls as by `std::fs`, what a crash leaves, open files, threads, opening and making.

mod crash;
mod damage;
mod files;
mod handles;
mod images;
mod like_libc;
mod like_std;
mod messages;
mod threads;

use std::sync::Arc;
use xfskit::device::MemoryDevice;
use xfskit::{Filesystem, MkfsOptions};

/// A new image in memory, open.
fn image(bytes: usize) -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let fs = xfskit::create_on(device.clone(), &MkfsOptions::new().small()).unwrap();
    (device, fs)
}

/// Opens what a device holds now, as after a power cut.
fn reopen(bytes: Vec<u8>) -> Filesystem {
    Filesystem::options().open_device(Arc::new(MemoryDevice::from_bytes(bytes))).unwrap()
}
