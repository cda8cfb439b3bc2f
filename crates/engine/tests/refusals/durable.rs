//! One file that cannot be written out keeps nothing else from becoming durable.

use crate::stress::Image;
use std::io;
use std::sync::{Arc, Mutex};
use xfskit_device::{Access, BlockDevice, FileDevice, Hints};
use xfskit_engine::{Caller, Error, Fallocate, MountOptions, NewFile, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{TreeEntry, kernel_mount, reference};

/// Contents that no device of these tests writes.
const REFUSED: &[u8] = b"no device takes this";

/// A device that refuses some contents for good, and loses at a power cut what no flush covered.
struct Picky {
    inner: FileDevice,
    unflushed: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl BlockDevice for Picky {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn hints(&self) -> Hints {
        Hints::of(self)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, buffer)?;
        for (start, data) in self.unflushed.lock().unwrap().iter() {
            let (from, to) = (offset.max(*start), (offset + buffer.len() as u64).min(start + data.len() as u64));
            if from < to {
                let source = &data[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.starts_with(REFUSED) {
            return Err(io::Error::other("a bad sector"));
        }
        self.unflushed.lock().unwrap().push((offset, data.to_vec()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.unflushed.lock().unwrap().drain(..).try_for_each(|(offset, data)| self.inner.write(offset, &data))
    }
}

fn open_over_cuts(image: &Image) -> Volume {
    let inner = FileDevice::open(&image.path, Access::Write).unwrap();
    let device = Arc::new(Picky { inner, unflushed: Mutex::default() });
    Volume::open(device, MountOptions::default()).unwrap()
}

/// A filesystem of which one file cannot be written out, and the others can.
fn open_with_a_bad_file(image: &Image) -> Volume {
    let fs = open_over_cuts(image);
    for (name, contents) in [("a", &b"good"[..]), ("bad", REFUSED), ("z", b"good too")] {
        let made = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap();
        fs.write_at(made.inode, 0, contents).unwrap();
    }
    fs
}

/// The files that the kernel finds after its recovery, with their sizes. `None`: this machine cannot mount.
fn files(image: &Image) -> Option<Vec<(String, u64)>> {
    let describe = |entry: TreeEntry| (entry.path.display().to_string(), entry.size);
    let files = kernel_mount(&image.path)?.into_tree().into_iter().skip(1).map(describe).collect();
    image.assert_sound();
    Some(files)
}

fn expect(found: Option<Vec<(String, u64)>>) {
    let expected = [("a", 4), ("bad", 0), ("z", 8)].map(|(name, size)| (name.to_owned(), size));
    assert!(found.is_none_or(|found| found == expected), "the power failed after a sync that reported one file only");
}

#[test]
fn a_sync_that_reports_one_file_made_all_others_durable() {
    let image = Image::new(64, &[]);
    let fs = open_with_a_bad_file(&image);
    assert!(matches!(fs.sync(), Err(Error::Io { .. })), "the file that was not written out is reported");
    drop(fs);
    expect(files(&image));
}

#[test]
fn an_fsync_that_fails_made_the_names_durable() {
    let image = Image::new(64, &[]);
    let fs = open_with_a_bad_file(&image);
    for name in ["a", "z", "bad"] {
        let result = fs.fsync(fs.lookup(fs.root(), name.as_bytes()).unwrap().inode);
        assert_eq!(result.is_err(), name == "bad");
        if name == "z" {
            let new = NewFile::file(0o644);
            fs.create(fs.root(), b"late", &new, &Caller::root()).unwrap();
            fs.link(fs.root(), b"bad 2", fs.lookup(fs.root(), b"bad").unwrap().inode, &Caller::root()).unwrap();
        }
    }
    drop(fs);
    let names = files(&image).map(|found| found.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
    assert!(names.is_none_or(|names| names == ["a", "bad", "bad 2", "late", "z"]));
}

#[test]
fn an_unmount_that_loses_one_file_closes_the_log_for_all_others() {
    let image = Image::new(64, &[]);
    let fs = open_with_a_bad_file(&image);
    assert!(matches!(fs.unmount(), Err(Error::Io { .. })), "what is lost is reported");
    image.assert_sound();
    expect(files(&image));
}

#[test]
fn what_is_written_to_a_synchronous_file_is_durable() {
    let image = Image::new(320, &[]);
    let (Some(reference), Some(kernel)) = (reference(), kernel_mount(&image.path)) else { return };
    let dir = kernel.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    reference.io(&dir, "chattr +s");
    kernel.unmount();
    // Each operation is durable before the power cut that follows it.
    type Operation = fn(&Volume, InodeNumber, InodeNumber);
    let operations: &[(&str, Operation, u64)] = &[
        ("write", |fs, file, _| fs.write_at(file, 0, b"12345").unwrap(), 5),
        ("late", |fs, file, _| fs.write_keeping_times(file, 0, b"12345").unwrap(), 5),
        ("append", |fs, file, _| assert_eq!(fs.append(file, b"1234567").unwrap(), 0), 7),
        ("allocate", |fs, file, _| fs.fallocate(file, 0, 9000, Fallocate::Allocate).unwrap(), 9000),
        ("clone", |fs, file, from| fs.clone_range(from, 0, file, 0, 0).unwrap(), 10_000),
        ("copy", |fs, file, from| assert_eq!(fs.copy_range(from, 1, file, 0, 100).unwrap(), 100), 100),
    ];
    for (name, operation, size) in operations {
        let fs = open_over_cuts(&image);
        let dir = fs.lookup(fs.root(), b"dir").unwrap().inode;
        let new = NewFile::file(0o644);
        let make = |name: &str| fs.create(dir, name.as_bytes(), &new, &Caller::root()).unwrap().inode;
        let (from, file) = (make(&format!("from {name}")), make(name));
        fs.write_at(from, 0, &[1; 10_000]).unwrap();
        operation(&fs, file, from);
        drop(fs);
        let Some(kernel) = kernel_mount(&image.path) else { return };
        assert_eq!(std::fs::metadata(kernel.path().join("dir").join(name)).unwrap().len(), *size, "{name}");
        kernel.unmount();
    }
    image.assert_sound();
}
