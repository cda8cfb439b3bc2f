//! The power fails below qcow2: the engine writes to a qcow2 image through xfskit-disk, and each cut leaves any part of
//! what no flush of the image's file covered.
//!
//! After each cut the image needs no more than `qemu-img check -r all`, and an image without the mark of an unclean
//! stop has leaked clusters at most; then the filesystem is judged as in every other run: all that was acknowledged is
//! there. `XFSKIT_QCOW2_STATES` sets the number of states, `XFSKIT_SEED` the first seed.
#![allow(unsafe_code, reason = "imago's trait has unsafe functions; what they do here is safe")]

use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use imago::{DynStorage, Storage};
use std::fmt;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use xfskit_device::{Access, BlockDevice};
use xfskit_disk::qcow2_on;
use xfskit_sim::{Below, Crashed, Event, Lower, Pages, RunOptions, SimDevice, WORKLOADS, explore_below, record_on};
use xfskit_testkit::{Scratch, scratch, skip};

const PAGE: usize = 4096;
/// The file of the image never grows beyond this.
const FILE_BYTES: u64 = 192 << 20;
const INCOMPATIBLE: usize = 72;
const LENGTH_PLACE: u64 = FILE_BYTES - PAGE as u64;

/// The file of an image: a simulated device, on which a range that was never written is a hole. Its last page has the
/// length of the file, as an inode has it: a cut may lose the length, and all that was written behind it.
struct SimFile {
    device: SimDevice,
    length: AtomicU64,
    helper: CommonStorageHelper,
}

impl SimFile {
    fn note_length(&self, length: u64) -> io::Result<()> {
        let mut sector = [0; 512];
        sector[..8].copy_from_slice(&length.to_le_bytes());
        self.device.write(LENGTH_PLACE, &sector)
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimFile")
    }
}

impl fmt::Display for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simulated file")
    }
}

impl Storage for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::SeqCst))
    }

    unsafe fn pure_readv(&self, mut bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(bufv.len()).unwrap()];
        self.device.read(offset, &mut bytes)?;
        bufv.copy_from_slice(&bytes);
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(bufv.len()).unwrap()];
        bufv.copy_into_slice(&mut bytes);
        let end = offset + bufv.len();
        assert!(end <= LENGTH_PLACE, "the simulated disk is full");
        if self.length.fetch_max(end, Ordering::SeqCst) < end {
            self.note_length(end)?;
        }
        self.device.write(offset, &bytes)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.device.flush()
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }

    fn resize(&self, new_size: u64, _: PreallocateMode) -> io::Result<()> {
        self.length.store(new_size, Ordering::SeqCst);
        self.note_length(new_size)
    }
}

/// The storage below a run: a qcow2 image.
struct Image {
    qcow2: Mutex<Arc<dyn BlockDevice>>,
    file: Arc<SimFile>,
}

impl Lower for Image {
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.qcow2.lock().unwrap().write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.qcow2.lock().unwrap().flush()
    }

    fn mark(&self, event: &Event) {
        self.file.device.mark(event.clone());
    }
}

/// Pages of zeros, so that what no one wrote is a hole.
fn holes() -> Pages {
    let zeros = Arc::new([0; PAGE]);
    (0..FILE_BYTES / PAGE as u64).map(|page| (page, Arc::clone(&zeros))).collect()
}

/// What an image is at the start of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It has the contents of the disk.
    Full,
    /// It is empty, and lies on a raw disk with the contents.
    OnRaw,
}

/// An image with the pages of a device, as qemu-img makes it; beside it `base.img`, the raw disk.
fn make_qcow2(scratch: &Scratch, options: &str, start: Start, size_bytes: u64, pages: &Pages) -> Pages {
    let (raw, image) = (scratch.file("base.img"), scratch.file("base.qcow2"));
    let file = std::fs::File::create(&raw).unwrap();
    file.set_len(size_bytes).unwrap();
    for (page, bytes) in pages {
        file.write_all_at(&bytes[..], page * PAGE as u64).unwrap();
    }
    let mut command = Command::new("qemu-img");
    match start {
        Start::Full => command.args(["convert", "-f", "raw", "-O", "qcow2", "-o", options]).arg(&raw).arg(&image),
        Start::OnRaw => {
            command.args(["create", "-q", "-f", "qcow2", "-o", options, "-b", "base.img", "-F", "raw"]).arg(&image)
        }
    };
    assert!(command.status().unwrap().success());
    let mut found = holes();
    let mut length = [0; PAGE];
    length[..8].copy_from_slice(&image.metadata().unwrap().len().to_le_bytes());
    found.insert(LENGTH_PLACE / PAGE as u64, Arc::new(length));
    for (page, bytes) in std::fs::read(&image).unwrap().chunks(PAGE).enumerate() {
        let mut whole = [0; PAGE];
        whole[..bytes.len()].copy_from_slice(bytes);
        found.insert(page as u64, Arc::new(whole));
    }
    found
}

/// A file that is only read.
fn raw_file(path: &Path) -> Arc<dyn DynStorage> {
    Arc::new(imago::file::File::try_from(std::fs::File::open(path).unwrap()).unwrap())
}

fn length_of(pages: &Pages) -> u64 {
    u64::from_le_bytes(pages[&(LENGTH_PLACE / PAGE as u64)][..8].try_into().unwrap())
}

/// What qemu-img says of an image after a cut; then the pages of the disk in it.
fn recover(path: &Path, state: &Crashed, size_bytes: u64) -> Result<Pages, String> {
    let file = std::fs::File::create(path).unwrap();
    let mut length = 0;
    let mut header = [0; PAGE];
    for (offset, bytes) in state.contents() {
        match offset {
            LENGTH_PLACE => length = u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            _ => file.write_all_at(bytes, offset).unwrap(),
        }
        if offset == 0 {
            header.copy_from_slice(bytes);
        }
    }
    file.set_len(length).unwrap();
    drop(file);
    let is_marked = header[INCOMPATIBLE + 7] & 1 != 0;
    let mut command = Command::new("qemu-img");
    command.args(["check", "-q"]).args(if is_marked { &["-r", "all"][..] } else { &[] }).arg(path);
    let output = command.output().unwrap();
    // 3: leaked clusters and nothing else.
    if !matches!((output.status.code(), is_marked), (Some(0), _) | (Some(3), false)) {
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        return Err(format!("qemu-img check, {}, marked {is_marked}: {text}", output.status));
    }
    let operand = xfskit_disk::Operand { paths: vec![path.into()], part: xfskit_disk::Part::Whole };
    let disks = xfskit_disk::Disks::open(&operand, Access::Read).map_err(|error| error.to_string())?;
    let disk = disks.choose(xfskit_disk::Unnamed::WholeDisk).map_err(|error| error.to_string())?;
    assert_eq!(disk.size_bytes(), size_bytes);
    let mut pages = Pages::default();
    let zeros = Arc::new([0; PAGE]);
    const STEP: usize = 64 << 10;
    for start in (0..size_bytes).step_by(STEP) {
        let holds_data = disk.may_hold_data(start, STEP as u64);
        let mut bytes = vec![0; if holds_data { STEP } else { 0 }];
        disk.read(start, &mut bytes).map_err(|error| format!("reading at {start}: {error}"))?;
        for part in 0..STEP / PAGE {
            let page = if holds_data {
                Arc::new(bytes[part * PAGE..][..PAGE].try_into().unwrap())
            } else {
                Arc::clone(&zeros)
            };
            pages.insert(start / PAGE as u64 + part as u64, page);
        }
    }
    Ok(pages)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn a_power_cut_below_qcow2_leaves_leaked_clusters_at_most() {
    if Command::new("qemu-img").arg("--version").output().is_err() {
        skip("no qemu-img");
        return;
    }
    let (wanted, first) = (number("XFSKIT_QCOW2_STATES", 300), number("XFSKIT_SEED", 1));
    let scratch = scratch();
    let (mut states, mut seed) = (0, first);
    while states < wanted {
        let workload = &WORKLOADS[seed as usize % WORKLOADS.len()];
        let (options, start) = [
            ("cluster_size=64k", Start::OnRaw),
            ("cluster_size=4k", Start::Full),
            ("cluster_size=64k,lazy_refcounts=on", Start::Full),
            ("cluster_size=16k", Start::OnRaw),
        ][seed as usize % 4];
        let lower: Mutex<Option<(Arc<Image>, Arc<Pages>)>> = Mutex::new(None);
        let make = |size_bytes, pages: &Pages| -> Arc<dyn Lower> {
            let base = Arc::new(make_qcow2(&scratch, options, start, size_bytes, pages));
            let device = SimDevice::new(FILE_BYTES, Arc::clone(&base), Pages::default());
            device.start_record();
            let length = AtomicU64::new(length_of(&base));
            let file = Arc::new(SimFile { device, length, helper: CommonStorageHelper::default() });
            let below: Arc<dyn DynStorage> = Arc::clone(&file) as _;
            let backing = (start == Start::OnRaw).then(|| raw_file(&scratch.file("base.img")));
            let qcow2 = qcow2_on(Path::new("image"), below, backing, Access::Write).unwrap();
            let image = Arc::new(Image { qcow2: Mutex::new(qcow2), file });
            *lower.lock().unwrap() = Some((Arc::clone(&image), base));
            image
        };
        let (recording, _) = record_on(workload, seed, RunOptions::default(), Some(&make)).unwrap();
        let (image, base) = lower.into_inner().unwrap().unwrap();
        let file = Arc::clone(&image.file);
        drop(image);
        let below = Below { size_bytes: FILE_BYTES, base, events: file.device.take_record() };
        let path = scratch.file("cut.qcow2");
        let share = (wanted / 8).clamp(20, 500).min(wanted - states);
        let tally = explore_below(&recording, &below, share, seed, |state| recover(&path, state, recording.size_bytes));
        match tally {
            Ok(tally) => states += tally.states.max(1),
            Err(failure) => {
                if let Some(folder) = std::env::var_os("XFSKIT_KEEP") {
                    std::fs::copy(&path, Path::new(&folder).join("cut.qcow2")).unwrap();
                }
                panic!("workload {} seed {seed}, {options}: {failure}", workload.name);
            }
        }
        seed += 1;
    }
    println!("{states} states of {} runs", seed - first);
}
