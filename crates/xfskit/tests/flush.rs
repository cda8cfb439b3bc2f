//! A device that refuses to flush: what was written before may be lost, so nothing may be called durable any more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xfskit::device::{BlockDevice, MemoryDevice};
use xfskit::ondisk::Timestamp;
use xfskit::{Caller, Error, Filesystem, MountOptions, NewFile};
use xfskit_mkfs::{Options, make};

struct Refusing {
    inner: MemoryDevice,
    refuses_next: AtomicBool,
}

impl BlockDevice for Refusing {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }
    fn flush(&self) -> io::Result<()> {
        if self.refuses_next.swap(false, Ordering::Relaxed) {
            return Err(io::Error::other("the device refuses to flush"));
        }
        self.inner.flush()
    }
}

/// A flush that failed counted as done: the next fsync had nothing to flush and succeeded, and the next checkpoint moved the tail over
/// metadata that may not have arrived. Found by the crash simulator (`full-contents --seed 7000014 --state 287:none --fail-from 145`).
#[test]
fn after_a_refused_flush_nothing_is_called_durable() {
    let inner = MemoryDevice::new(300 << 20);
    make(&inner, None, &Options { uuid: Some([7; 16]), ..Options::default() }, Timestamp::default()).unwrap();
    let device = Arc::new(Refusing { inner, refuses_next: AtomicBool::new(false) });
    let fs = Filesystem::open(Arc::clone(&device) as _, MountOptions::default()).unwrap();
    let file = fs.create(fs.root(), b"file", &NewFile::new(0o100_644), &Caller::root()).unwrap().inode;
    fs.write_at(file, 0, &[1; 8192]).unwrap();
    fs.fsync(file).unwrap();
    fs.write_keeping_times(file, 4096, &[2; 4096]).unwrap();
    device.refuses_next.store(true, Ordering::Relaxed);
    assert!(matches!(fs.fdatasync(file), Err(Error::Io { .. })));
    assert!(!device.refuses_next.load(Ordering::Relaxed), "it was asked to flush");
    assert!(matches!(fs.fdatasync(file), Err(Error::Shutdown(_))));
    assert!(matches!(fs.sync(), Err(Error::Shutdown(_))));
}
