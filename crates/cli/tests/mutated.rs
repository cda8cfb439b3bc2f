//! Every command on images whose metadata was damaged at random, with right checksums. Each ends within limits of time
//! and memory, without a panic, and with an exit code that the help lists.
//!
//! `XFSKIT_MUTATIONS=500` for a long run, `XFSKIT_SEED` for other mutations. The last line counts the commands; the
//! report of the fuzz targets has the same counts.

mod common;

use common::trees::{is_root, make_tree};
use common::{ok, words};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use xfskit_engine::{Environment, SeededEnvironment};
use xfskit_fuzz_harness::report::{self, Count};
use xfskit_ondisk::set_checksum;
use xfskit_testkit::{copy_image, scratch};

const IMAGES: u64 = 16;
const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;

/// Kinds of metadata: offset of the magic number, the number, size of the block, offset of its checksum.
const KINDS: [(usize, &[u8], usize, usize); 19] = [
    (0, b"XFSB", SECTOR_BYTES, 224),
    (0, b"XAGF", SECTOR_BYTES, 216),
    (0, b"XAGI", SECTOR_BYTES, 312),
    (0, b"XAFL", SECTOR_BYTES, 32),
    (0, b"AB3B", BLOCK_BYTES, 52),
    (0, b"AB3C", BLOCK_BYTES, 52),
    (0, b"IAB3", BLOCK_BYTES, 52),
    (0, b"FIB3", BLOCK_BYTES, 52),
    (0, b"RMB3", BLOCK_BYTES, 52),
    (0, b"R3FC", BLOCK_BYTES, 52),
    (0, b"BMA3", BLOCK_BYTES, 64),
    (0, b"XDB3", BLOCK_BYTES, 4),
    (0, b"XDD3", BLOCK_BYTES, 4),
    (0, b"XDF3", BLOCK_BYTES, 4),
    (0, b"XSLM", BLOCK_BYTES, 12),
    (8, &[0x3d, 0xf1], BLOCK_BYTES, 12),
    (8, &[0x3d, 0xff], BLOCK_BYTES, 12),
    (8, &[0x3b, 0xee], BLOCK_BYTES, 12),
    (0, b"IN", SECTOR_BYTES, 100),
];

const MAX_SECONDS: &str = "30";
/// Limit of the address space: enough for the caches, and for a journal that is replayed in memory.
const MAX_BYTES: u64 = 4 << 30;
/// The exit codes in `xfskit --help`, and those of fsck(8).
const EXIT_CODES: std::ops::RangeInclusive<i32> = 0..=9;

const READERS: [&str; 14] = [
    "info IMAGE",
    "info IMAGE --json",
    "df IMAGE",
    "du -s IMAGE /",
    "ls -l IMAGE /",
    "tree IMAGE /",
    "tree IMAGE / --json",
    "stat IMAGE /big",
    "xattr dump -R IMAGE / -m -",
    "parents IMAGE /dir/again",
    "check IMAGE",
    "check IMAGE --norecovery",
    "log print IMAGE",
    "export IMAGE /",
];

/// These lines change the image, so they are run last.
const WRITERS: [&str; 6] = [
    "xattr set IMAGE / user.new value",
    "mkdir IMAGE /made",
    "mv IMAGE /empty /moved",
    "chmod -R IMAGE go-w /",
    "rm -r IMAGE /dir",
    "check IMAGE",
];

/// Runs the command under limits.
fn limited(line: &str, image: &Path) -> Output {
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={MAX_BYTES}")).args(["--", "timeout", MAX_SECONDS, env!("CARGO_BIN_EXE_xfskit")]);
    command.args(words(line, image)).stdin(Stdio::null()).output().unwrap()
}

fn assert_orderly(line: &str, image: &Path, what: &str) {
    let output = limited(line, image);
    let error = String::from_utf8_lossy(&output.stderr);
    let is_orderly = output.status.code().is_some_and(|code| EXIT_CODES.contains(&code));
    assert!(is_orderly && !error.contains("panicked"), "{what}: xfskit {line}: {}\n{error}", output.status);
}

/// The metadata of an image: offset, size, offset of the checksum.
fn targets(bytes: &[u8]) -> Vec<(usize, usize, usize)> {
    let kind = |at: usize| KINDS.iter().find(|(offset, magic, ..)| bytes[at + offset..].starts_with(magic));
    let sectors = (0..bytes.len()).step_by(SECTOR_BYTES);
    let found = sectors.filter_map(|at| kind(at).map(|(_, _, size, crc)| (at, *size, *crc)));
    // Most inodes are free, and few commands look at those.
    found.filter(|&(at, ..)| !bytes[at..].starts_with(b"IN\0\0") && at + BLOCK_BYTES <= bytes.len()).collect()
}

/// Damages a copy of the image, and returns a description of the damage.
fn damage(bytes: &[u8], targets: &[(usize, usize, usize)], copy: &Path, seed: u64) -> String {
    let random = SeededEnvironment::new(seed);
    let below = |limit: usize| random.random() as usize % limit;
    let file = OpenOptions::new().write(true).open(copy).unwrap();
    let mut places = Vec::new();
    for _ in 0..1 + seed % 3 {
        let (at, size, crc) = targets[below(targets.len())];
        let mut block = bytes[at..at + size].to_vec();
        // Most important fields are at the front of a block.
        let end = [64, 256, size][below(3)].min(size);
        for _ in 0..1 + below(3) {
            let byte = 4 + below(end - 4);
            block[byte] = [0, 0xff, 1, block[byte] ^ 1 << below(8)][below(4)];
            places.push(format!("{at}+{byte}"));
        }
        set_checksum(&mut block, crc);
        file.write_all_at(&block, at as u64).unwrap();
    }
    places.join(", ")
}

#[test]
fn every_command_ends_in_order_on_damaged_images() {
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (images, first) = (number("XFSKIT_MUTATIONS").unwrap_or(IMAGES), number("XFSKIT_SEED").unwrap_or(1));
    let (source, base, image) = (scratch.file("source"), scratch.file("base.img"), scratch.file("a.img"));
    make_tree(&source);
    ok(&format!("mkfs IMAGE -q --small --from {}", source.display()), &base);
    let bytes = std::fs::read(&base).unwrap();
    let targets = targets(&bytes);
    assert!(targets.len() > 100, "{} blocks of metadata", targets.len());
    let (start, mut commands) = (Instant::now(), 0);
    for seed in first..first + images {
        copy_image(&base, &image);
        let what = format!("seed {seed}, bytes {}", damage(&bytes, &targets, &image, seed));
        for line in READERS.iter().chain(&WRITERS) {
            assert_orderly(line, &image, &what);
            commands += 1;
        }
    }
    println!("{commands} commands on {images} damaged images");
    report::add(&Count { name: "commands", runs: commands, time: start.elapsed(), corpus: 0, found: 0 });
}
