//! The superblock announces attribute intents on the device before the first one is logged, and no longer after the
//! unmount. The power is cut at every write around it, and the kernel mounts what is left.

use crate::stress::{Image, Random};
use crate::{intents, kernels_tree, make_file, set, xattr};
use std::collections::BTreeSet;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use xfskit::device::{Access, BlockDevice, FileDevice};
use xfskit::ondisk::RawSuperblock;
use xfskit::ondisk::features::LogIncompat;
use xfskit::volume::{AttrLogging, Caller, Error, MountOptions, SetMode, Volume};
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

impl BlockDevice for Recorder {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pass()?;
        self.events.lock().unwrap().push(Event::Write(offset, data.to_vec()));
        self.inner.write(offset, data)
    }
    fn flush(&self) -> io::Result<()> {
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

/// A run: files are made, then attributes are set with intents that reach the log, then the image is unmounted.
struct Recorded {
    image: Image,
    base: std::path::PathBuf,
    events: Vec<Event>,
    /// Where the log lies, in bytes.
    log: Range<u64>,
    /// Where the events of the announcement begin, and where those of the last operation end.
    first: usize,
    synced: [usize; 2],
}

const OLD: &[u8] = &[1; 600];
const NEW: &[u8] = &[2; 700];

fn record() -> Recorded {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", OLD);
    image.close(fs);
    let base = image.path.with_extension("base");
    copy_image(&image.path, &base);
    let device = Recorder::new(&image.path);
    let options = MountOptions { whiteouts: false, ..intents() };
    let fs = Volume::open(Arc::clone(&device) as _, options).unwrap();
    assert!(!announces(&*device), "nothing is announced before it is needed");
    let geometry = &fs.mount().geometry;
    let start = geometry.fs_block_address(geometry.log_start.unwrap()).unwrap().bytes();
    let log = start..start + (u64::from(geometry.log_blocks) << geometry.block_log);
    let first = device.position();
    set(&fs, inode, "user.a", NEW);
    assert!(announces(&*device), "it is announced when the first intent is committed");
    fs.sync().unwrap();
    let set_synced = device.position();
    set(&fs, inode, "user.b", OLD);
    fs.sync().unwrap();
    let both_synced = device.position();
    assert!(fs.mount().counters.intents_logged.get() >= 2);
    fs.unmount().unwrap();
    assert!(!announces(&*device), "the unmount clears it");
    let events = std::mem::take(&mut *device.events.lock().unwrap());
    Recorded { image, base, events, log, first, synced: [set_synced, both_synced] }
}

#[test]
fn the_kernel_mounts_what_a_power_cut_leaves_at_any_write() {
    let recorded = record();
    let Recorded { image, events, first, synced, .. } = &recorded;
    let mut seen = BTreeSet::new();
    for cut in *first..=events.len() {
        for arrived in [Arrived::All, Arrived::None, Arrived::Some(1), Arrived::Some(2)] {
            // Right after a flush there is no doubt.
            let in_doubt = !matches!(events.get(cut.wrapping_sub(1)), Some(Event::Flush));
            if !in_doubt && !matches!(arrived, Arrived::All) {
                continue;
            }
            cut_image(&recorded, cut, arrived);
            let announced = image_announces(&image.path);
            let Some(tree) = kernels_tree(image) else { return };
            let (a, b) = (xattr(&tree, "file", "user.a").expect("one of the values"), xattr(&tree, "file", "user.b"));
            assert!(a == OLD && b.is_none() || a == NEW && b.is_none_or(|b| b == OLD), "after event {cut}");
            assert!(cut < synced[0] || a == NEW, "what was synced is lost after event {cut}");
            assert!(cut < synced[1] || b == Some(OLD), "what was synced is lost after event {cut}");
            assert!(!image_announces(&image.path), "the kernel's unmount clears it");
            seen.insert((announced, a == NEW, b.is_some()));
        }
    }
    for state in
        [(false, false, false), (true, false, false), (true, true, false), (true, true, true), (false, true, true)]
    {
        assert!(seen.contains(&state), "the cuts have left {seen:?}, and not {state:?}");
    }
}

/// No intent is in the log of a state in which the superblock does not announce them: the kernel refuses that.
#[test]
fn a_log_with_an_intent_is_behind_the_announcement() {
    let recorded = record();
    let Recorded { image, first, synced, .. } = &recorded;
    let Some(reference) = reference() else { return };
    let mut with_intents = 0;
    for cut in *first..=synced[1] {
        cut_image(&recorded, cut, Arrived::All);
        let output = reference.tool("xfs_logprint", ["-t", "-o", image.path.to_str().unwrap()]);
        let has_intent = String::from_utf8_lossy(&output.stdout).contains("ATTRI:");
        assert!(!has_intent || image_announces(&image.path), "after event {cut}");
        with_intents += u32::from(has_intent);
    }
    assert!(with_intents > 0);
    // What the kernel does with an intent that was not announced, so that the test above means something.
    cut_image(&recorded, synced[0], Arrived::All);
    let device = FileDevice::open(&image.path, Access::Write).unwrap();
    let mut sector = vec![0; SECTOR];
    device.read(0, &mut sector).unwrap();
    sector[BITS].fill(0);
    xfskit::ondisk::set_checksum(&mut sector, xfskit::ondisk::superblock::SUPERBLOCK_CRC_OFFSET);
    device.write(0, &sector).unwrap();
    drop(device);
    let Some(refused) = xfskit_testkit::try_kernel_mount(&image.path, None, &[]) else { return };
    eprintln!("without the announcement: {:?}", refused.as_ref().err());
}

#[test]
fn many_that_announce_at_once_all_log_and_one_unmount_clears() {
    let image = Image::new(64, &[]);
    let device = Recorder::new(&image.path);
    let options = MountOptions { whiteouts: false, ..intents() };
    let fs = Volume::open(Arc::clone(&device) as _, options).unwrap();
    let files: Vec<_> = (0..16).map(|n| make_file(&fs, &format!("file {n}"))).collect();
    fs.sync().unwrap();
    let start = std::sync::Barrier::new(files.len());
    std::thread::scope(|scope| {
        for &file in &files {
            let (fs, start, device) = (&fs, &start, &device);
            scope.spawn(move || {
                start.wait();
                set(fs, file, "user.a", NEW);
                assert!(announces(&**device), "whoever has logged an intent has announced it");
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
fn who_cannot_announce_logs_nothing() {
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

/// An update that cannot come to several transactions does not announce anything.
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
