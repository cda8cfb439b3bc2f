//! Good images: nothing is found in what the kernel, mkfs.xfs and the engine make, and xfs_repair agrees.

mod common;

use common::{check_device, check_file, findings, kernel_image, kernel_image_then};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use xfskit_check::{CheckError, CheckOptions, LogCondition, Quiet, check};
use xfskit_device::{Access, FileDevice, MemoryDevice};
use xfskit_engine::{MountOptions, Volume};
use xfskit_fuzz_harness::{Recipe, image};
use xfskit_testkit::{FarDevice, kernel_mount, reference, scratch};

/// Images that the kernel fills: a name, and the options of mkfs.xfs.
const SHAPES: &[(&str, &[(char, &str)])] = &[
    ("defaults", &[]),
    ("small blocks", &[('b', "size=1024"), ('n', "size=4096")]),
    ("large blocks", &[('b', "size=65536"), ('l', "size=96m")]),
    ("large inodes and directory blocks", &[('i', "size=2048"), ('n', "size=65536")]),
    (
        "old",
        &[
            ('m', "rmapbt=0,reflink=0,finobt=0,inobtcount=0,bigtime=0"),
            ('n', "parent=0"),
            ('i', "nrext64=0,sparse=0,exchange=0"),
        ],
    ),
    ("no reverse mappings", &[('m', "rmapbt=0"), ('d', "agcount=5")]),
    ("large sectors", &[('s', "size=4096"), ('m', "reflink=0")]),
];

#[test]
fn nothing_is_found_where_the_kernel_wrote() {
    let scratch = scratch();
    let Some(reference) = reference() else { return };
    for (name, options) in SHAPES {
        let Some(path) = kernel_image(&scratch, "kernel.img", 512, options) else { return };
        reference.repair_finds_nothing(&path);
        let report = check_file(&path);
        assert!(
            report.is_clean() && report.log == LogCondition::Clean && report.notes.is_empty(),
            "{name}: {}",
            findings(&report)
        );
        assert!(report.summary.names > 2000 && report.summary.inodes > 150, "{name}: {:?}", report.summary);
        let total = report.summary.used_blocks + report.summary.free_blocks;
        let blocks = xfskit_ondisk::Superblock::decode(&std::fs::read(&path).unwrap()).unwrap().raw().data_blocks.get();
        assert_eq!(total, blocks, "{name}");
        std::fs::remove_file(path).unwrap();
    }
}

/// Free space in pieces of 16 KiB, as large as half a chunk of inodes: the kernel makes sparse chunks, and joins some
/// of them.
#[test]
fn sparse_chunks_are_counted_as_the_kernel_and_repair_do() {
    let scratch = scratch();
    let Some(reference) = reference() else { return };
    let fragment = |root: &Path| {
        use rustix::fs::{FallocateFlags, fallocate};
        const PIECE: u64 = 16 << 10;
        let room = rustix::fs::statvfs(root).expect("a filesystem");
        let whole = (room.f_bavail * room.f_frsize - (1 << 20)) / (2 * PIECE) * (2 * PIECE);
        let filler = File::create(root.join("filler")).expect("a file");
        fallocate(&filler, FallocateFlags::empty(), 0, whole).expect("room");
        let rest = File::create(root.join("rest")).expect("a file");
        while (&rest).write_all(&[b'r'; 1 << 16]).is_ok() {}
        rest.sync_all().expect("a sync");
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for at in (0..whole.min(64 << 20)).step_by(2 * PIECE as usize) {
            fallocate(&filler, hole, at, PIECE).expect("a hole");
        }
        filler.sync_all().expect("a sync");
        (0..40_000).for_each(|n| drop(File::create(root.join(format!("inode {n}"))).expect("an inode")));
        (0..40_000).step_by(3).for_each(|n| std::fs::remove_file(root.join(format!("inode {n}"))).expect("a file"));
    };
    let options = &[('d', "agcount=2")];
    let Some(path) = kernel_image_then(&scratch, "kernel.img", 320, options, fragment) else { return };
    let records = reference.db(&path, &["agi 0", "addr free_root", "p"]);
    assert!(records.contains(",0xff00,32,"), "no sparse chunk: {records}");
    reference.repair_finds_nothing(&path);
    let report = check_file(&path);
    assert!(report.is_clean(), "{}", findings(&report));
    assert!(report.summary.inodes > 26_000, "{:?}", report.summary);
}

#[test]
fn nothing_is_found_in_images_of_mkfs() {
    let scratch = scratch();
    let Some(reference) = reference() else { return };
    for options in [
        &["-m", "uuid=11111111-2222-3333-4444-555555555555"][..],
        &["-d", "agcount=9", "-b", "size=2048"],
        &["-l", "su=32k", "-d", "su=64k,sw=4"],
        &["-m", "crc=1,finobt=0", "-i", "size=1024"],
    ] {
        let path = scratch.file("mkfs.img");
        let file = format!("file,name={},size=1g", path.display());
        reference.tool_output("mkfs.xfs", options.iter().copied().chain(["-q", "-f", "-d", &file]));
        let report = check_file(&path);
        assert!(report.is_clean() && report.log == LogCondition::Clean, "{options:?}: {}", findings(&report));
        assert_eq!(report.summary.inodes, 3, "{options:?}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_dirty_journal_is_reported() {
    let scratch = scratch();
    let Some(path) = kernel_image(&scratch, "kernel.img", 160, &[]) else { return };
    let Some(mount) = kernel_mount(&path) else { return };
    std::fs::write(mount.path().join("one more"), "contents").unwrap();
    // This filesystem alone: another one of this machine may be stuck.
    assert!(std::process::Command::new("sync").arg("-f").arg(mount.path()).status().unwrap().success());
    // A copy of the mounted image is what a power cut would leave.
    let copy = scratch.file("copy.img");
    std::fs::copy(&path, &copy).unwrap();
    mount.unmount();
    let report = check_file(&copy);
    assert!(
        report.log == LogCondition::Dirty && report.notes.iter().any(|note| note.contains("dirty")),
        "{:?}",
        report.notes
    );
    assert!(check_file(&path).log == LogCondition::Clean);
}

#[test]
fn an_external_journal_must_be_named() {
    let (device, log) = (Arc::new(MemoryDevice::new(64 << 20)), Arc::new(MemoryDevice::new(16 << 20)));
    let mut options = xfskit_mkfs::Options { allow_small: true, uuid: Some([7; 16]), ..Default::default() };
    options.apply('l', "logdev=somewhere").unwrap();
    xfskit_mkfs::make(&*device, Some(&*log), &options, Default::default()).unwrap();
    let check = |log| check(Arc::clone(&device) as _, log, &CheckOptions::default(), &Quiet);
    assert!(matches!(check(None), Err(CheckError::NoLogDevice)));
    let report = check(Some(Arc::clone(&log) as _)).unwrap();
    assert!(report.is_clean() && report.log == LogCondition::Clean, "{}", findings(&report));
}

#[test]
fn several_threads_find_what_one_finds() {
    let mut bytes = image(Recipe::Defaults);
    // The superblock claims enough inodes for several threads.
    bytes[128..136].copy_from_slice(&1_000_000u64.to_be_bytes());
    xfskit_ondisk::set_checksum(&mut bytes[..512], xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET);
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let run = |threads| {
        let options = CheckOptions { threads, ..CheckOptions::default() };
        check(Arc::clone(&device) as _, None, &options, &Quiet).unwrap()
    };
    let (one, four) = (run(1), run(4));
    assert_eq!(one.fault_count, 1, "{}", findings(&one));
    assert_eq!((one.faults, one.summary), (four.faults, four.summary));
}

/// However small the image is, and however few processors there are.
#[test]
fn a_device_whose_requests_take_long_has_as_many_as_it_wants() {
    let far = Arc::new(FarDevice::new(MemoryDevice::from_bytes(image(Recipe::Defaults))));
    let options = CheckOptions { threads: 1, ..CheckOptions::default() };
    let report = check(Arc::clone(&far) as _, None, &options, &Quiet).unwrap();
    assert!(report.is_clean(), "{}", findings(&report));
    let most = far.take_most_in_flight();
    assert!((3..=8).contains(&most), "{most} requests at once");
}

#[test]
fn attributes_that_the_superblock_does_not_announce_are_reported() {
    let notes = |bytes: &[u8]| {
        let report = check_device(Arc::new(MemoryDevice::from_bytes(bytes.to_vec())));
        assert!(report.is_clean(), "{}", findings(&report));
        report.notes.iter().filter(|note| note.contains("attributes")).count()
    };
    let mut bytes = image(Recipe::Old);
    assert_eq!(notes(&bytes), 0, "the engine announces what it makes");
    // `sb_versionnum`, as it was before the first attribute.
    bytes[101] &= !0x10;
    xfskit_ondisk::set_checksum(&mut bytes[..512], xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET);
    assert_eq!(notes(&bytes), 1);
}

#[test]
fn nothing_is_found_where_the_engine_wrote() {
    let scratch = scratch();
    for recipe in [Recipe::Defaults, Recipe::SmallBlocks, Recipe::Old, Recipe::Quick] {
        let bytes = image(recipe);
        if let Some(reference) = reference() {
            let path = scratch.file("engine.img");
            std::fs::write(&path, &bytes).unwrap();
            // Only this recipe has no inodes on unlinked lists, which xfs_repair would report.
            if recipe == Recipe::Quick {
                reference.repair_finds_nothing(&path);
            }
        }
        let report = check_device(Arc::new(MemoryDevice::from_bytes(bytes)));
        assert!(report.is_clean(), "{recipe:?}: {}", findings(&report));
        assert_eq!(report.summary.unlinked, if recipe == Recipe::Quick { 0 } else { 140 }, "{recipe:?}");
    }
}

/// The kernel's scrub is stricter than xfs_repair and finds mistakes that that one misses. `make scrub` runs it on all
/// recipes.
#[test]
fn the_kernels_scrub_finds_nothing_where_the_engine_wrote() {
    if reference().is_none() {
        return;
    }
    let scratch = scratch();
    let all = [Recipe::Defaults, Recipe::Old, Recipe::SmallBlocks, Recipe::Quick];
    let recipes = if std::env::var_os("XFSKIT_SCRUB_ALL").is_some() { &all[..] } else { &all[..2] };
    let images: Vec<_> = recipes
        .iter()
        .map(|recipe| {
            let path = scratch.file(&format!("{recipe:?}.img"));
            std::fs::write(&path, image(*recipe)).unwrap();
            // Our mount frees the inodes without a name. The kernel would free none of them while the journal is clean.
            let device = FileDevice::open(&path, Access::Write).unwrap();
            Volume::open(Arc::new(device), MountOptions::default()).unwrap().unmount().unwrap();
            path
        })
        .collect();
    let Some(verdicts) = xfskit_testkit::scrub(&images) else { return };
    assert!(verdicts.iter().all(|verdict| verdict.ends_with(": clean")), "{}", verdicts.join("\n"));
    assert_eq!(verdicts.len(), recipes.len());
}
