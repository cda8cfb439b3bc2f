//! A device as one across a network: each request takes a while, and many may be on their way.

use crate::make_file;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use xfskit_device::{BlockDevice, Fua, Hints, MemoryDevice, WrapsDevice};
use xfskit_engine::{MountOptions, Permissions, Volume, WholeFile};
use xfskit_ondisk::Timestamp;
use xfskit_testkit::{kernel_mount, reference, scratch};

const FILES: usize = 1500;

struct Far {
    device: MemoryDevice,
    now: AtomicUsize,
    most: AtomicUsize,
    writes: AtomicUsize,
}

impl Far {
    /// With a filesystem on it.
    fn with_image() -> Arc<Self> {
        let device = MemoryDevice::new(160 << 20);
        let log_size = Some(xfskit_mkfs::Size::Bytes(32 << 20));
        let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, log_size, ..Default::default() };
        xfskit_mkfs::make(&device, None, &options, Timestamp::default()).unwrap();
        let (now, most, writes) = Default::default();
        Arc::new(Self { device, now, most, writes })
    }

    /// How many writes there were since this was called, and how many of them at a time.
    fn take(&self) -> (usize, usize) {
        (self.writes.swap(0, Ordering::Relaxed), self.most.swap(0, Ordering::Relaxed))
    }
}

impl WrapsDevice for Far {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.device
    }

    fn pass_hints(&self) -> Hints {
        Hints { queue_depth: 8, ..self.device.hints() }
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        self.now.fetch_sub(1, Ordering::Relaxed);
        fua.write(&self.device, offset, data)
    }
}

#[test]
fn blocks_are_written_back_by_many_requests_at_once() {
    let far = Far::with_image();
    let fs = Volume::open(Arc::clone(&far) as _, MountOptions::default()).unwrap();
    for number in 0..FILES {
        make_file(&fs, &format!("a file with the number {number}"));
    }
    fs.mount().journal.force_all().unwrap();
    far.take();
    fs.unmount().unwrap();
    let (_, most) = far.take();
    assert!((4..=8).contains(&most), "{most} requests at once");
    let names = judge(&far, |root| std::fs::read_dir(root).unwrap().count());
    assert!(names.is_none_or(|names| names == FILES));
}

/// What the kernel says of the image, before which xfs_repair finds nothing.
fn judge<T>(far: &Far, ask: impl FnOnce(&Path) -> T) -> Option<T> {
    let scratch = scratch();
    let path = scratch.file("image");
    std::fs::write(&path, far.device.to_bytes()).unwrap();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&path);
    }
    let kernel = kernel_mount(&path)?;
    let said = ask(kernel.path());
    kernel.unmount();
    Some(said)
}

fn contents(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n / 3 + number * 31) as u8).collect()
}

#[test]
fn files_are_written_out_by_many_requests_at_once() {
    let far = Far::with_image();
    let fs = Volume::open(Arc::clone(&far) as _, MountOptions::default()).unwrap();
    for number in 0..200 {
        let file = make_file(&fs, &number.to_string());
        fs.write_at(file, 0, &contents(number, 100 + number * 50)).unwrap();
    }
    far.take();
    fs.sync().unwrap();
    let (_, most) = far.take();
    assert!((4..=8).contains(&most), "{most} requests at once");
    fs.unmount().unwrap();
    judge(&far, |root| {
        for number in 0..200 {
            let found = std::fs::read(root.join(number.to_string())).unwrap();
            assert!(found == contents(number, 100 + number * 50), "{number}");
        }
    });
}

/// The device cuts long writes, and has the parts on their way together.
#[test]
fn what_lies_together_is_written_at_once() {
    const BYTES: usize = 6 << 20;
    let far = Far::with_image();
    let fs = Volume::open(Arc::clone(&far) as _, MountOptions::default()).unwrap();
    let large = make_file(&fs, "large");
    let whole = contents(0, BYTES);
    for (number, piece) in whole.chunks(4096).enumerate() {
        fs.write_at(large, number as u64 * 4096, piece).unwrap();
    }
    far.take();
    fs.fsync(large).unwrap();
    let (writes, _) = far.take();
    assert!(writes <= 3, "{writes} writes for 6 MiB and the journal");
    let small: Vec<_> = (0..100).map(|number| (format!("small {number}"), contents(number, 4096))).collect();
    let files: Vec<_> = small.iter().map(|(name, contents)| whole_file(name, contents)).collect();
    let dir = fs.root();
    far.take();
    let made = fs.make_files(dir, &files).unwrap().len();
    let (writes, _) = far.take();
    assert!(made > 30 && writes == 1, "{writes} writes for the contents of {made} files");
    fs.unmount().unwrap();
    judge(&far, |root| {
        assert!(std::fs::read(root.join("large")).unwrap() == whole);
        small[..made].iter().for_each(|(name, contents)| assert!(std::fs::read(root.join(name)).unwrap() == *contents));
    });
}

/// Records of one checkpoint need no order among themselves.
#[test]
fn records_of_a_checkpoint_are_written_at_the_same_time() {
    let far = Far::with_image();
    let fs = Volume::open(Arc::clone(&far) as _, MountOptions::default()).unwrap();
    for number in 0..FILES {
        make_file(&fs, &format!("a file with the number {number}"));
    }
    far.take();
    fs.mount().journal.force_all().unwrap();
    let (writes, most) = far.take();
    assert!((2..=8).contains(&most) && writes > 2, "{most} of {writes} writes at once");
    // Without a close: what the kernel finds, it has recovered.
    let names = judge_dirty(&far);
    assert!(names.is_none_or(|names| names == FILES));
}

/// How many names the kernel finds in the root after it has recovered the image.
fn judge_dirty(far: &Far) -> Option<usize> {
    let scratch = scratch();
    let path = scratch.file("image");
    std::fs::write(&path, far.device.to_bytes()).unwrap();
    let kernel = kernel_mount(&path)?;
    let names = std::fs::read_dir(kernel.path()).unwrap().count();
    kernel.unmount();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&path);
    }
    Some(names)
}

fn whole_file<'a>(name: &'a str, contents: &'a [u8]) -> WholeFile<'a> {
    let (permissions, time) = (Permissions::new(0o644), Timestamp::default());
    WholeFile { name: name.as_bytes(), permissions, uid: 0, gid: 0, atime: time, mtime: time, xattrs: &[], contents }
}
