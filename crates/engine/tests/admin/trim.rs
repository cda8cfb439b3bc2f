//! Free space goes back: what a file's holes say, beside fstrim on a mount of this machine's kernel.

use crate::{fill, open};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use xfskit_device::{Access, BlockDevice, FileDevice, Fua, MemoryDevice, WrapsDevice};
use xfskit_engine::mount::Mount;
use xfskit_engine::space::trim::{Trim, trim_ag};
use xfskit_engine::{Caller, Discard, Error, LastLink, MountOptions, NewFile, TrimBy, Volume};
use xfskit_ondisk::AgNumber;
use xfskit_testkit::{copy_image, kernel_mount, reference, scratch, skip};

const MIB: u64 = 1 << 20;

fn allocated_bytes(image: &Path) -> u64 {
    std::fs::metadata(image).unwrap().blocks() * 512
}

/// An image of 400 MiB, all of it stored by the host, with `mib` MiB of files that are gone again.
fn image_with_remains(image: &Path, mib: u64) {
    let fs = open(image);
    fill(&fs, 10);
    for n in 0..mib {
        let file = fs.create(fs.root(), format!("gone {n}").as_bytes(), &NewFile::file(0o644), &Caller::root());
        fs.write_at(file.unwrap().inode, 0, &vec![0xaa; MIB as usize]).unwrap();
    }
    fs.sync().unwrap();
    for n in 0..mib {
        fs.unlink(fs.root(), format!("gone {n}").as_bytes(), &Caller::root()).unwrap();
    }
    fs.unmount().unwrap();
}

#[test]
fn as_much_goes_back_as_by_fstrim() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let (made, ours, kernels) = (folder.image("made", 400 * MIB), folder.file("ours"), folder.file("kernels"));
    reference.mkfs(&made, &[]);
    image_with_remains(&made, 150);
    // Not sparse, but for what was never written.
    for image in [&ours, &kernels] {
        std::fs::copy(&made, image).unwrap();
    }
    let before = allocated_bytes(&ours);
    let Some(mount) = kernel_mount(&kernels) else { return };
    if !Command::new("fstrim").arg(mount.path()).status().is_ok_and(|status| status.success()) {
        skip("fstrim does not work on this machine's loop devices");
        return;
    }
    mount.unmount();
    let fs = open(&ours);
    let trimmed = fs.trim(0, TrimBy::Discard).unwrap();
    assert!(trimmed.bytes > 150 * MIB && trimmed.bytes < 400 * MIB);
    fs.unmount().unwrap();
    let (mine, theirs) = (allocated_bytes(&ours), allocated_bytes(&kernels));
    assert!(mine < before - 140 * MIB, "{mine} bytes of {before} are left");
    assert!(mine < theirs + MIB, "{mine} bytes are left, fstrim leaves {theirs}");
    reference.repair_finds_nothing(&ours);
    let trees = [&ours, &made].map(|image| kernel_mount(image).unwrap().into_tree());
    assert!(trees[0] == trees[1]);
}

#[test]
fn zeros_take_the_place_of_what_was_there() {
    let folder = scratch();
    let image = folder.image("image", 64 * MIB);
    let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
    xfskit_mkfs::make(&FileDevice::open(&image, Access::Write).unwrap(), None, &options, Default::default()).unwrap();
    image_with_remains(&image, 8);
    let count =
        |image: &Path| std::fs::read(image).unwrap().windows(512).step_by(512).filter(|w| **w == [0xaa; 512]).count();
    assert!(count(&image) as u64 >= 8 * MIB / 512);
    let copy = folder.file("copy");
    copy_image(&image, &copy);
    let fs = open(&copy);
    fs.trim(0, TrimBy::Zeros).unwrap();
    fs.unmount().unwrap();
    assert_eq!(count(&copy), 0);
    // A sparse file stays sparse.
    let (before, after) = (allocated_bytes(&image), allocated_bytes(&copy));
    assert!(after <= before + MIB, "{after} bytes of the host, {before} before");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&copy);
    }
}

/// A device that notes what it is told to discard. It takes its time, so that others come between.
struct Noting {
    inner: MemoryDevice,
    discarded: Mutex<Vec<Range<u64>>>,
}

impl Noting {
    fn new(bytes: usize) -> Arc<Self> {
        let device = Arc::new(Self { inner: MemoryDevice::new(bytes), discarded: Mutex::default() });
        let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
        xfskit_mkfs::make(&*device, None, &options, Default::default()).unwrap();
        device
    }

    fn take(&self) -> u64 {
        std::mem::take(&mut *self.discarded.lock().unwrap()).iter().map(|range| range.end - range.start).sum()
    }
}

impl WrapsDevice for Noting {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.inner
    }

    fn pass_discard(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.discarded.lock().unwrap().push(offset..offset + length);
        std::thread::sleep(Duration::from_micros(300));
        self.inner.write(offset, &vec![0xd5; length as usize])
    }
}

fn write_file(fs: &Volume, name: &str, mib: u64) {
    let file = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    for n in 0..mib {
        fs.write_at(file, n * MIB, &vec![n as u8; MIB as usize]).unwrap();
    }
    fs.finish_writing(file);
}

#[test]
fn what_is_freed_goes_back_when_that_is_durable_and_not_before() {
    let device = Noting::new(96 << 20);
    let options = MountOptions { discard: Discard::Freed, ..MountOptions::default() };
    let fs = Volume::open(device.clone(), options).unwrap();
    write_file(&fs, "gone", 20);
    write_file(&fs, "stays", 10);
    fs.sync().unwrap();
    device.take();
    fs.unlink(fs.root(), b"gone", &Caller::root()).unwrap();
    assert_eq!(device.take(), 0, "the unlink is not durable");
    fs.sync().unwrap();
    assert!((20 * MIB..21 * MIB).contains(&device.take()));
    fs.sync().unwrap();
    assert_eq!(device.take(), 0, "once is enough");
    // What is in use again stays.
    fs.unlink(fs.root(), b"stays", &Caller::root()).unwrap();
    write_file(&fs, "all", 40);
    fs.unmount().unwrap();
    let fs = Volume::open(device.clone(), MountOptions::default()).unwrap();
    let file = fs.resolve(b"/all", LastLink::Keep).unwrap().inode;
    for n in 0..40 {
        let mut found = vec![0; MIB as usize];
        fs.read_at(file, n * MIB, &mut found).unwrap();
        assert!(found == vec![n as u8; MIB as usize], "MiB {n}");
    }
    device.take();
    fs.unlink(fs.root(), b"all", &Caller::root()).unwrap();
    fs.unmount().unwrap();
    assert_eq!(device.take(), 0, "a mount without the option");
}

/// Gives back all that is free, without making anything durable first.
fn trim_now(mount: &Arc<Mount>) {
    for ag in (0..mount.geometry.ag_count).map(AgNumber) {
        let within = 0..mount.geometry.blocks_in_ag(ag);
        trim_ag(mount, ag, &Trim { within, min_blocks: 1, by: TrimBy::Discard }).unwrap();
    }
}

#[test]
fn what_a_crash_would_bring_back_stays() {
    let device = Noting::new(96 << 20);
    let fs = Volume::open(device.clone(), MountOptions::default()).unwrap();
    write_file(&fs, "file", 20);
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"file", &Caller::root()).unwrap();
    trim_now(fs.mount());
    drop(fs);
    let fs = Volume::open(device, MountOptions::default()).unwrap();
    let file = fs.resolve(b"/file", LastLink::Keep).unwrap().inode;
    let mut found = vec![0; MIB as usize];
    fs.read_at(file, 19 * MIB, &mut found).unwrap();
    assert!(found == vec![19; MIB as usize]);
}

/// A device on which, right after each long write, all free space is given back.
struct TrimmedAtOnce {
    inner: Arc<Noting>,
    mount: OnceLock<Weak<Mount>>,
    trims: AtomicUsize,
}

impl WrapsDevice for TrimmedAtOnce {
    type Below = Noting;

    fn below(&self) -> &Noting {
        &self.inner
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> std::io::Result<()> {
        fua.write(&self.inner, offset, data)?;
        let is_contents = data.len() >= 1 << 18 && data.iter().all(|byte| *byte == data[0]);
        if let Some(mount) = self.mount.get().and_then(Weak::upgrade).filter(|_| is_contents) {
            trim_now(&mount);
            self.trims.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Contents are written before their blocks are allocated: the trim comes in between.
#[test]
fn blocks_that_are_being_written_stay() {
    let device =
        Arc::new(TrimmedAtOnce { inner: Noting::new(96 << 20), mount: OnceLock::new(), trims: AtomicUsize::new(0) });
    let fs = Volume::open(device.clone(), MountOptions::default()).unwrap();
    device.mount.set(Arc::downgrade(fs.mount())).unwrap();
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    fs.write_at(file, 0, &vec![7; MIB as usize]).unwrap();
    fs.sync().unwrap();
    assert!(device.trims.load(Ordering::Relaxed) > 0);
    let mut found = vec![0; MIB as usize];
    fs.read_at(file, 0, &mut found).unwrap();
    assert!(found == vec![7; MIB as usize]);
    fs.unmount().unwrap();
}

/// Other threads write, remove and sync while one trims: nothing that they write is lost.
#[test]
fn a_trim_beside_writers_takes_nothing_from_them() {
    let device = Noting::new(160 << 20);
    let options = MountOptions { discard: Discard::Freed, ..MountOptions::default() };
    let fs = Volume::open(device.clone(), options).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u8)
            .map(|writer| {
                let fs = &fs;
                scope.spawn(move || {
                    for round in 0..60u8 {
                        let name = format!("{writer} {}", round % 4);
                        let _ = fs.unlink(fs.root(), name.as_bytes(), &Caller::root());
                        let new = NewFile::file(0o644);
                        let file = fs.create(fs.root(), name.as_bytes(), &new, &Caller::root()).unwrap().inode;
                        let bytes = vec![writer * 60 + round; 300_000 + 4096 * usize::from(round)];
                        fs.write_at(file, 0, &bytes).unwrap();
                        fs.fsync(file).unwrap();
                        let mut found = vec![0; bytes.len()];
                        fs.read_at(file, 0, &mut found).unwrap();
                        assert!(found == bytes, "writer {writer}, round {round}");
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            fs.trim(0, TrimBy::Discard).unwrap();
        }
    });
    let mut contents = Vec::new();
    for entry in fs.list_dir(fs.root()).unwrap() {
        let size = fs.stat(entry.inode).unwrap().size as usize;
        let mut found = vec![0; size];
        fs.read_at(entry.inode, 0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == found[0]), "{}", entry.name.escape_ascii());
        contents.push((entry.name.to_vec(), found[0]));
    }
    assert_eq!(contents.len(), 12);
    fs.unmount().unwrap();
    let report = xfskit_check::check(device, None, &Default::default(), &xfskit_check::Quiet).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn a_trim_of_a_reader_is_refused() {
    let device = Noting::new(64 << 20);
    let fs = Volume::open(device, MountOptions::read_only()).unwrap();
    assert!(matches!(fs.trim(0, TrimBy::Discard), Err(Error::ReadOnly)));
}
