//! Recovery that is cut off and begun again, blocks that are torn within themselves, recovery in memory, and crafted
//! logs.

use crate::device::{Device, SECTOR, State};
use crate::kernel::{Owned, crash_image};
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_engine::env::SeededEnvironment;
use xfskit_engine::{Error, MountOptions, Volume};
use xfskit_ondisk::InodeNumber;

fn open(device: &Arc<Device>, options: MountOptions) -> Result<Volume, Error> {
    let env = Arc::new(SeededEnvironment::new(1));
    Volume::open_in(Arc::clone(device) as Arc<dyn BlockDevice>, None, options, env)
}

/// Everything below the root as text: paths, attributes, values.
fn describe(fs: &Volume) -> Vec<String> {
    let mut lines = Vec::new();
    let mut dirs: Vec<(String, InodeNumber)> = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = dirs.pop() {
        for entry in fs.list_dir(dir).expect("a directory") {
            let path = format!("{path}/{}", entry.name.escape_ascii());
            let stat = fs.stat(entry.inode).expect("an inode");
            let mut line = format!("{path} {stat:?}");
            for name in fs.list_xattrs(entry.inode).expect("attributes") {
                let value = fs.get_xattr(entry.inode, &name).expect("a value");
                line += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
            }
            if stat.file_type.is_dir() {
                dirs.push((path, entry.inode));
            }
            lines.push(line);
        }
    }
    lines.sort();
    lines
}

/// A crash image of the kernel, and what recovery makes of it.
struct Recovered {
    image: Owned,
    /// The image in memory, as the crash left it.
    base: Arc<Vec<u8>>,
    tree: Vec<String>,
    /// The device after recovery and unmount.
    whole: Arc<Device>,
}

fn recovered(seed: u64) -> Option<Recovered> {
    let reference = xfskit_testkit::reference()?;
    let image = crash_image(&reference, seed)?;
    let base = Arc::new(std::fs::read(&image.data).expect("an image"));
    let device = Device::new(&base, State::default());
    let fs = open(&device, MountOptions::default()).expect("a recovery");
    let tree = describe(&fs);
    fs.unmount().expect("a clean end");
    Some(Recovered { image, base, tree, whole: device })
}

#[test]
fn recovery_may_be_cut_off_at_any_write() {
    for seed in [2, 7] {
        let Some(Recovered { base, tree, whole, .. }) = recovered(seed) else { return };
        let writes = whole.state().writes;
        // After every write of a short recovery, after some writes of a long one.
        for cut in (0..writes).step_by(1 + writes / 150) {
            let device = Device::new(&base, State { writes_left: Some(cut), ..State::default() });
            let done = open(&device, MountOptions::default()).and_then(Volume::unmount);
            assert!(done.is_err(), "seed {seed}: write {cut} did not fail");
            let sectors = device.state().sectors.clone();
            let again = Device::new(&base, State { sectors, ..State::default() });
            let fs = open(&again, MountOptions::default())
                .unwrap_or_else(|error| panic!("seed {seed}, cut at write {cut}: {error}"));
            assert!(describe(&fs) == tree, "seed {seed}: another tree after a cut at write {cut}");
            fs.unmount().expect("a clean end");
            if cut % 40 == 0 {
                assert_sound(&again, cut);
            }
        }
        println!("seed {seed}: {writes} writes, {} files", tree.len());
    }
}

fn assert_sound(device: &Device, cut: usize) {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.file("again.img");
    std::fs::write(&path, device.contents()).expect("room for an image");
    if let Some(findings) = reference.repair_findings(&path, None) {
        panic!("cut at write {cut}: {findings}");
    }
}

#[test]
fn blocks_that_are_torn_within_themselves_are_mended() {
    for seed in [0, 2, 3] {
        let Some(Recovered { base, tree, whole, .. }) = recovered(seed) else { return };
        let on_device = whole.state().before_flush.clone().expect("recovery flushes");
        // Of the blocks that recovery wrote in place, every other sector arrived, or only the first of each block.
        for (step, kept) in [(2, 0), (2, 1), (8, 0)] {
            let sectors = on_device
                .iter()
                .filter(|(sector, _)| *sector % step == kept)
                .map(|(at, bytes)| (*at, *bytes))
                .collect();
            let device = Device::new(&base, State { sectors, ..State::default() });
            let fs = open(&device, MountOptions::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(describe(&fs) == tree, "seed {seed}: another tree");
            fs.unmount().expect("a clean end");
            assert_sound(&device, 0);
        }
    }
}

#[test]
fn a_recovery_in_memory_shows_the_same_and_leaves_the_image_alone() {
    for seed in [1, 4] {
        let Some(Recovered { image, base, tree, .. }) = recovered(seed) else { return };
        let device = Device::new(&base, State { writes_left: Some(0), ..State::default() });
        let fs = open(&device, MountOptions::read_only()).expect("a look");
        assert!(describe(&fs) == tree, "seed {seed}: another tree");
        assert!(fs.mount().recovery.as_ref().is_some_and(|report| report.replayed > 0));
        drop(fs);
        assert_eq!(device.state().writes, 0);
        let fs = image.open(MountOptions::read_only()).expect("a look");
        assert!(describe(&fs) == tree, "seed {seed}: another tree");
        drop(fs);
        assert!(std::fs::read(&image.data).expect("the image") == *base, "seed {seed}: the image was changed");
    }
}

#[test]
fn made_up_logs_are_refused_or_replayed() {
    use crate::workload::Random;
    use xfskit_ondisk::log_record::{RECORD_MAGIC, header_sectors, record_checksum};
    let Some(Recovered { base, .. }) = recovered(2) else { return };
    let sectors = base.len() / SECTOR;
    let starts: Vec<usize> = (0..sectors)
        .map(|sector| sector * SECTOR)
        .filter(|&at| base[at..at + 4] == RECORD_MAGIC.to_be_bytes())
        .collect();
    let word = |at: usize| u32::from_be_bytes(base[at..at + 4].try_into().expect("four bytes")) as usize;
    let records: Vec<_> = starts.iter().map(|&at| (at, header_sectors(word(at + 320)), word(at + 12))).collect();
    let records: Vec<_> = records.into_iter().filter(|&(_, _, length)| length > 0).collect();
    let (mut random, mut refused, mut replayed) = (Random::new(5), 0, 0);
    for _ in 0..400 {
        let device = Device::new(&base, State::default());
        for _ in 0..1 + random.below(4) {
            let (at, headers, length) = records[random.below(records.len())];
            let mut record = base[at..at + headers * SECTOR + length].to_vec();
            for _ in 0..1 + random.below(4) {
                // Formats are short and lie between long contents: half of the changes go to the front.
                let span = if random.below(2) == 0 { 600.min(length) } else { length };
                let place = headers * SECTOR + random.below(span);
                match random.below(3) {
                    0 => record[place] ^= 1 << random.below(8),
                    1 => record[place] = random.below(256) as u8,
                    _ => record[place & !3..][..4].fill([0, 0xff, 0x7f][random.below(3)]),
                }
            }
            record[32..36].fill(0);
            let crc = record_checksum(&record, headers);
            record[32..36].copy_from_slice(&crc.to_le_bytes());
            device.write(at as u64, &record).expect("a device that works");
        }
        match open(&device, MountOptions::default()).and_then(Volume::unmount) {
            Ok(()) => replayed += 1,
            Err(error) => {
                assert!(error.is_damage() || matches!(error, Error::Unsupported(_)), "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {replayed} replayed");
    assert!(refused > 20 && replayed > 20, "{refused} refused, {replayed} replayed");
}
