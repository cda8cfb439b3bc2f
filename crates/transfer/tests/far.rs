//! A tree on a device as one across a network: what is read ahead of the walk, and that the copy is the same.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use xfskit::MkfsOptions;
use xfskit_device::{BlockDevice, Fua, Hints, MemoryDevice, WrapsDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, SetMode, Volume};
use xfskit_transfer::{Adjust, ImageSource, Node, TarSink, survey, transfer};

const AT_ONCE: usize = 8;

/// A device that is only read.
struct Far {
    bytes: MemoryDevice,
    at_once: usize,
    now: AtomicUsize,
    most: AtomicUsize,
    /// Reads that began while no other was on its way.
    alone: AtomicUsize,
    /// Bytes that were read.
    bytes_read: AtomicUsize,
}

impl WrapsDevice for Far {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.bytes
    }

    fn pass_hints(&self) -> Hints {
        Hints { queue_depth: self.at_once, read_only: true, ..self.bytes.hints() }
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        self.alone.fetch_add(usize::from(now == 1), Ordering::Relaxed);
        self.bytes_read.fetch_add(buffer.len(), Ordering::Relaxed);
        if self.at_once > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.bytes.read(offset, buffer)
    }

    fn pass_write(&self, _: u64, _: &[u8], _: Fua) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn pass_flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An image with a wide and a deep tree, links, attributes, holes, and a file that is larger than what is read at once.
fn image() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let fs = xfskit::create_on(device.clone(), &MkfsOptions::new().small()).unwrap();
    let (volume, root) = (fs.volume(), Caller::root());
    let make = |dir, name: &str, new: NewFile<'_>| volume.create(dir, name.as_bytes(), &new, &root).unwrap().inode;
    let write = |file, number: usize, bytes: usize| {
        let contents: Vec<u8> = (0..bytes).map(|n| (n / 5 + number * 13) as u8).collect();
        volume.write_at(file, 0, &contents).unwrap();
    };
    let wide = make(volume.root(), "wide", NewFile::dir(0o755));
    for number in 0..300 {
        let file = make(wide, &format!("file {number}"), NewFile::file(0o644));
        write(file, number, number * 40);
        if number % 10 == 0 {
            let value = vec![number as u8; number * 8];
            volume.set_xattr(file, b"user.long", &value, SetMode::Any, &root).unwrap();
            volume.link(volume.root(), format!("link {number}").as_bytes(), file, &root).unwrap();
        }
    }
    let mut deep = volume.root();
    for number in 0..60 {
        deep = make(deep, &format!("dir {number}"), NewFile::dir(0o755));
        write(make(deep, "one file", NewFile::file(0o600)), number, 5000);
    }
    write(make(volume.root(), "large", NewFile::file(0o644)), 7, 20 << 20);
    let sparse = make(volume.root(), "sparse", NewFile::file(0o644));
    volume.write_at(sparse, 10 << 20, b"end").unwrap();
    fs.close().unwrap();
    device.to_bytes()
}

/// An image on a device that takes so many requests at once.
fn open(image: &[u8], at_once: usize) -> (Volume, Arc<Far>) {
    let (now, most, alone, bytes_read) = Default::default();
    let far = Arc::new(Far { bytes: MemoryDevice::from_bytes(image.to_vec()), at_once, now, most, alone, bytes_read });
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    (Volume::open(Arc::clone(&far) as _, options).unwrap(), far)
}

/// The tree as a tar archive, by a device that takes so many requests at once.
fn archive(image: &[u8], at_once: usize) -> (Vec<u8>, Arc<Far>) {
    let (volume, far) = open(image, at_once);
    let mut tar = Vec::new();
    let mut sink = TarSink::new(&mut tar);
    transfer(&mut ImageSource::new(&volume, volume.root(), b"", true), &mut sink, &Adjust::default(), &()).unwrap();
    drop(sink);
    (tar, far)
}

#[test]
fn files_of_a_far_image_are_read_at_the_same_time() {
    let image = image();
    let (near, _) = archive(&image, 1);
    let (far, device) = archive(&image, AT_ONCE);
    assert!(near == far, "another archive");
    let (most, alone) = (device.most.load(Ordering::Relaxed), device.alone.load(Ordering::Relaxed));
    assert!((AT_ONCE / 2..=AT_ONCE).contains(&most), "{most} requests at once");
    // One after the other they were more than 400: the contents of each file, clusters of inodes, directories.
    assert!(alone < 200, "{alone} requests alone");
}

/// How much the attributes of a file are is not known before they are read, and a file may have many.
#[test]
fn what_is_read_ahead_of_attributes_is_bounded() {
    const FILES: usize = 250;
    const VALUE_BYTES: usize = 32 << 10;
    const VALUES: usize = 12;
    let device = Arc::new(MemoryDevice::new(192 << 20));
    let fs = xfskit::create_on(device.clone(), &MkfsOptions::new().small()).unwrap();
    let (volume, root) = (fs.volume(), Caller::root());
    for number in 0..FILES {
        let name = format!("file {number}");
        let file = volume.create(volume.root(), name.as_bytes(), &NewFile::file(0o644), &root).unwrap().inode;
        for value in 0..VALUES {
            let name = format!("user.{value}");
            volume.set_xattr(file, name.as_bytes(), &[number as u8; VALUE_BYTES], SetMode::Any, &root).unwrap();
        }
    }
    fs.close().unwrap();
    let (volume, device) = open(&device.to_bytes(), AT_ONCE);
    device.bytes_read.store(0, Ordering::Relaxed);
    let (mut sent_bytes, mut read_before_bytes) = (0, 0);
    let mut each = |node: &Node| {
        if sent_bytes == 0 {
            read_before_bytes = device.bytes_read.load(Ordering::Relaxed);
        }
        sent_bytes += node.meta.xattrs.iter().map(|(_, value)| value.len()).sum::<usize>();
    };
    survey(&mut ImageSource::new(&volume, volume.root(), b"", true), &mut each, &Adjust::default(), &()).unwrap();
    assert_eq!(sent_bytes, FILES * VALUES * VALUE_BYTES);
    // 16 MiB at most are read ahead, and some MiB wait for the sink.
    assert!(read_before_bytes < 40 << 20, "{read_before_bytes} bytes were read before the first was sent");
    assert!(device.most.load(Ordering::Relaxed) >= AT_ONCE / 2);
}
