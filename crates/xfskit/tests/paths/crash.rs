//! What a power cut leaves of the calls by paths.

use crate::{image, reopen};
use std::io;
use std::sync::{Arc, Mutex};
use xfskit::device::{Fua, MemoryDevice, WrapsDevice};
use xfskit::{Filesystem, MkfsOptions};

/// Keeps every write, so that the device can be cut at each.
struct Recorder {
    device: MemoryDevice,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl WrapsDevice for Recorder {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.device
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
        self.writes.lock().unwrap().push((offset, data.to_vec()));
        fua.write(&self.device, offset, data)
    }
}

#[test]
fn after_a_cut_at_any_write_an_atomic_write_is_there_or_was_never_made() {
    let old = vec![b'o'; 5000];
    let new = vec![b'n'; 300_000];
    let recorder = Arc::new(Recorder { device: MemoryDevice::new(32 << 20), writes: Mutex::default() });
    let fs = xfskit::create_on(recorder.clone(), &MkfsOptions::new().small()).unwrap();
    fs.write("file", &old).unwrap();
    fs.sync().unwrap();
    let base = recorder.device.to_bytes();
    recorder.writes.lock().unwrap().clear();
    fs.write_atomic("file", &new).unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 1);
    fs.sync().unwrap();
    let writes = std::mem::take(&mut *recorder.writes.lock().unwrap());
    drop(fs);

    let mut seen = [0, 0];
    let mut device = base;
    for cut in 0..=writes.len() {
        let fs = reopen(device.clone());
        let found = fs.read("file").unwrap();
        assert!(found == old || found == new, "cut before write {cut}: {} bytes", found.len());
        seen[usize::from(found == new)] += 1;
        fs.close().unwrap();
        if let Some((offset, data)) = writes.get(cut) {
            device[*offset as usize..][..data.len()].copy_from_slice(data);
        }
    }
    assert!(seen[0] > 1 && seen[1] > 0, "{seen:?}");
}

#[test]
fn what_was_synced_survives_and_closing_leaves_nothing_to_recover() {
    let (device, fs) = image(32 << 20);
    fs.create_dir("dir").unwrap();
    let file = fs.create_file("dir/file").unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_all().unwrap();
    let cut = device.to_bytes();
    drop(file);
    drop(fs);
    assert!(reopen(device.to_bytes()).info().recovery.is_none());

    let fs = reopen(cut);
    assert!(fs.info().recovery.is_some());
    assert_eq!(fs.read("dir/file").unwrap(), b"kept");
}

#[test]
fn a_thread_that_panics_leaves_the_image_as_a_power_cut_does() {
    let (device, fs) = image(32 << 20);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        fs.write("file", "kept").unwrap();
        fs.sync().unwrap();
        panic!("the program has a defect");
    }));
    assert!(panicked.is_err());
    let fs = reopen(device.to_bytes());
    assert!(fs.info().recovery.is_some());
    assert_eq!(fs.read("file").unwrap(), b"kept");
}

#[test]
fn opening_to_look_changes_no_byte() {
    let (device, fs) = image(32 << 20);
    fs.write("file", "kept").unwrap();
    fs.sync().unwrap();
    let cut = device.to_bytes();
    drop(fs);
    let device = Arc::new(MemoryDevice::from_bytes(cut.clone()));
    let fs = Filesystem::options().read_only(true).open_device(device.clone()).unwrap();
    assert_eq!(fs.read("file").unwrap(), b"kept");
    assert_eq!(fs.write("file", "x").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs.create_dir("dir").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert!(fs.info().read_only);
    fs.close().unwrap();
    assert!(device.to_bytes() == cut);
    let fs = Filesystem::options().no_recovery(true).open_device(device.clone()).unwrap();
    assert!(!fs.exists("file").unwrap());
    fs.close().unwrap();
    assert!(device.to_bytes() == cut);
}

#[test]
fn names_are_durable_at_once_where_that_was_asked_for() {
    for yes in [true, false] {
        let (device, fs) = image(32 << 20);
        fs.close().unwrap();
        let fs = Filesystem::options().sync_names(yes).cache_bytes(8 << 20).open_device(device.clone()).unwrap();
        fs.create_dir("dir").unwrap();
        let cut = device.to_bytes();
        assert_eq!(reopen(cut).exists("dir").unwrap(), yes);
    }
}

/// A record of the journal that is damaged ends it, as in the kernel: what is behind it is lost, and that is said.
#[test]
fn records_that_are_not_whole_are_reported() {
    const MAGIC: [u8; 4] = [0xfe, 0xed, 0xba, 0xbe];
    let (device, fs) = image(32 << 20);
    for n in 0..4 {
        fs.write(format!("file{n}"), "synced").unwrap();
        fs.sync().unwrap();
    }
    let cut = device.to_bytes();
    drop(fs);
    let files = |fs: &Filesystem| (0..4).filter(|n| fs.exists(format!("file{n}")).unwrap()).count();
    let look = Filesystem::options().read_only(true);
    let whole = look.open_device(Arc::new(MemoryDevice::from_bytes(cut.clone()))).unwrap();
    assert!(files(&whole) == 4 && !whole.info().recovery.unwrap().contains("whole record"));
    // The first record is that of mkfs. A byte of another one's contents is changed, in its second sector.
    let records = (0..cut.len()).step_by(512).filter(|at| cut[*at..].starts_with(&MAGIC)).collect::<Vec<_>>();
    assert!(records.len() > 4, "{records:?}");
    let mut least = usize::MAX;
    for record in records.into_iter().skip(1).rev() {
        let mut damaged = cut.clone();
        damaged[record + 512 + 100] ^= 1;
        let fs = look.open_device(Arc::new(MemoryDevice::from_bytes(damaged.clone()))).unwrap();
        let recovery = fs.info().recovery.expect("a report");
        assert!(recovery.contains("no whole record"), "{recovery}");
        let left = files(&fs);
        assert!(left < 4 && left <= least, "{left} files");
        least = left;
        fs.close().unwrap();
        // Writing goes on behind what is whole.
        let fs = reopen(damaged);
        assert!(fs.info().recovery.unwrap().contains("no whole record"));
        fs.write("after", "it").unwrap();
        fs.close().unwrap();
    }
    assert_eq!(least, 0);
}

#[test]
fn looking_past_the_journal_never_writes() {
    let (device, fs) = image(32 << 20);
    fs.write("file", "kept").unwrap();
    fs.sync().unwrap();
    let cut = device.to_bytes();
    drop(fs);
    let device = Arc::new(MemoryDevice::from_bytes(cut.clone()));
    let fs = Filesystem::options().no_recovery(true).read_only(false).open_device(device.clone()).unwrap();
    assert_eq!(fs.write("file", "x").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    fs.close().unwrap();
    assert!(device.to_bytes() == cut);
    // What was switched on can be switched off.
    let fs = Filesystem::options().no_recovery(true).no_recovery(false).open_device(device).unwrap();
    fs.write("file", "x").unwrap();
}
