//! Images that the kernel's fuzzers found worth keeping. They are not part of this repository: the folder that
//! `XFSKIT_HOSTILE_IMAGES` names, or `shared/images` beside the repository, is searched for `*.img.zst`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use xfskit::device::{Access, BlockDevice, FileDevice};
use xfskit::{Filesystem, MountOptions};
use xfskit_fuzz_harness::{Overlay, Random, Watchdog, exercise, walk};

fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/images");
    std::env::var_os("XFSKIT_HOSTILE_IMAGES").map_or(beside, PathBuf::from)
}

/// The images, unpacked into `scratch`.
fn images(scratch: &xfskit_testkit::Scratch) -> Vec<PathBuf> {
    let folder = folder();
    let Ok(listing) = std::fs::read_dir(&folder) else {
        println!("skipped: there is no folder {}", folder.display());
        return Vec::new();
    };
    let mut packed: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    packed.retain(|path| path.to_string_lossy().ends_with(".img.zst"));
    packed.sort();
    let mut images = Vec::new();
    for path in packed {
        let target = scratch.file(&path.file_stem().expect("a name").to_string_lossy());
        match Command::new("zstd").args(["-dqf", "-o"]).args([&target, &path]).status() {
            Ok(status) => assert!(status.success(), "zstd does not unpack {}", path.display()),
            Err(error) => {
                xfskit_testkit::skip(&format!("zstd cannot be run: {error}"));
                return Vec::new();
            }
        }
        images.push(target);
    }
    images
}

/// Opens the image and looks at everything; says what came of it.
fn look(device: Arc<dyn BlockDevice>, options: MountOptions) -> String {
    match Filesystem::open(device, options) {
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
    let images = images(&scratch);
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
        match Filesystem::open(device, MountOptions::default()) {
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
        let Ok(fs) = Filesystem::open(Arc::clone(&device) as _, MountOptions::default()) else { return };
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
