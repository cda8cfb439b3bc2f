//! A device that refuses to flush: earlier writes may be lost, so nothing may be reported as durable any more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xfskit_device::{BlockDevice, MemoryDevice, WrapsDevice};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{InodeNumber, Timestamp};

struct Refusing {
    inner: MemoryDevice,
    refuses_next: AtomicBool,
    /// How long it takes to refuse.
    hesitates: Duration,
}

impl WrapsDevice for Refusing {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.inner
    }

    fn pass_flush(&self) -> io::Result<()> {
        if self.refuses_next.swap(false, Ordering::Relaxed) {
            std::thread::sleep(self.hesitates);
            return Err(io::Error::other("the device refuses to flush"));
        }
        self.inner.flush()
    }
}

fn open(hesitates: Duration) -> (Arc<Refusing>, Volume) {
    let inner = MemoryDevice::new(300 << 20);
    make(&inner, None, &Options { uuid: Some([7; 16]), ..Options::default() }, Timestamp::default()).unwrap();
    let device = Arc::new(Refusing { inner, refuses_next: AtomicBool::new(false), hesitates });
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).unwrap();
    (device, fs)
}

/// A flush that failed must not count as done: the next fsync must not succeed because it has nothing to flush, and the
/// next checkpoint must not move the tail past metadata that may not have arrived.
#[test]
fn after_a_refused_flush_nothing_is_called_durable() {
    let (device, fs) = open(Duration::ZERO);
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    fs.write_at(file, 0, &[1; 8192]).unwrap();
    fs.fsync(file).unwrap();
    fs.write_keeping_times(file, 4096, &[2; 4096]).unwrap();
    device.refuses_next.store(true, Ordering::Relaxed);
    assert!(matches!(fs.fdatasync(file), Err(Error::Io { .. })));
    assert!(!device.refuses_next.load(Ordering::Relaxed), "it was asked to flush");
    assert!(matches!(fs.fdatasync(file), Err(Error::Shutdown(_))));
    assert!(matches!(fs.sync(), Err(Error::Shutdown(_))));
}

/// A thread that waits for the flush of another thread, which also covers its own bytes, must not take its failure for
/// success.
#[test]
fn a_flush_that_is_refused_is_refused_to_all_who_wait_for_it() {
    let (device, fs) = open(Duration::from_millis(200));
    let file = |name: &[u8]| {
        let file = fs.create(fs.root(), name, &NewFile::file(0o644), &Caller::root()).unwrap().inode;
        fs.write_at(file, 0, &[1; 4096]).unwrap();
        file
    };
    let files = [file(b"one"), file(b"two")];
    fs.sync().unwrap();
    files.iter().for_each(|&file| fs.write_keeping_times(file, 0, &[2; 4096]).unwrap());
    device.refuses_next.store(true, Ordering::Relaxed);
    let results = std::thread::scope(|scope| {
        let fs = &fs;
        let first = scope.spawn(move || fs.fdatasync(files[0]));
        // The device still hesitates when the second comes.
        std::thread::sleep(Duration::from_millis(50));
        let second = scope.spawn(move || fs.fdatasync(files[1]));
        [first.join().unwrap(), second.join().unwrap()]
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");
}

fn read(fs: &Volume, file: InodeNumber, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    assert_eq!(fs.read_at(file, offset, &mut buffer).unwrap(), bytes);
    buffer
}

/// Opens the image of a device again, and closes it as `xfskit log replay` does after what `change` does to the file.
fn change_and_close(device: &Arc<Refusing>, change: impl FnOnce(&Volume)) {
    let fs = Volume::open(Arc::clone(device) as _, MountOptions::default()).unwrap();
    change(&fs);
    fs.unmount_if_changed().unwrap();
}

#[test]
fn closing_what_has_changed_sees_contents_and_times_that_wait_in_memory() {
    let (device, fs) = open(Duration::ZERO);
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    fs.write_at(file, 0, &[1; 8192]).unwrap();
    fs.unmount().unwrap();

    let before = device.inner.to_bytes();
    change_and_close(&device, |fs| drop(read(fs, file, 0, 8192)));
    assert!(device.inner.to_bytes() == before, "an image that was only read is written");

    change_and_close(&device, |fs| fs.write_at(file, 1 << 20, &[3; 100]).map(drop).unwrap());
    let mut modified = None;
    change_and_close(&device, |fs| {
        assert_eq!(read(fs, file, 1 << 20, 100), [3; 100]);
        modified = Some(fs.stat(file).unwrap().mtime);
        fs.write_at(file, 0, &[2; 8192]).unwrap();
    });
    change_and_close(&device, |fs| {
        assert_eq!(read(fs, file, 0, 8192), [2; 8192]);
        assert!(Some(fs.stat(file).unwrap().mtime) > modified);
    });
}

/// After the end of the log that could not be written nothing is written behind it: recovery would meet a record that
/// arrived in part, or none.
#[test]
fn after_an_end_of_the_log_that_failed_nothing_goes_on() {
    use xfskit_engine::error_tags::LOG_IO_DONE;
    let (_device, mut fs) = open(Duration::ZERO);
    let root = Caller::root();
    fs.create(fs.root(), b"before", &NewFile::file(0o644), &root).unwrap();
    fs.sync().unwrap();
    // Emptying the log writes one record, and its end is the next.
    for nth in 1..8 {
        fs.mount().error_tags.arm(LOG_IO_DONE, nth);
        let ended = fs.end_log();
        let is_shut_down = fs.mount().journal.check().is_err();
        assert_eq!(ended.is_err(), is_shut_down, "{nth}: {ended:?}");
        if is_shut_down {
            assert!(fs.create(fs.root(), b"after", &NewFile::file(0o644), &root).is_err());
            return;
        }
        fs.create(fs.root(), format!("file {nth}").as_bytes(), &NewFile::file(0o644), &root).unwrap();
    }
    panic!("the place was not passed");
}
