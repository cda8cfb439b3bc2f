//! A device as one across a network: each request takes a while, and many may be on their way.

use crate::make_file;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use xfskit::device::{BlockDevice, MemoryDevice};
use xfskit::ondisk::Timestamp;
use xfskit::volume::{MountOptions, Volume};
use xfskit_testkit::{kernel_mount, reference, scratch};

const FILES: usize = 1500;

struct Far {
    device: MemoryDevice,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl BlockDevice for Far {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn requests_at_once(&self) -> usize {
        8
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.device.write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
}

#[test]
fn blocks_are_written_back_by_many_requests_at_once() {
    let device = MemoryDevice::new(64 << 20);
    let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
    xfskit_mkfs::make(&device, None, &options, Timestamp::default()).unwrap();
    let far = Arc::new(Far { device, now: AtomicUsize::new(0), most: AtomicUsize::new(0) });
    let fs = Volume::open(Arc::clone(&far) as _, MountOptions::default()).unwrap();
    for number in 0..FILES {
        make_file(&fs, &format!("a file with the number {number}"));
    }
    fs.mount().journal.force_all().unwrap();
    far.most.store(0, Ordering::Relaxed);
    fs.unmount().unwrap();
    let most = far.most.load(Ordering::Relaxed);
    assert!((4..=8).contains(&most), "{most} requests at once");
    let scratch = scratch();
    let path = scratch.file("image");
    std::fs::write(&path, far.device.to_bytes()).unwrap();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&path);
    }
    if let Some(kernel) = kernel_mount(&path) {
        assert_eq!(std::fs::read_dir(kernel.path()).unwrap().count(), FILES);
        kernel.unmount();
    }
}
