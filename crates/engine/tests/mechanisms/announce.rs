//! The superblock announces attribute intents on the device before the first one is logged, and no longer after the
//! unmount. The power is cut at every write around it, and the kernel mounts what is left.

use crate::stress::{Image, Random};
use crate::{intents, kernels_tree, make_file, set, xattr};
use std::collections::BTreeSet;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use xfskit_device::{Access, BlockDevice, FileDevice, Fua, WrapsDevice};
use xfskit_engine::{AttrLogging, Caller, Error, MountOptions, SetMode, Volume};
use xfskit_ondisk::features::LogIncompat;
use xfskit_ondisk::{InodeNumber, RawSuperblock};
use xfskit_testkit::{copy_image, kernel_mount, reference};

const SECTOR: usize = 512;
/// Where the superblock announces what the log contains.
const BITS: Range<usize> = offset_of!(RawSuperblock, log_incompat)..offset_of!(RawSuperblock, log_incompat) + 4;

enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// A device that records what is written, and can fail from some write or flush on.
struct Recorder {
    inner: FileDevice,
    events: Mutex<Vec<Event>>,
    /// Writes and flushes that still succeed.
    left: Mutex<Option<usize>>,
}

impl Recorder {
    fn new(image: &Path) -> Arc<Self> {
        let inner = FileDevice::open(image, Access::Write).unwrap();
        Arc::new(Self { inner, events: Mutex::default(), left: Mutex::default() })
    }

    fn pass(&self) -> io::Result<()> {
        match &mut *self.left.lock().unwrap() {
            Some(0) => Err(io::Error::other("the device failed")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn position(&self) -> usize {
        self.events.lock().unwrap().len()
    }
}

impl WrapsDevice for Recorder {
    type Below = FileDevice;

    fn below(&self) -> &FileDevice {
        &self.inner
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        self.pass()?;
        self.events.lock().unwrap().push(Event::Write(offset, data.to_vec()));
        fua.write(&self.inner, offset, data)
    }

    fn pass_flush(&self) -> io::Result<()> {
        self.pass()?;
        self.events.lock().unwrap().push(Event::Flush);
        Ok(())
    }
}

/// What arrived of the writes after the last flush.
#[derive(Clone, Copy)]
enum Arrived {
    All,
    None,
    /// Some of their sectors.
    Some(u64),
}

/// The image as a power cut after `cut` events leaves it.
fn cut_image(recorded: &Recorded, cut: usize, arrived: Arrived) {
    let (events, to) = (&recorded.events, &recorded.image.path);
    copy_image(&recorded.base, to);
    let device = FileDevice::open(to, Access::Write).unwrap();
    let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
    let mut random = Random::new(if let Arrived::Some(seed) = arrived { seed } else { 0 });
    for (index, event) in events[..cut].iter().enumerate() {
        let Event::Write(offset, bytes) = event else { continue };
        // The kernel's recovery cannot mend metadata that is torn within a block.
        let unit = if recorded.log.contains(offset) { SECTOR } else { bytes.len() };
        for (number, part) in bytes.chunks(unit).enumerate() {
            let arrives = index < flushed
                || match arrived {
                    Arrived::All => true,
                    Arrived::None => false,
                    Arrived::Some(_) => random.one_in(2),
                };
            if arrives {
                device.write(offset + (number * unit) as u64, part).unwrap();
            }
        }
    }
}

/// Whether the superblock on a device announces attribute intents.
fn announces(device: &dyn BlockDevice) -> bool {
    let mut sector = [0; SECTOR];
    device.read(0, &mut sector).unwrap();
    u32::from_be_bytes(sector[BITS].try_into().unwrap()) & LogIncompat::XATTRS.bits() != 0
}

fn image_announces(image: &Path) -> bool {
    announces(&FileDevice::open(image, Access::Read).unwrap())
}

/// A run: attributes are set with intents that reach the log, then the image is unmounted.
struct Recorded {
    image: Image,
    base: PathBuf,
    events: Vec<Event>,
    /// Where the log lies, in bytes.
    log: Range<u64>,
    /// Where the events of the first attribute begin.
    first: usize,
    /// Where those end after which it is durable.
    synced: usize,
}

const OLD: &[u8] = &[1; 600];
const NEW: &[u8] = &[2; 700];

/// Makes `count` files with an attribute, which `work` then changes.
fn record(count: usize, work: impl FnOnce(&Volume, &[InodeNumber], &Recorder)) -> Recorded {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let files: Vec<_> = (0..count).map(|n| make_file(&fs, &format!("file {n}"))).collect();
    files.iter().for_each(|file| set(&fs, *file, "user.a", OLD));
    image.close(fs);
    let base = image.path.with_extension("base");
    copy_image(&image.path, &base);
    let device = Recorder::new(&image.path);
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions { whiteouts: false, ..intents() }).unwrap();
    let geometry = &fs.mount().geometry;
    let start = geometry.fs_block_address(geometry.log_start.unwrap()).unwrap().bytes();
    let log = start..start + (u64::from(geometry.log_blocks) << geometry.block_log);
    assert!(!announces(&*device), "nothing is announced before it is needed");
    let first = device.position();
    work(&fs, &files, &device);
    assert!(announces(&*device), "it is announced when the first intent is committed");
    fs.sync().unwrap();
    let synced = device.position();
    set(&fs, files[0], "user.b", OLD);
    fs.sync().unwrap();
    assert!(fs.mount().counters.intents_logged.get() > count as u64);
    fs.unmount().unwrap();
    assert!(!announces(&*device), "the unmount clears it");
    let events = std::mem::take(&mut *device.events.lock().unwrap());
    Recorded { image, base, events, log, first, synced }
}

fn record_one() -> Recorded {
    record(1, |fs, files, _| set(fs, files[0], "user.a", NEW))
}

/// Lets the kernel mount what each cut leaves. Returns, for each, whether the superblock announced intents, how many
/// files had the new value, and whether the last operation was done.
fn mount_cuts(recorded: &Recorded, files: usize, choices: &[Arrived]) -> Option<BTreeSet<(bool, usize, bool)>> {
    let Recorded { image, events, first, synced, .. } = recorded;
    let mut seen = BTreeSet::new();
    for cut in *first..=events.len() {
        // Right after a flush there is no doubt.
        let is_flushed = cut > 0 && matches!(events[cut - 1], Event::Flush);
        for arrived in choices.iter().take(if is_flushed { 1 } else { choices.len() }) {
            cut_image(recorded, cut, *arrived);
            let announced = image_announces(&image.path);
            let tree = kernels_tree(image)?;
            let values: Vec<_> = (0..files).map(|n| xattr(&tree, &format!("file {n}"), "user.a")).collect();
            assert!(values.iter().all(|value| [Some(OLD), Some(NEW)].contains(value)), "after event {cut}");
            let new = values.iter().filter(|value| **value == Some(NEW)).count();
            assert!(cut < *synced || new == files, "what was synced is lost after event {cut}");
            assert!(!image_announces(&image.path), "the kernel's unmount clears it");
            seen.insert((announced, new, xattr(&tree, "file 0", "user.b") == Some(OLD)));
        }
    }
    Some(seen)
}

#[test]
fn the_kernel_mounts_what_a_power_cut_leaves_at_any_write() {
    let recorded = record_one();
    let choices = [Arrived::All, Arrived::None, Arrived::Some(1), Arrived::Some(2)];
    let Some(seen) = mount_cuts(&recorded, 1, &choices) else { return };
    for state in [(false, 0, false), (true, 0, false), (true, 1, false), (true, 1, true), (false, 1, true)] {
        assert!(seen.contains(&state), "the cuts have left {seen:?}, and not {state:?}");
    }
}

#[test]
fn the_kernel_mounts_what_a_power_cut_leaves_while_several_announce() {
    const THREADS: usize = 3;
    let recorded = record(THREADS, |fs, files, device| {
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for &file in files {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    set(fs, file, "user.a", NEW);
                    assert!(announces(device), "what is logged has been announced");
                    fs.sync().unwrap();
                });
            }
        });
    });
    let Some(seen) = mount_cuts(&recorded, THREADS, &[Arrived::All, Arrived::Some(1)]) else { return };
    assert!(seen.contains(&(false, 0, false)) && seen.contains(&(true, THREADS, true)), "{seen:?}");
}

/// No intent is in the log of a state in which the superblock does not announce them: the kernel refuses that.
#[test]
fn a_log_with_an_intent_is_behind_the_announcement() {
    let recorded = record_one();
    let Recorded { image, first, synced, .. } = &recorded;
    let Some(reference) = reference() else { return };
    let mut with_intents = 0;
    for cut in *first..=*synced {
        cut_image(&recorded, cut, Arrived::All);
        let output = reference.tool("xfs_logprint", ["-t", "-o", image.path.to_str().unwrap()]);
        let has_intent = String::from_utf8_lossy(&output.stdout).contains("ATTRI:");
        assert!(!has_intent || image_announces(&image.path), "after event {cut}");
        with_intents += u32::from(has_intent);
    }
    assert!(with_intents > 0);
    // The kernel refuses an intent that was not announced, so the test above means something.
    cut_image(&recorded, *synced, Arrived::All);
    let device = FileDevice::open(&image.path, Access::Write).unwrap();
    let mut sector = vec![0; SECTOR];
    device.read(0, &mut sector).unwrap();
    sector[BITS].fill(0);
    xfskit_ondisk::set_checksum(&mut sector, xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET);
    device.write(0, &sector).unwrap();
    drop(device);
    let Some(refused) = xfskit_testkit::try_kernel_mount(&image.path, None, &[]) else { return };
    assert!(refused.is_err(), "the kernel accepts an intent that was not announced");
}

#[test]
fn many_that_announce_at_once_all_log_and_one_unmount_clears() {
    let image = Image::new(64, &[]);
    let device = Recorder::new(&image.path);
    let options = MountOptions { whiteouts: false, ..intents() };
    let fs = Volume::open(Arc::clone(&device) as _, options).unwrap();
    let files: Vec<_> = (0..16).map(|n| make_file(&fs, &format!("file {n}"))).collect();
    fs.sync().unwrap();
    let start = Barrier::new(files.len());
    std::thread::scope(|scope| {
        for &file in &files {
            let (fs, start, device) = (&fs, &start, &device);
            scope.spawn(move || {
                start.wait();
                set(fs, file, "user.a", NEW);
                assert!(announces(&**device), "a thread that has logged an intent has announced it");
            });
        }
    });
    fs.sync().unwrap();
    assert!(fs.mount().counters.intents_logged.get() >= 16);
    // The power fails.
    let crashed = image.path.with_extension("crashed");
    copy_image(&image.path, &crashed);
    fs.unmount().unwrap();
    assert!(!announces(&*device));
    image.assert_sound();
    let Some(kernel) = kernel_mount(&crashed) else { return };
    let tree = kernel.into_tree();
    for n in 0..files.len() {
        assert_eq!(xattr(&tree, &format!("file {n}"), "user.a"), Some(NEW));
    }
}

/// The device fails at each write and flush of the announcement: the attribute is not set, and nothing is logged.
#[test]
fn without_the_announcement_nothing_is_logged() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", OLD);
    image.close(fs);
    let base = image.path.with_extension("base");
    copy_image(&image.path, &base);
    let (mut failed, mut fails_at) = (0, 0);
    loop {
        copy_image(&base, &image.path);
        let device = Recorder::new(&image.path);
        let options = MountOptions { whiteouts: false, ..intents() };
        let fs = Volume::open(Arc::clone(&device) as _, options).unwrap();
        *device.left.lock().unwrap() = Some(fails_at);
        let announced = fs.mount().announce_attr_intents();
        if announced.is_ok() {
            break;
        }
        assert!(!fs.mount().may_log_attr_intents(), "at operation {fails_at}");
        let set = fs.set_xattr(inode, b"user.a", NEW, SetMode::Any, &Caller::root());
        assert!(matches!(set, Err(Error::Shutdown(_) | Error::Io { .. })), "at operation {fails_at}: {set:?}");
        // The device works again: what is committed is written if the filesystem has not shut down.
        *device.left.lock().unwrap() = None;
        let _ = fs.sync();
        assert_eq!(fs.mount().counters.intents_logged.get(), 0, "at operation {fails_at}");
        drop(fs);
        let Some(tree) = kernels_tree(&image) else { return };
        assert_eq!(xattr(&tree, "file", "user.a"), Some(OLD), "at operation {fails_at}");
        failed += 1;
        fails_at += 1;
    }
    assert!(failed >= 4, "the record's write and flush, the superblock's write and flush: {failed}");
}

/// An update that never takes several transactions announces nothing.
#[test]
fn a_short_value_announces_nothing() {
    let image = Image::new(64, &[]);
    let device = Recorder::new(&image.path);
    let options = MountOptions { attr_logging: AttrLogging::Always, ..Default::default() };
    let fs = Volume::open(Arc::clone(&device) as _, options).unwrap();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", b"value");
    set(&fs, inode, "user.b", OLD);
    fs.sync().unwrap();
    assert!(!fs.mount().may_log_attr_intents() && !announces(&*device));
    // A value in blocks of its own may take several transactions.
    set(&fs, inode, "user.c", &[3; 20_000]);
    assert!(fs.mount().may_log_attr_intents() && announces(&*device));
    image.close(fs);
    assert!(!announces(&*device));
}

/// Threads that all find the bit missing wait for each other, and none is refused.
#[test]
fn many_threads_that_announce_at_once_are_all_answered() {
    const THREADS: usize = 48;
    for _ in 0..4 {
        let image = Image::new(64, &[]);
        let fs = image.open();
        let files: Vec<_> = (0..THREADS).map(|n| make_file(&fs, &n.to_string())).collect();
        let begin = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for file in &files {
                let (fs, begin) = (&fs, &begin);
                scope.spawn(move || {
                    begin.wait();
                    fs.set_xattr(*file, b"user.long", &[7; 9000], AttrLogging::Always, &Caller::root()).unwrap();
                });
            }
        });
        for file in files {
            assert_eq!(fs.get_xattr(file, b"user.long").unwrap(), [7; 9000]);
        }
        image.close(fs);
    }
}
