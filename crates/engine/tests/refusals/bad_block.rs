//! A block that the device refuses stays in the journal, and the filesystem lives on as long as the journal has room.

use crate::stress::Image;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use xfskit_device::{Access, FileDevice, Fua, WrapsDevice};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_ondisk::Lsn;
use xfskit_testkit::kernel_mount;

/// A device on which some bytes cannot be written while `is_bad`.
struct BadPlace {
    inner: FileDevice,
    bytes: Mutex<Range<u64>>,
    is_bad: AtomicBool,
    refused: Mutex<u64>,
}

impl WrapsDevice for BadPlace {
    type Below = FileDevice;

    fn below(&self) -> &FileDevice {
        &self.inner
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        let bad = self.bytes.lock().unwrap().clone();
        if self.is_bad.load(Ordering::Relaxed) && offset < bad.end && bad.start < offset + data.len() as u64 {
            *self.refused.lock().unwrap() += 1;
            return Err(io::Error::other("a bad sector"));
        }
        fua.write(&self.inner, offset, data)
    }
}

/// A filesystem with files in it, on a device that refuses the sector of AG 0's free space header.
fn open(image: &Image) -> (Volume, Arc<BadPlace>) {
    let inner = FileDevice::open(&image.path, Access::Write).unwrap();
    let (is_bad, refused) = (AtomicBool::new(false), Mutex::default());
    let device = Arc::new(BadPlace { inner, bytes: Mutex::new(512..1024), is_bad, refused });
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).unwrap();
    device.is_bad.store(true, Ordering::Relaxed);
    (fs, device)
}

fn make(fs: &Volume, name: &str) -> Result<(), Error> {
    let file = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root())?;
    fs.write_at(file.inode, 0, name.as_bytes())
}

fn push(fs: &Volume) -> Result<usize, Error> {
    fs.mount().journal.push_tail(Lsn(u64::MAX))
}

/// Checks that the kernel finds the files `0..count` after it has recovered the journal.
fn expect_in_kernel(image: &Image, count: usize) {
    let Some(kernel) = kernel_mount(&image.path) else { return };
    for name in (0..count).map(|number| number.to_string()) {
        assert_eq!(std::fs::read(kernel.path().join(&name)).unwrap(), name.as_bytes());
    }
    kernel.unmount();
    image.assert_sound();
}

#[test]
fn the_filesystem_lives_on_and_what_is_synced_is_durable() {
    let image = Image::new(64, &[]);
    let (fs, device) = open(&image);
    for round in 0..3 {
        (0..20).for_each(|number| make(&fs, &(round * 20 + number).to_string()).unwrap());
        fs.sync().unwrap();
        assert!(matches!(push(&fs), Err(Error::Io { offset: 512, .. })), "who asks for a write-back learns of it");
    }
    assert!(*device.refused.lock().unwrap() >= 3, "each push tries again");
    drop(fs);
    expect_in_kernel(&image, 60);
}

#[test]
fn a_device_that_takes_the_block_later_gets_it() {
    let image = Image::new(64, &[]);
    let (fs, device) = open(&image);
    make(&fs, "0").unwrap();
    fs.sync().unwrap();
    push(&fs).unwrap_err();
    device.is_bad.store(false, Ordering::Relaxed);
    push(&fs).unwrap();
    fs.unmount().unwrap();
    image.assert_sound();
    expect_in_kernel(&image, 1);
}

#[test]
fn an_unmount_reports_it_and_leaves_the_rest_to_recovery() {
    let image = Image::new(64, &[]);
    let (fs, _) = open(&image);
    (0..20).for_each(|number| make(&fs, &number.to_string()).unwrap());
    assert!(matches!(fs.unmount(), Err(Error::Io { offset: 512, .. })));
    expect_in_kernel(&image, 20);
}

#[test]
fn a_full_journal_refuses_what_is_new_and_loses_nothing() {
    let image = Image::new(320, &[('l', "size=8m")]);
    let (fs, device) = open(&image);
    let refused = (0..200_000).find_map(|number| Some((number, make(&fs, &number.to_string()).err()?)));
    let (made, error) = refused.expect("a journal of 8 MiB is full sometime");
    assert!(matches!(error, Error::Io { offset: 512, .. }), "{error}");
    fs.mount().journal.check().unwrap();
    fs.lookup(fs.root(), b"0").unwrap();
    // Names are durable, though not all contents were written out. There is room again as soon as the device takes the
    // block.
    assert!(matches!(fs.sync(), Ok(()) | Err(Error::Io { .. })));
    fs.mount().journal.check().unwrap();
    device.is_bad.store(false, Ordering::Relaxed);
    fs.sync().unwrap();
    if fs.lookup(fs.root(), made.to_string().as_bytes()).is_err() {
        make(&fs, &made.to_string()).unwrap();
    }
    fs.unmount().unwrap();
    image.assert_sound();
    expect_in_kernel(&image, made);
}

/// The journal has room to remove a name, and none to free the inode.
#[test]
fn inodes_that_could_not_be_freed_are_freed_before_the_log_is_closed() {
    let image = Image::new(320, &[('l', "size=8m")]);
    let (fs, device) = open(&image);
    device.is_bad.store(false, Ordering::Relaxed);
    let mut old = Vec::new();
    for number in 0..3000 {
        make(&fs, &format!("old {number}")).unwrap();
        old.push(fs.lookup(fs.root(), format!("old {number}").as_bytes()).unwrap().inode);
    }
    fs.sync().unwrap();
    // Nothing before the log can be written to its place.
    let geometry = &fs.mount().geometry;
    let log = geometry.log_start.and_then(|log| geometry.fs_block_address(log)).expect("the log lies in the image");
    *device.bytes.lock().unwrap() = 0..log.bytes();
    device.is_bad.store(true, Ordering::Relaxed);
    let unlink = |number: usize| fs.unlink(fs.root(), format!("old {number}").as_bytes(), &Caller::root());
    let mut removed = 0;
    while removed < 3000 && unlink(removed).is_ok() {
        removed += 1;
        // As long as there is room for these files, too.
        (0..4).for_each(|more| drop(make(&fs, &format!("new {removed} {more}"))));
        let _ = fs.mount().sync();
    }
    assert!(removed > 0 && removed < 3000, "{removed} names went, then {:?}", unlink(removed));
    fs.mount().journal.check().unwrap();
    let left = old[..removed].iter().filter(|&&inode| fs.stat(inode).is_ok()).count();
    assert!(left > 0, "some could not be freed");
    device.is_bad.store(false, Ordering::Relaxed);
    fs.unmount().unwrap();
    image.assert_sound();
}
