//! How few flushes an fsync costs, and what a power cut leaves around them: contents that were written in place need no
//! flush before the records of a checkpoint, except where a name is about to stand for them, and threads share flushes.

use crate::stress::FILE;
use crate::{counted, make_file};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use xfskit_device::{BlockDevice, Hints, MemoryDevice};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, RenameFlags, SetAttr, SetMode, SyncKind, SyncPoint, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{InodeNumber, Timestamp};
use xfskit_testkit::{kernel_mount, scratch};

const BLOCK: usize = 4096;
const IMAGE_BYTES: usize = 64 << 20;
const LOG_BYTES: usize = 64 << 20;

/// Which of the writes that no flush has covered arrive before the power fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrives {
    /// All but those to files.
    Records,
    /// Those to files.
    Contents,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: usize,
    /// For writes of contents instead of flushes.
    is_for_contents: bool,
}

/// A device that loses at a power cut what no flush covered, and can keep a flush waiting.
struct Device {
    durable: Mutex<MemoryDevice>,
    unflushed: Mutex<Vec<(u64, Vec<u8>)>>,
    flushes: AtomicU64,
    /// Whether it has durable writes, and how many there were.
    has_durable_writes: AtomicBool,
    durable_writes: AtomicU64,
    /// What a cut at the beginning of the last flush leaves.
    wanted: Mutex<Option<Arrives>>,
    cut: Mutex<Vec<u8>>,
    gate: Mutex<Gate>,
    moved: Condvar,
}

/// Contents of files begin with a letter; nothing else that is written in these tests is one letter all over.
fn is_contents(bytes: &[u8]) -> bool {
    bytes[0].is_ascii_uppercase() && bytes.iter().all(|byte| *byte == bytes[0])
}

impl Device {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        let (unflushed, flushes, wanted, cut, gate, moved) = Default::default();
        let (has_durable_writes, durable_writes) = Default::default();
        Arc::new(Self {
            durable: Mutex::new(MemoryDevice::from_bytes(bytes)),
            unflushed,
            flushes,
            has_durable_writes,
            durable_writes,
            wanted,
            cut,
            gate,
            moved,
        })
    }

    fn formatted() -> Arc<Self> {
        let device = MemoryDevice::new(IMAGE_BYTES);
        make(&device, None, &options(), Timestamp::default()).unwrap();
        Self::new(device.to_bytes())
    }

    /// What a power cut leaves.
    fn power_cut(&self, arrives: Option<Arrives>) -> Vec<u8> {
        let mut bytes = self.durable.lock().unwrap().to_bytes();
        for (offset, data) in self.unflushed.lock().unwrap().iter() {
            if arrives == Some(if is_contents(data) { Arrives::Contents } else { Arrives::Records }) {
                bytes[*offset as usize..][..data.len()].copy_from_slice(data);
            }
        }
        bytes
    }

    fn close_gate(&self) {
        self.gate.lock().unwrap().closed = true;
    }

    /// Keeps those waiting that write contents, instead of those that flush.
    fn close_gate_for_contents(&self) {
        *self.gate.lock().unwrap() = Gate { closed: true, waiting: 0, is_for_contents: true };
    }

    fn pass(&self, has_contents: bool) {
        let mut gate = self.gate.lock().unwrap();
        if gate.is_for_contents == has_contents {
            gate.waiting += 1;
            self.moved.notify_all();
            gate = self.moved.wait_while(gate, |gate| gate.closed).unwrap();
            gate.waiting -= 1;
        }
    }

    fn open_gate(&self) {
        self.gate.lock().unwrap().closed = false;
        self.moved.notify_all();
    }

    fn wait_until_one_flushes(&self) {
        let gate = self.gate.lock().unwrap();
        drop(self.moved.wait_while(gate, |gate| gate.waiting == 0).unwrap());
    }
}

impl BlockDevice for Device {
    fn size_bytes(&self) -> u64 {
        self.durable.lock().unwrap().size_bytes()
    }

    fn hints(&self) -> Hints {
        Hints { supports_fua: self.has_durable_writes.load(Ordering::SeqCst), ..Hints::of(self) }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.durable.lock().unwrap().read(offset, buffer)?;
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
        let end = offset + data.len() as u64;
        let mut unflushed = self.unflushed.lock().unwrap();
        if is_contents(data) && data[0] == b'Z' {
            let overlaps = |(start, old): &(u64, Vec<u8>)| *start < end && start + old.len() as u64 > offset;
            let is_old = |(_, old): &(u64, Vec<u8>)| is_contents(old) && old[0] != b'Z';
            let may_arrive_later = unflushed.iter().any(|write| overlaps(write) && is_old(write));
            assert!(!may_arrive_later, "a block has a new owner while a write of the old one is not flushed");
        }
        let is_record = |bytes: &[u8]| bytes.starts_with(&[0xfe, 0xed, 0xba, 0xbe]);
        let in_flight = unflushed.iter().filter(|(_, data)| is_record(data)).count();
        assert!(!is_record(data) || in_flight < 8, "recovery looks at the last eight records");
        unflushed.push((offset, data.to_vec()));
        drop(unflushed);
        if is_contents(data) {
            self.pass(true);
        }
        Ok(())
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(self.hints().supports_fua);
        self.durable_writes.fetch_add(1, Ordering::SeqCst);
        self.durable.lock().unwrap().write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        if let Some(arrives) = *self.wanted.lock().unwrap() {
            *self.cut.lock().unwrap() = self.power_cut(Some(arrives));
        }
        let covered = self.unflushed.lock().unwrap().len();
        self.pass(false);
        let durable = self.durable.lock().unwrap();
        self.unflushed.lock().unwrap().drain(..covered).try_for_each(|(offset, data)| durable.write(offset, &data))
    }
}

fn options() -> Options {
    Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() }
}

fn open(device: &Arc<Device>) -> Volume {
    Volume::open(Arc::clone(device) as _, MountOptions::default()).unwrap()
}

/// A filesystem whose log has a device of its own; its data device, and that of the log.
fn open_with_log() -> (Volume, Arc<Device>, Arc<Device>) {
    let (device, log) = (MemoryDevice::new(IMAGE_BYTES), MemoryDevice::new(LOG_BYTES));
    let mut options = options();
    options.apply('l', "logdev=log").unwrap();
    make(&device, Some(&log), &options, Timestamp::default()).unwrap();
    let (data, log) = (Device::new(device.to_bytes()), Device::new(log.to_bytes()));
    let fs = Volume::open_with_log(Arc::clone(&data) as _, Arc::clone(&log) as _, MountOptions::default()).unwrap();
    (fs, data, log)
}

/// A file of two blocks full of `letter`, all of it durable.
fn durable_file(fs: &Volume, name: &str, letter: u8) -> InodeNumber {
    let file = make_file(fs, name);
    fs.write_at(file, 0, &[letter; 2 * BLOCK]).unwrap();
    fs.sync().unwrap();
    file
}

/// The files in the root directory that the power cut left, judged by the kernel where it can mount.
fn files(image: &[u8]) -> Vec<(String, Vec<u8>)> {
    let scratch = scratch();
    let path = scratch.file("image");
    std::fs::write(&path, image).unwrap();
    let mut files = Vec::new();
    if let Some(kernel) = kernel_mount(&path) {
        for entry in std::fs::read_dir(kernel.path()).unwrap() {
            let entry = entry.unwrap();
            files.push((entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()));
        }
        kernel.unmount();
    } else {
        let fs = open(&Device::new(image.to_vec()));
        for entry in fs.list_dir(fs.root()).unwrap() {
            let mut bytes = vec![0; 1 << 20];
            let count = fs.read_at(entry.inode, 0, &mut bytes).unwrap();
            bytes.truncate(count);
            files.push((String::from_utf8(entry.name).unwrap(), bytes));
        }
    }
    files.sort();
    files
}

fn contents<'f>(files: &'f [(String, Vec<u8>)], name: &str) -> Option<&'f [u8]> {
    files.iter().find(|(found, _)| found == name).map(|(_, bytes)| bytes.as_slice())
}

#[test]
fn bytes_in_place_cost_one_flush_and_new_blocks_two() {
    let device = Device::formatted();
    let fs = open(&device);
    let file = durable_file(&fs, "file", b'A');
    let fsync = |changes: &[(&str, u64)], write: &dyn Fn()| {
        write();
        let before = device.flushes.load(Ordering::SeqCst);
        let count = counted(&fs, || fs.fsync(file).unwrap());
        count.expect(changes);
        count.expect(&[("device_flushes_shared", 0), ("log_forces_shared", 0)]);
        assert_eq!(device.flushes.load(Ordering::SeqCst) - before, count.get("device_flushes"));
    };
    let none = || {};
    let append = |bytes: &[u8]| {
        fs.append(file, bytes).unwrap();
    };
    fsync(&[("device_flushes", 1), ("checkpoints", 1)], &|| fs.write_at(file, 0, &[b'B'; BLOCK]).unwrap());
    fsync(&[("device_flushes", 0), ("checkpoints", 0)], &none);
    // Times alone, of no write: those of the file stay as they are.
    fsync(&[("device_flushes", 1), ("checkpoints", 0)], &|| {
        fs.write_keeping_times(file, 4096, &[b'C'; BLOCK]).unwrap();
    });
    fsync(&[("device_flushes", 2), ("checkpoints", 1)], &|| append(&[b'D'; BLOCK]));
    // Behind the end, in a block that the file has.
    append(&[b'E'; 100]);
    fs.fsync(file).unwrap();
    fsync(&[("device_flushes", 2), ("checkpoints", 1)], &|| append(&[b'F'; 100]));
    let end = fs.stat(file).unwrap().size - 100;
    fsync(&[("device_flushes", 1), ("checkpoints", 1)], &|| fs.write_at(file, end, &[b'G'; 100]).unwrap());
}

/// A record that is durable when it is written spares the flush behind it, if nothing else waits for one.
#[test]
fn durable_writes_spare_the_flush_of_a_record() {
    let device = Device::formatted();
    device.has_durable_writes.store(true, Ordering::SeqCst);
    let fs = open(&device);
    let file = durable_file(&fs, "file", b'A');
    let fsync = |flushes: u64, durable_writes: u64, write: &dyn Fn()| {
        write();
        let counts = || [&device.flushes, &device.durable_writes].map(|count| count.load(Ordering::SeqCst));
        let before = counts();
        let count = counted(&fs, || fs.fsync(file).unwrap());
        count.expect(&[("device_flushes", flushes), ("device_flushes_shared", 0)]);
        let after = counts();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [flushes, durable_writes]);
        assert_eq!(files(&device.power_cut(None)), files(&device.power_cut(Some(Arrives::Contents))));
    };
    let append = |bytes: &[u8]| {
        fs.append(file, bytes).unwrap();
    };
    // The flush of the record covers the contents, too.
    fsync(1, 0, &|| fs.write_at(file, 0, &[b'B'; BLOCK]).unwrap());
    fsync(1, 1, &|| append(&[b'D'; BLOCK]));
    fsync(0, 1, &|| fs.set_xattr(file, b"user.a", b"value", SetMode::Any, &Caller::root()).unwrap());
    fsync(0, 0, &|| {});
    assert_eq!(contents(&files(&device.power_cut(None)), "file").unwrap()[2 * BLOCK..], [b'D'; BLOCK]);
}

/// The device looks at what is in flight.
#[test]
fn a_large_checkpoint_has_no_more_records_in_flight_than_recovery_looks_at() {
    let device = Device::formatted();
    let fs = open(&device);
    for number in 0..3000 {
        make_file(&fs, &format!("a file with the number {number}"));
    }
    counted(&fs, || fs.sync().unwrap()).expect(&[("checkpoints", 1)]);
}

#[test]
fn an_external_log_is_flushed_after_the_data() {
    let (fs, data, log) = open_with_log();
    let file = durable_file(&fs, "file", b'A');
    fs.write_at(file, 0, &[b'B'; BLOCK]).unwrap();
    let count = counted(&fs, || fs.fsync(file).unwrap());
    count.expect(&[("device_flushes", 2), ("device_flushes_shared", 0), ("checkpoints", 1)]);
    assert!(data.unflushed.lock().unwrap().is_empty() && log.unflushed.lock().unwrap().is_empty());
}

#[test]
fn those_that_come_during_a_flush_share_the_next() {
    const WRITERS: u64 = 8;
    let device = Device::formatted();
    let fs = open(&device);
    let files: Vec<_> = (0..=WRITERS).map(|n| durable_file(&fs, &format!("file-{n}"), b'A')).collect();
    let sync = |file: InodeNumber| {
        fs.write_keeping_times(file, 0, &[b'B'; BLOCK]).unwrap();
        fs.fdatasync(file).unwrap();
    };
    let count = counted(&fs, || {
        device.close_gate();
        std::thread::scope(|scope| {
            let (sync, files) = (&sync, &files);
            scope.spawn(move || sync(files[0]));
            device.wait_until_one_flushes();
            for file in &files[1..] {
                scope.spawn(move || sync(*file));
            }
            std::thread::sleep(Duration::from_millis(300));
            device.open_gate();
        });
    });
    count.expect(&[("device_flushes", 2), ("device_flushes_shared", WRITERS - 1), ("checkpoints", 0)]);
    assert!(device.unflushed.lock().unwrap().is_empty());
}

/// The numbers in a point mean nothing to another volume, which would have nothing to wait for.
#[test]
fn a_point_of_another_volume_is_refused() {
    let (device, other) = (Device::formatted(), Device::formatted());
    let (fs, other) = (open(&device), open(&other));
    let file = make_file(&fs, "file");
    let point = fs.begin_fsync(file, SyncKind::Full).unwrap();
    let mixed = point.and(other.begin_fsync(make_file(&other, "file"), SyncKind::Full).unwrap());
    for refused in [other.await_durable(point), other.await_durable(mixed), fs.await_durable(mixed)] {
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    other.await_durable(SyncPoint::default()).unwrap();
    fs.await_durable(point.and(SyncPoint::default())).unwrap();
    assert!(contents(&files(&device.power_cut(None)), "file").is_some());
}

#[test]
fn to_append_nothing_says_where_the_end_is() {
    let fs = open(&Device::formatted());
    let file = make_file(&fs, "file");
    fs.append(file, b"thirteen byte").unwrap();
    assert_eq!(fs.append(file, b"").unwrap(), 13);
    assert!(matches!(fs.append(fs.root(), b""), Err(Error::IsADirectory)));
}

/// The thread that brings the contents out has the file's lock while it writes them, and has committed nothing yet.
#[test]
fn a_sync_of_data_that_finds_them_on_their_way_waits_for_their_checkpoint() {
    let device = Device::formatted();
    let fs = open(&device);
    let (file, other) = (durable_file(&fs, "file", b'A'), durable_file(&fs, "other", b'A'));
    // The checkpoint with the file's new size is durable, by the fsync of another file.
    fs.set_attr(file, &SetAttr { size: Some(0), ..SetAttr::default() }, &Caller::root()).unwrap();
    fs.set_xattr(other, b"user.a", b"value", SetMode::Any, &Caller::root()).unwrap();
    fs.fsync(other).unwrap();
    fs.append(file, &[b'B'; BLOCK]).unwrap();
    device.close_gate_for_contents();
    std::thread::scope(|scope| {
        scope.spawn(|| fs.finish_writing(file));
        device.wait_until_one_flushes();
        let syncs = scope.spawn(|| fs.fdatasync(file).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!syncs.is_finished());
        device.open_gate();
        syncs.join().unwrap();
        let left = files(&device.power_cut(None));
        assert!(contents(&left, "file") == Some(&[b'B'; BLOCK][..]), "the checkpoint was not waited for");
    });
}

/// Files whose contents are in blocks that they had, in new ones, and in none; and a file of which only times changed.
#[test]
fn fsyncs_that_have_begun_are_done_by_one_checkpoint_and_one_wait() {
    const APPENDED: usize = 6;
    let device = Device::formatted();
    let fs = open(&device);
    let files: Vec<_> = (0..APPENDED + 3).map(|n| durable_file(&fs, &format!("file-{n}"), b'A')).collect();
    let (appended, in_place, named, timed) =
        (&files[..APPENDED], files[APPENDED], files[APPENDED + 1], files[APPENDED + 2]);
    let count = counted(&fs, || {
        for file in appended {
            fs.append(*file, &[b'B'; BLOCK]).unwrap();
        }
        fs.write_keeping_times(in_place, 0, &[b'C'; BLOCK]).unwrap();
        fs.set_xattr(named, b"user.a", b"value", SetMode::Any, &Caller::root()).unwrap();
        fs.write_at(timed, 0, &[b'D'; BLOCK]).unwrap();
        let of = |file: &InodeNumber| if *file == timed { SyncKind::Data } else { SyncKind::Full };
        let begun = files.iter().map(|file| fs.begin_fsync(*file, of(file)).unwrap());
        let all = begun.reduce(SyncPoint::and).unwrap();
        assert!(!device.unflushed.lock().unwrap().is_empty(), "the second half is still to come");
        fs.await_durable(all).unwrap();
    });
    // Of two files nothing is in the log.
    let forces = files.len() as u64 - 2;
    count.expect(&[("checkpoints", 1), ("log_forces", forces), ("log_forces_shared", forces - 1)]);
    count.expect(&[("device_flushes", 2)]);
    let left = self::files(&device.power_cut(None));
    for number in 0..APPENDED {
        let bytes = contents(&left, &format!("file-{number}")).unwrap();
        assert_eq!((&bytes[..2 * BLOCK], &bytes[2 * BLOCK..]), (&[b'A'; 2 * BLOCK][..], &[b'B'; BLOCK][..]));
    }
    assert_eq!(contents(&left, &format!("file-{APPENDED}")).unwrap()[..BLOCK], [b'C'; BLOCK]);
    assert_eq!(contents(&left, &format!("file-{}", APPENDED + 2)).unwrap()[..BLOCK], [b'D'; BLOCK]);
}

#[test]
fn an_fsync_waits_for_the_checkpoint_that_has_the_inode_and_writes_no_other() {
    let device = Device::formatted();
    let fs = open(&device);
    let file = make_file(&fs, "file");
    let count = counted(&fs, || {
        device.close_gate();
        std::thread::scope(|scope| {
            scope.spawn(|| fs.sync().unwrap());
            device.wait_until_one_flushes();
            // This is in the next checkpoint.
            make_file(&fs, "another");
            let waits = scope.spawn(|| fs.fsync(file).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished(), "the file's checkpoint is not durable");
            device.open_gate();
        });
    });
    count.expect(&[("checkpoints", 1), ("log_forces", 1), ("log_forces_shared", 1)]);
}

/// What replaces a file was written in place and not flushed; the checkpoint with the new name arrives, and of the
/// rest nothing that no flush covered.
fn replace(change: impl FnOnce(&Volume, InodeNumber)) -> Vec<(String, Vec<u8>)> {
    let device = Device::formatted();
    let fs = open(&device);
    durable_file(&fs, "old", b'A');
    let new = durable_file(&fs, "new", b'B');
    fs.write_at(new, 0, &[b'C'; 2 * BLOCK]).unwrap();
    change(&fs, new);
    *device.wanted.lock().unwrap() = Some(Arrives::Records);
    fs.fsync(fs.root()).unwrap();
    let cut = device.cut.lock().unwrap().clone();
    files(&cut)
}

#[test]
fn bytes_in_place_are_durable_before_the_name_that_replaces_a_file() {
    let me = Caller::root();
    let rename = |fs: &Volume, flags| fs.rename(fs.root(), b"new", fs.root(), b"old", flags, &me).unwrap();
    let found = replace(|fs, _| rename(fs, RenameFlags::default()));
    assert_eq!(found.len(), 1, "the rename is there");
    assert_eq!(contents(&found, "old"), Some(&[b'C'; 2 * BLOCK][..]));

    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    let found = replace(|fs, _| rename(fs, exchange));
    assert_eq!(contents(&found, "old"), Some(&[b'C'; 2 * BLOCK][..]));
    assert_eq!(contents(&found, "new"), Some(&[b'A'; 2 * BLOCK][..]));

    // A name that replaces none has no such promise, and costs no flush.
    let found =
        replace(|fs, _| fs.rename(fs.root(), b"new", fs.root(), b"other", RenameFlags::default(), &me).unwrap());
    assert_eq!(contents(&found, "other"), Some(&[b'B'; 2 * BLOCK][..]));
}

#[test]
fn bytes_in_place_are_durable_before_a_clone_of_them_replaces_others() {
    let device = Device::formatted();
    let fs = open(&device);
    let (old, new) = (durable_file(&fs, "old", b'A'), durable_file(&fs, "new", b'B'));
    fs.write_at(new, 0, &[b'C'; 2 * BLOCK]).unwrap();
    fs.clone_range(new, 0, old, 0, 2 * BLOCK as u64).unwrap();
    *device.wanted.lock().unwrap() = Some(Arrives::Records);
    fs.fsync(old).unwrap();
    let cut = device.cut.lock().unwrap().clone();
    let found = files(&cut);
    let first = |name: &str| contents(&found, name).map(|bytes| (bytes.len(), bytes[0]));
    assert_eq!(first("old"), Some((2 * BLOCK, b'C')));
}

#[test]
fn bytes_in_place_are_durable_before_the_first_name() {
    let device = Device::formatted();
    let fs = open(&device);
    let made = fs.tmpfile(fs.root(), &NewFile::of_mode(FILE | 0o644).unwrap(), &Caller::root()).unwrap();
    let file = made.number();
    fs.write_at(file, 0, &[b'A'; 2 * BLOCK]).unwrap();
    fs.sync().unwrap();
    fs.write_at(file, 0, &[b'B'; 2 * BLOCK]).unwrap();
    fs.link(fs.root(), b"name", file, &Caller::root()).unwrap();
    *device.wanted.lock().unwrap() = Some(Arrives::Records);
    fs.fsync(fs.root()).unwrap();
    let cut = device.cut.lock().unwrap().clone();
    assert_eq!(contents(&files(&cut), "name"), Some(&[b'B'; 2 * BLOCK][..]));
}

#[test]
fn before_the_flush_bytes_and_times_are_old_or_new_and_after_it_new() {
    let written = Some(&[b'B'; BLOCK][..]);
    for (arrives, expected) in [(Arrives::Records, &[b'A'; BLOCK][..]), (Arrives::Contents, &[b'B'; BLOCK][..])] {
        let device = Device::formatted();
        let fs = open(&device);
        let file = durable_file(&fs, "file", b'A');
        fs.write_at(file, 0, &[b'B'; BLOCK]).unwrap();
        *device.wanted.lock().unwrap() = Some(arrives);
        fs.fsync(file).unwrap();
        let found = files(&device.cut.lock().unwrap());
        assert_eq!(contents(&found, "file").map(|bytes| &bytes[..BLOCK]), Some(expected), "{arrives:?}");
        let found = files(&device.power_cut(None));
        assert_eq!(contents(&found, "file").map(|bytes| &bytes[..BLOCK]), written);
    }
}

/// The device refuses contents of the new file over a write to the old one that no flush has covered.
fn replace_blocks(fs: &Volume) -> usize {
    let old = make_file(fs, "old");
    let space = fs.statfs().free_blocks as usize * BLOCK;
    // More than half of the space, so that the next file has to take some of these blocks.
    let bytes = (space * 3 / 5) & !(BLOCK - 1);
    fs.write_at(old, 0, &vec![b'A'; bytes]).unwrap();
    fs.sync().unwrap();
    fs.write_at(old, 0, &vec![b'B'; bytes]).unwrap();
    fs.unlink(fs.root(), b"old", &Caller::root()).unwrap();
    let new = make_file(fs, "new");
    // The blocks are free from here on. No record relies on what was written to them.
    fs.mount().journal.force_all().unwrap();
    fs.write_at(new, 0, &vec![b'Z'; bytes]).unwrap();
    fs.fsync(new).unwrap();
    bytes
}

#[test]
fn blocks_get_a_new_owner_when_old_writes_in_place_are_durable() {
    for has_durable_writes in [false, true] {
        let device = Device::formatted();
        device.has_durable_writes.store(has_durable_writes, Ordering::SeqCst);
        let fs = open(&device);
        let bytes = replace_blocks(&fs);
        assert!(contents(&files(&device.power_cut(None)), "new").is_some_and(|found| found == vec![b'Z'; bytes]));
    }
}

/// The flush of the log's records covers nothing on the data device.
#[test]
fn blocks_get_a_new_owner_when_old_writes_are_durable_with_an_external_log_too() {
    replace_blocks(&open_with_log().0);
}
