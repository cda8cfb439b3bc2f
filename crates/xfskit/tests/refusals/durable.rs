//! One file that cannot be written out keeps nothing else from becoming durable.

use crate::stress::{FILE, Image};
use std::io;
use std::sync::{Arc, Mutex};
use xfskit::device::{Access, BlockDevice, FileDevice};
use xfskit::{Caller, Error, Filesystem, MountOptions, NewFile};
use xfskit_testkit::{Entry, kernel_mount};

/// What no device of these tests takes.
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

fn open_over_cuts(image: &Image) -> Filesystem {
    let inner = FileDevice::open(&image.path, Access::Write).unwrap();
    let device = Arc::new(Picky { inner, unflushed: Mutex::default() });
    Filesystem::open(device, MountOptions::default()).unwrap()
}

/// A filesystem of which one file cannot be written out, and the others can.
fn open_with_a_bad_file(image: &Image) -> Filesystem {
    let fs = open_over_cuts(image);
    for (name, contents) in [("a", &b"good"[..]), ("bad", REFUSED), ("z", b"good too")] {
        let made = fs.create(fs.root(), name.as_bytes(), &NewFile::new(FILE | 0o644), &Caller::root()).unwrap();
        fs.write_at(made.inode, 0, contents).unwrap();
    }
    fs
}

/// The files that the kernel finds after its recovery, with their sizes. `None`: this machine cannot mount.
fn files(image: &Image) -> Option<Vec<(String, u64)>> {
    let describe = |entry: Entry| (entry.path.display().to_string(), entry.size);
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
            let new = NewFile::new(FILE | 0o644);
            fs.create(fs.root(), b"late", &new, &Caller::root()).unwrap();
            fs.link(fs.lookup(fs.root(), b"bad").unwrap().inode, fs.root(), b"bad 2").unwrap();
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
