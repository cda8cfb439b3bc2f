//! Random damage with right checksums: reads and changes either work or report an error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{MountOptions, Volume};
use xfskit_fuzz_harness::{Kind, Mutator, Overlay, Random, Recipe, Watchdog, exercise, image, peak_memory_bytes, walk};

/// How often each image is damaged; `XFSKIT_TRIALS` says otherwise.
const TRIALS: u64 = 150;

pub fn trials() -> u64 {
    std::env::var("XFSKIT_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(TRIALS)
}

fn first_trial() -> u64 {
    std::env::var("XFSKIT_FIRST_TRIAL").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Damages `base` over and over, walks it and works on it.
pub fn torment(name: &str, base: Vec<u8>) {
    let base = Arc::new(base);
    let mutator = Mutator::new(&base);
    let watchdog = Watchdog::new();
    let mut wrong = Vec::new();
    for trial in first_trial()..first_trial() + trials() {
        let mut random = Random::new(trial);
        let device = Arc::new(Overlay::new(&base));
        let story = mutator.damage(&device, &mut random);
        watchdog.step(format!("{name}, trial {trial}: {story}"));
        let run = AssertUnwindSafe(|| {
            device.seal();
            let look = MountOptions { no_recovery: true, ..MountOptions::read_only() };
            if let Ok(fs) = Volume::open(Arc::clone(&device) as _, look) {
                walk(&fs, 300);
            }
            drop(device);
            // The same damage again, for a filesystem that may write.
            let device = Arc::new(Overlay::new(&base));
            mutator.damage(&device, &mut Random::new(trial));
            if let Ok(fs) = Volume::open(Arc::clone(&device) as _, MountOptions::default()) {
                exercise(&fs, &mut random, 60);
                let _ = fs.unmount();
            }
        });
        if catch_unwind(run).is_err() {
            wrong.push(format!("trial {trial}: {story}"));
        }
    }
    assert!(wrong.is_empty(), "{name}: {} of {}\n{}", wrong.len(), trials(), wrong.join("\n"));
    assert!(peak_memory_bytes() < 8 << 30, "{} bytes of memory", peak_memory_bytes());
}

#[test]
fn our_image_has_every_form() {
    let base = image(Recipe::SmallBlocks);
    let metadata = xfskit_fuzz_harness::blocks(&base);
    for kind in [
        Kind::Superblock,
        Kind::Agf,
        Kind::Agi,
        Kind::Agfl,
        Kind::Bnobt,
        Kind::Cntbt,
        Kind::Inobt,
        Kind::Finobt,
        Kind::Rmapbt,
        Kind::Refcountbt,
        Kind::Bmbt,
        Kind::DaNode,
        Kind::DirBlock,
        Kind::DirData,
        Kind::DirLeaf1,
        Kind::DirLeafN,
        Kind::DirFree,
        Kind::AttrLeaf,
        Kind::AttrRemote,
        Kind::Symlink,
        Kind::Inode,
    ] {
        println!("{kind:?} {}", metadata.of(kind).len());
        assert!(!metadata.of(kind).is_empty(), "{kind:?}");
    }
    let device = Arc::new(Overlay::new(&Arc::new(base)));
    device.seal();
    let fs = Volume::open(device, MountOptions::read_only()).unwrap();
    let found = walk(&fs, 10_000);
    println!("{found:?}");
    assert!(found.errors.is_empty(), "{}", found.messages());
}

#[test]
fn damage_to_an_image_with_defaults() {
    torment("defaults", image(Recipe::Defaults));
}

#[test]
fn damage_to_an_image_with_small_blocks() {
    torment("small blocks", image(Recipe::SmallBlocks));
}

#[test]
fn damage_to_an_image_of_old() {
    torment("old", image(Recipe::Old));
}

/// Makes an image with mkfs.xfs, and fills it with the reference kernel and then with xfskit.
fn kernels_image() -> Option<Vec<u8>> {
    let reference = xfskit_testkit::reference()?;
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 300 << 20);
    let arguments = ["-q", "-b", "size=1024", "-m", "reflink=1,rmapbt=1", "-d", "agcount=3"];
    reference.tool_output("mkfs.xfs", arguments.iter().map(AsRef::as_ref).chain([path.as_os_str()]));
    // Files with shared and scattered extents, which only the kernel makes.
    let run = reference.uml(
        &path,
        "mount /dev/ubda /mnt && mkdir /mnt/data && cd /mnt/data || exit 1
         for n in $(seq 60); do head -c $((n * 3000)) /dev/urandom >f$n; done
         for n in $(seq 1 2 60); do cp --reflink=always f$n shared$n; done
         for n in $(seq 1 4 60); do printf x | dd of=shared$n bs=1 seek=$((n * 1500)) conv=notrunc 2>/dev/null; done
         dd if=/dev/zero of=scattered bs=1024 count=400 2>/dev/null; cp --reflink=always scattered twin
         for n in $(seq 1 2 400); do printf y | dd of=scattered bs=1024 seek=$n conv=notrunc 2>/dev/null; done
         ln -s $(printf 'y%.0s' $(seq 900)) link; mkfifo fifo; cd /; umount /mnt",
    );
    assert_eq!(run.status, 0, "{}", run.output);
    let device = FileDevice::open(&path, Access::Write).expect("an image file");
    xfskit_fuzz_harness::populate(Arc::new(device), 20).expect("room");
    Some(std::fs::read(&path).expect("an image"))
}

#[test]
fn damage_to_an_image_of_the_kernel() {
    let Some(image) = kernels_image() else { return };
    let metadata = xfskit_fuzz_harness::blocks(&image);
    for kind in [Kind::Refcountbt, Kind::Bmbt, Kind::Rmapbt, Kind::Symlink] {
        println!("{kind:?} {}", metadata.of(kind).len());
        assert!(!metadata.of(kind).is_empty(), "{kind:?}");
    }
    torment("the kernel's", image);
}
