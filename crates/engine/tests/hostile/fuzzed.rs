//! Images that the kernel's fuzzers found worth keeping (see [`xfskit_testkit::fuzzed_images`]).

use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::{MountOptions, Volume};
use xfskit_fuzz_harness::{Overlay, Random, Watchdog, exercise, walk};

/// Opens the image and looks at everything; returns the result as text.
fn look(device: Arc<dyn BlockDevice>, options: MountOptions) -> String {
    match Volume::open(device, options) {
        Err(error) => {
            assert!(error.to_string().len() > 20, "{error}");
            format!("refused: {error}")
        }
        Ok(fs) => {
            let found = walk(&fs, 20_000);
            let first = found.errors.first().map(ToString::to_string).unwrap_or_default();
            format!("{} inodes, {} names, {} errors: {first}", found.inodes, found.names, found.errors.len())
        }
    }
}

#[test]
fn images_of_the_kernels_fuzzers_are_read_or_refused() {
    let scratch = xfskit_testkit::scratch();
    let watchdog = Watchdog::new();
    let images = xfskit_testkit::fuzzed_images(&scratch);
    for path in &images {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let before = std::fs::read(path).expect("an image");
        let unchanged = || std::fs::read(path).expect("an image") == before;
        for no_recovery in [false, true] {
            watchdog.step(format!("{name} read-only"));
            let device = FileDevice::open(path, Access::Read).expect("an image file");
            let options = MountOptions { no_recovery, ..MountOptions::read_only() };
            println!("{name} read-only: {}", look(Arc::new(device), options));
            assert!(unchanged(), "{name} was changed by looking at it");
        }
        watchdog.step(format!("{name} for writing"));
        let device = Arc::new(FileDevice::open(path, Access::Write).expect("an image file"));
        match Volume::open(device, MountOptions::default()) {
            Ok(_) => println!("{name} for writing: opened"),
            Err(error) => {
                println!("{name} for writing: refused: {error}");
                assert!(unchanged(), "{name} was changed although it was refused");
            }
        }
        work_on(&name, before, &watchdog);
    }
    println!("{} images", images.len());
}

/// Changes things in a copy.
fn work_on(name: &str, image: Vec<u8>, watchdog: &Watchdog) {
    let base = Arc::new(image);
    for seed in 0..20 {
        watchdog.step(format!("{name}, changes {seed}"));
        let device = Arc::new(Overlay::new(&base));
        let Ok(fs) = Volume::open(Arc::clone(&device) as _, MountOptions::default()) else { return };
        let errors = exercise(&fs, &mut Random::new(seed), 100);
        if seed == 0 {
            println!(
                "{name}, changes: {} errors {}",
                errors.len(),
                errors.first().map_or("".into(), |e| e.to_string())
            );
        }
        let _ = fs.unmount();
    }
}
