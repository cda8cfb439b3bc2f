//! Handles of an image: clones of a filesystem, open files, listings; the last one closes it.

use crate::{image, reopen};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use xfskit::device::{Fua, MemoryDevice, WrapsDevice};
use xfskit::{DirEntry, Error, File, Filesystem, MkfsOptions, ReadDir, Walk, WalkEntry};

/// Whether what the device holds needs no recovery.
fn is_clean(bytes: Vec<u8>) -> bool {
    reopen(bytes).info().recovery.is_none()
}

/// What a program keeps open, without a lifetime.
struct Open {
    file: File,
    fs: Filesystem,
}

#[test]
fn a_struct_owns_a_file_and_its_filesystem_and_goes_to_another_thread() {
    fn is_owned<T: Send + Sync + 'static>() {}
    is_owned::<Filesystem>();
    is_owned::<File>();
    is_owned::<ReadDir>();
    is_owned::<DirEntry>();
    is_owned::<Walk>();
    is_owned::<WalkEntry>();

    let (device, fs) = image(32 << 20);
    let mut open = Open { file: fs.create_file("/file").unwrap(), fs };
    let open = thread::spawn(move || {
        open.file.write_all(b"from a thread").unwrap();
        open
    });
    let Open { file, fs } = open.join().unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"from a thread");
    drop(file);
    fs.close().unwrap();
    assert!(is_clean(device.to_bytes()));
}

/// Opens something that keeps the image open.
type Keep = fn(&Filesystem) -> Box<dyn std::any::Any>;

#[test]
fn closing_is_refused_while_anything_is_open_and_the_last_handle_closes() {
    let keep: [Keep; 4] = [
        |fs| Box::new(fs.clone()),
        |fs| Box::new(fs.open_file("/dir/file").unwrap()),
        |fs| Box::new(fs.read_dir("/dir").unwrap()),
        |fs| Box::new(fs.walk("/dir").unwrap()),
    ];
    for (round, keep) in keep.into_iter().enumerate() {
        let (device, fs) = image(32 << 20);
        fs.create_dir("/dir").unwrap();
        fs.write("/dir/file", "text").unwrap();
        fs.sync().unwrap();
        let kept = keep(&fs);
        let error = fs.close().unwrap_err();
        assert!(matches!(error, Error::InUse), "{round}: {error}");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert!(!is_clean(device.to_bytes()), "{round}");
        drop(kept);
        assert!(is_clean(device.to_bytes()), "{round}");
        assert_eq!(reopen(device.to_bytes()).read("/dir/file").unwrap(), b"text");
    }
}

#[test]
fn a_file_works_on_without_its_filesystem_and_closes_the_image() {
    let (device, fs) = image(32 << 20);
    let mut file = fs.create_file("/file").unwrap();
    fs.remove_file("/file").unwrap();
    let free = fs.info().free_bytes;
    drop(fs);
    file.write_all(&[7; 1 << 20]).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    assert!(Filesystem::options().open_device(device.clone()).is_err(), "the image is open still");
    file.close().unwrap();
    let fs = Filesystem::options().open_device(device).unwrap();
    assert_eq!((fs.info().recovery, fs.info().free_bytes >= free), (None, true));
}

#[test]
fn of_clones_that_close_at_once_one_closes_the_image() {
    for _ in 0..50 {
        let (device, fs) = image(16 << 20);
        fs.write("/file", "text").unwrap();
        let clones: Vec<_> = (0..4).map(|_| fs.clone()).collect();
        drop(fs);
        let closers: Vec<_> = clones.into_iter().map(|fs| thread::spawn(move || fs.close())).collect();
        let results: Vec<_> = closers.into_iter().map(|closer| closer.join().unwrap()).collect();
        let closed = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(closed, 1, "{results:?}");
        assert!(is_clean(device.to_bytes()));
    }
}

#[test]
fn an_entry_keeps_nothing_open_and_says_so_once_the_image_is_closed() {
    let (device, fs) = image(32 << 20);
    fs.write("/file", "text").unwrap();
    let entries: Vec<_> = fs.read_dir("/").unwrap().map(Result::unwrap).collect();
    assert_eq!(entries[0].metadata().unwrap().len(), 4);
    fs.close().unwrap();
    assert!(is_clean(device.to_bytes()));
    assert_eq!(entries[0].name(), b"file");
    let errors =
        [entries[0].metadata().map(drop), entries[0].get_xattr("user.a").map(drop), entries[0].list_xattrs().map(drop)];
    for error in errors {
        let message = error.unwrap_err().to_string();
        assert!(message.ends_with("/file: the filesystem was shut down: the image was closed"), "{message}");
    }
}

#[test]
fn a_new_uuid_is_refused_while_another_handle_is_open() {
    let (_, fs) = image(32 << 20);
    let (other, uuid) = (fs.clone(), fs.info().uuid);
    assert!(matches!(fs.set_uuid(xfskit::volume::NewUuid::Random), Err(Error::InUse)));
    assert_eq!(other.info().uuid, uuid);
    assert_ne!(other.set_uuid(xfskit::volume::NewUuid::Random).unwrap(), uuid);
}

#[test]
fn threads_share_a_file_by_its_owner() {
    let (_, fs) = image(32 << 20);
    fs.write("/file", vec![7; 1 << 20]).unwrap();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let mut file = fs.open_file("/file").unwrap();
            thread::spawn(move || {
                let mut read = Vec::new();
                file.read_to_end(&mut read).unwrap();
                read.len()
            })
        })
        .collect();
    // The filesystem goes first; the readers end it.
    drop(fs);
    assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 1 << 20));
}

/// A device that can be told to refuse writes.
struct Refusing(MemoryDevice, AtomicBool);

impl WrapsDevice for Refusing {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.0
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::Error::other("refused")),
            false => fua.write(&self.0, offset, data),
        }
    }
}

#[test]
fn the_last_file_that_is_closed_says_that_the_image_could_not_be() {
    let device = Arc::new(Refusing(MemoryDevice::new(32 << 20), AtomicBool::new(false)));
    let fs = xfskit::create_on(device.clone(), &MkfsOptions::new().small()).unwrap();
    let mut file = fs.create_file("/file").unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    drop(fs);
    device.1.store(true, Ordering::Relaxed);
    assert!(file.close().is_err());
}
