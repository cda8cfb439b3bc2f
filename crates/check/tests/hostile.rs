//! Damaged images of every kind: a check ends with a report or a clear error, never with a panic, in little time and
//! memory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use xfskit_check::{CheckOptions, Quiet, check};
use xfskit_device::{BlockDevice, Fua, MemoryDevice, WrapsDevice};
use xfskit_fuzz_harness::{Mutator, Overlay, Random, Recipe, Watchdog, image, peak_memory_bytes};

/// How often each image is damaged, unless `XFSKIT_TRIALS` says otherwise.
const TRIALS: u64 = 1500;

fn trials() -> u64 {
    std::env::var("XFSKIT_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(TRIALS)
}

fn options() -> CheckOptions {
    CheckOptions { threads: 2, most_faults: 100 }
}

/// Damages an image many times, with valid checksums, and checks it.
fn torment(recipe: Recipe) {
    let base = Arc::new(image(recipe));
    let mutator = Mutator::new(&base);
    let watchdog = Watchdog::new();
    let (mut wrong, mut unseen) = (Vec::new(), 0);
    for trial in 0..trials() {
        let device = Arc::new(Overlay::new(&base));
        let story = mutator.damage(&device, &mut Random::new(trial));
        device.seal();
        watchdog.step(format!("{recipe:?}, trial {trial}: {story}"));
        match catch_unwind(AssertUnwindSafe(|| check(device, None, &options(), &Quiet))) {
            Ok(Ok(report)) => unseen += u64::from(report.is_clean()),
            Ok(Err(error)) => assert!(error.to_string().len() > 20, "{error}"),
            Err(_) => wrong.push(format!("trial {trial}: {story}")),
        }
    }
    assert!(wrong.is_empty(), "{recipe:?}: {} of {}\n{}", wrong.len(), trials(), wrong.join("\n"));
    // Some damage hits bytes that no check can judge: times, owners, unused bytes.
    assert!(unseen * 3 < trials(), "{recipe:?}: nothing was found in {unseen} of {} damaged images", trials());
    assert!(peak_memory_bytes() < 4 << 30, "{} bytes of memory", peak_memory_bytes());
}

#[test]
fn damage_of_an_image_with_defaults_is_reported() {
    torment(Recipe::Defaults);
}

#[test]
fn damage_of_an_image_with_small_blocks_is_reported() {
    torment(Recipe::SmallBlocks);
}

#[test]
fn damage_of_an_old_image_is_reported() {
    torment(Recipe::Old);
}

/// Number of damaged images that xfs_repair also judges.
const COMPARED: u64 = 60;

#[test]
fn what_repair_sees_is_found() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.file("damaged.img");
    let base = Arc::new(image(Recipe::Quick));
    let mutator = Mutator::new(&base);
    let mut missed = Vec::new();
    for trial in 0..COMPARED {
        let device = Overlay::new(&base);
        let story = mutator.damage(&device, &mut Random::new(trial));
        // Repair does not look into the log, and refuses one that it takes for dirty.
        if story.contains("log@") {
            continue;
        }
        let mut bytes = vec![0; base.len()];
        for (index, part) in bytes.chunks_mut(1 << 20).enumerate() {
            device.read((index << 20) as u64, part).expect("an image in memory");
        }
        std::fs::write(&path, &bytes).expect("an image file");
        let report = check(Arc::new(MemoryDevice::from_bytes(bytes)), None, &options(), &Quiet);
        if report.is_ok_and(|report| report.is_clean())
            && let Some(said) = reference.repair_findings(&path, None)
        {
            missed.push(format!("trial {trial}: {story}: {said}"));
        }
    }
    assert!(missed.is_empty(), "{} of {COMPARED} missed\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn images_of_the_kernels_fuzzers_are_reported_or_refused() {
    let scratch = xfskit_testkit::scratch();
    let watchdog = Watchdog::new();
    for path in xfskit_testkit::fuzzed_images(&scratch) {
        let name = path.display().to_string();
        watchdog.step(name.clone());
        let device = Arc::new(MemoryDevice::from_bytes(std::fs::read(&path).expect("an image")));
        match check(device, None, &options(), &Quiet) {
            Ok(report) => println!("{name}: {} faults, {:?}", report.fault_count, report.faults.first()),
            Err(error) => println!("{name}: refused: {error}"),
        }
    }
    assert!(peak_memory_bytes() < 4 << 30, "{} bytes of memory", peak_memory_bytes());
}

/// A device of which a part cannot be read.
struct Failing {
    below: MemoryDevice,
    bad: std::ops::Range<u64>,
}

impl WrapsDevice for Failing {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.below
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset < self.bad.end && offset + buffer.len() as u64 > self.bad.start {
            return Err(io::Error::other("a bad sector"));
        }
        self.below.read(offset, buffer)
    }

    fn pass_write(&self, _: u64, _: &[u8], _: Fua) -> io::Result<()> {
        panic!("a check writes nothing")
    }

    fn pass_flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_cannot_be_read_is_a_fault() {
    let bytes = image(Recipe::Quick);
    let half = bytes.len() as u64 / 2;
    for bad in [512..1024, 4096..8192, half..half + 4096, 65536..131072] {
        let device = Failing { below: MemoryDevice::from_bytes(bytes.clone()), bad: bad.clone() };
        let report = check(Arc::new(device), None, &options(), &Quiet).expect("the superblock can be read");
        assert!(report.faults.iter().any(|fault| fault.check == "can be read from the device"), "{bad:?}");
    }
}

#[test]
fn an_image_that_was_cut_off_is_reported() {
    let mut bytes = image(Recipe::Quick);
    bytes.truncate(bytes.len() - 4096);
    let report = check(Arc::new(MemoryDevice::from_bytes(bytes)), None, &options(), &Quiet).expect("a report");
    assert_eq!(report.faults[0].check, "the device holds the whole image");
}
