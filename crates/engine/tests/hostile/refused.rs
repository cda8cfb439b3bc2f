//! Files that are no sound image: missing, short, in use or of another kind, and logs that are not clean.

use crate::named::{SOUND, assert_names, open};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xfskit_device::{Access, BlockDevice, FileDevice, MemoryDevice, OpenError, WrapsDevice};
use xfskit_engine::journal::LogState;
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_fuzz_harness::{Overlay, walk};

fn open_file(path: &Path, access: Access) -> Result<Volume, Error> {
    let device = FileDevice::open(path, access).expect("an image file");
    let options = MountOptions { read_only: access == Access::Read, ..MountOptions::default() };
    Volume::open(Arc::new(device), options)
}

#[test]
fn files_that_cannot_be_images_have_messages_of_their_own() {
    let scratch = xfskit_testkit::scratch();
    let refusal = |path: &Path| FileDevice::open(path, Access::Read).expect_err("a refusal");
    let missing = refusal(&scratch.file("missing"));
    assert!(matches!(missing, OpenError::Missing(_)) && missing.to_string().contains("missing: no such image"));
    let folder = refusal(scratch.path());
    assert!(matches!(folder, OpenError::NotAnImage { .. }) && folder.to_string().contains("folder"), "{folder}");
    let special = refusal(Path::new("/dev/null"));
    assert!(matches!(special, OpenError::NotAnImage { .. }), "{special}");

    let path = scratch.file("a.img");
    std::fs::write(&path, &**SOUND.bytes).expect("room for an image");
    let busy = open_file(&path, Access::Write).expect("a sound image");
    let error = FileDevice::open(&path, Access::Write).expect_err("a refusal");
    assert!(matches!(error, OpenError::Busy(_)) && error.to_string().contains("in use"), "{error}");
    busy.unmount().expect("a clean end");
}

#[test]
fn files_that_are_too_short_or_not_xfs_have_messages_of_their_own() {
    let scratch = xfskit_testkit::scratch();
    let path = scratch.file("a.img");
    let refused = |contents: &[u8]| {
        std::fs::write(&path, contents).expect("room for an image");
        let error = [Access::Read, Access::Write].map(|access| open_file(&path, access).err().expect("a refusal"));
        assert!(std::fs::read(&path).expect("the file") == contents, "a refused file was changed");
        let [first, second] = error.map(|error| error.to_string());
        assert_eq!(first, second);
        first
    };
    assert!(refused(b"").contains("0 bytes"));
    assert!(refused(&SOUND.bytes[..100]).contains("100 bytes"));
    assert!(refused(&SOUND.bytes[..512]).contains("cut short"));
    assert!(refused(&SOUND.bytes[..SOUND.bytes.len() / 2]).contains("cut short"));
    assert!(refused(&SOUND.bytes[..SOUND.bytes.len() - 512]).contains("cut short"));
    assert!(refused(&[0; 65536]).contains("not an XFS image"));
    let mut ext4 = vec![0; 65536];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert!(refused(&ext4).contains("not an XFS image"));
    let text = b"#!/bin/sh\necho not an image\n".repeat(100);
    assert!(refused(&text).contains("not an XFS image"));
}

/// An image whose log contains a change that is not written in place.
fn dirty() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::from_bytes(SOUND.bytes.to_vec()));
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).expect("a sound image");
    fs.create(fs.root(), b"only in the log", &NewFile::file(0o644), &Caller::root()).expect("room");
    fs.sync().expect("a device that works");
    device
}

#[test]
fn a_dirty_log_is_replayed_in_memory_or_looked_past_and_the_image_stays_as_it_is() {
    let device = dirty();
    let before = device.to_bytes();
    for no_recovery in [false, true] {
        let options = MountOptions { no_recovery, ..MountOptions::read_only() };
        let fs = Volume::open(Arc::clone(&device) as _, options).expect("a look");
        assert!(matches!(fs.mount().log_state, LogState::Dirty { .. }));
        assert_eq!(fs.mount().recovery.is_some(), !no_recovery);
        assert_eq!(fs.lookup(fs.root(), b"only in the log").is_ok(), !no_recovery);
        let found = walk(&fs, 1000);
        assert!(found.inodes > 70 && found.errors.is_empty(), "{}", found.messages());
    }
    assert!(device.to_bytes() == before, "an image with a dirty log was changed");
}

#[test]
fn a_dirty_log_is_replayed_by_who_writes() {
    let device = dirty();
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).expect("a recovery");
    assert!(fs.mount().recovery.as_ref().is_some_and(|report| report.transactions > 0));
    assert!(fs.lookup(fs.root(), b"only in the log").is_ok());
    fs.unmount().expect("a clean end");
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).expect("a clean image");
    assert!(fs.mount().log_state == LogState::Clean && fs.mount().recovery.is_none());
    assert!(fs.lookup(fs.root(), b"only in the log").is_ok());
}

#[test]
fn a_dirty_log_of_the_kernel_is_treated_the_same() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 400 << 20);
    reference.tool_output("mkfs.xfs", ["-q".as_ref(), path.as_os_str()]);
    let run = reference.uml(
        &path,
        "mount /dev/ubda /mnt && mkdir /mnt/home && sync && umount /mnt && mount /dev/ubda /mnt || exit 1
         for n in $(seq 200); do echo $n >/mnt/file$n; done; sync -f /mnt/file1; exit 99",
    );
    assert_eq!(run.status, 99, "{}", run.output);
    let before = std::fs::read(&path).expect("an image");
    let fs = open_file(&path, Access::Read).expect("a look");
    assert!(fs.lookup(fs.root(), b"home").is_ok() && fs.lookup(fs.root(), b"file200").is_ok());
    assert!(walk(&fs, 1000).errors.is_empty());
    drop(fs);
    assert!(std::fs::read(&path).expect("an image") == before, "an image with a dirty log was changed");
    open_file(&path, Access::Write).expect("a recovery").unmount().expect("a clean end");
    reference.repair_finds_nothing(&path);
}

#[test]
fn a_log_that_cannot_be_read_can_only_be_looked_past() {
    let (start, length) = SOUND.metadata.log;
    let place = format!("disk address {}", start / 512);
    let empty = vec![0; length];
    let header = |offset: usize, bytes: &[u8]| {
        let device = Arc::new(Overlay::new(&SOUND.bytes));
        for at in (start..start + length).step_by(512) {
            if SOUND.bytes[at..at + 4] == [0xfe, 0xed, 0xba, 0xbe] {
                device.patch(at + offset, bytes);
            }
        }
        device
    };
    let zeroed = Arc::new(Overlay::new(&SOUND.bytes));
    zeroed.patch(start, &empty);
    for (device, words) in [
        (zeroed, &["log at", place.as_str()][..]),
        (header(304, &[0xff; 16]), &["log record header at disk address", "uuid"]),
        (header(300, &[0, 0, 0, 9]), &["log record header at disk address", "little-endian"]),
        (header(12, &[0xff; 4]), &["log record header at disk address", "length"]),
        (header(8, &[0, 0, 0, 7]), &["log record header at disk address", "version"]),
        (header(320, &[0x7f; 4]), &["log record header at disk address", "record size"]),
    ] {
        device.seal();
        for read_only in [false, true] {
            assert_names(&open(&device, read_only).err().expect("a refusal"), words);
        }
        let options = MountOptions { no_recovery: true, ..MountOptions::read_only() };
        let fs = Volume::open(device as _, options).expect("a look");
        assert!(walk(&fs, 1000).errors.is_empty());
    }
    // With every checksum wrong there is no record that could have arrived whole.
    let torn = header(32, &[0x55; 4]);
    torn.seal();
    assert_names(&open(&torn, false).err().expect("a refusal"), &["log at", "a whole record"]);
}

/// Counts the reads of the log.
struct Counting {
    below: MemoryDevice,
    log: std::ops::Range<u64>,
    reads: AtomicU64,
}

impl WrapsDevice for Counting {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.below
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        if self.log.contains(&offset) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.below.read(offset, buffer)
    }
}

/// Opening an image to look at it must search for the end of its log only once.
#[test]
fn the_end_of_the_log_is_looked_for_once() {
    let (start, length) = SOUND.metadata.log;
    let reads = |no_recovery| {
        let below = MemoryDevice::from_bytes(SOUND.bytes.to_vec());
        let log = start as u64..(start + length) as u64;
        let device = Arc::new(Counting { below, log, reads: AtomicU64::new(0) });
        let options = MountOptions { no_recovery, ..MountOptions::read_only() };
        Volume::open(Arc::clone(&device) as _, options).expect("a sound image");
        device.reads.load(Ordering::Relaxed)
    };
    assert_eq!(reads(false), reads(true));
}
