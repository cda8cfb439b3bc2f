//! The images of xfskit against those of mkfs.xfs: the same options, sizes and UUID must result in the same superblock,
//! AG headers and btree roots, byte for byte, and xfs_repair must find nothing wrong with the images of xfskit.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use xfskit_device::probe::{Kind, existing_format};
use xfskit_device::{BlockDevice, FileDevice};
use xfskit_mkfs::{MakeError, Options, make};
use xfskit_ondisk::superblock::RawSuperblock;
use xfskit_ondisk::{Geometry, Superblock, Timestamp};
use xfskit_testkit::{Reference, kernel_mount, reference, scratch};
use zerocopy::FromBytes;

const UUID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 };
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// Number of AGs at each end of the device whose headers are compared.
const COMPARED_AGS: u32 = 3;

/// Options as a person writes them: pairs of a section and its list, separated by spaces.
fn parse(text: &str) -> Result<Options, MakeError> {
    let mut options = Options::default();
    let words: Vec<&str> = text.split_whitespace().collect();
    for word in words.split(|word| *word == "--unsupported").flat_map(|words| words.chunks(2)) {
        match word {
            ["-L", label] => options.set_label(label)?,
            [section, list] => options.apply(section.chars().nth(1).unwrap(), list)?,
            _ => panic!("odd number of words in {text:?}"),
        }
    }
    options.allow_small = words.contains(&"--unsupported");
    options.uuid.get_or_insert(*uuid::Uuid::parse_str(UUID).unwrap().as_bytes());
    Ok(options)
}

fn theirs(reference: &Reference, path: &Path, text: &str) -> Result<(), String> {
    let uuid = format!("uuid={UUID}");
    let mut arguments = vec!["-f", "-q", "-K", "-m", &uuid];
    arguments.extend(text.split_whitespace());
    arguments.push(path.to_str().unwrap());
    let output = reference.tool("mkfs.xfs", arguments);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn ours(path: &Path, text: &str) -> Result<Superblock, MakeError> {
    let device = FileDevice::open(path, xfskit_device::Access::Write).unwrap();
    make(&device, None, &parse(text)?, TIME)
}

fn read(path: &Path, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// The lines that differ between two printed structures.
fn differences(ours: &str, theirs: &str) -> String {
    ours.lines()
        .zip(theirs.lines())
        .filter(|(a, b)| a != b)
        .map(|(a, b)| format!("\n  ours {a}\n  theirs {b}"))
        .collect()
}

/// The header of a btree root without its checksum, and its records. mkfs.xfs leaves the bytes of removed records
/// behind them.
fn live_bytes(root: &[u8]) -> Vec<u8> {
    let records = usize::from(u16::from_be_bytes([root[6], root[7]]));
    let bytes = match &root[..4] {
        b"AB3B" | b"AB3C" => 8,
        b"IAB3" | b"FIB3" => 16,
        b"RMB3" => 24,
        _ => 12,
    };
    [&root[..52], &root[56..56 + records * bytes]].concat()
}

fn compare(our: &Path, their: &Path) -> Result<(), String> {
    let (a, b) = (read(our, 0, 65536), read(their, 0, 65536));
    let print = |bytes: &[u8]| format!("{:x?}", RawSuperblock::read_from_prefix(bytes).unwrap().0).replace(", ", "\n");
    if a[..512] != b[..512] {
        return Err(format!("the superblocks differ:{}", differences(&print(&a), &print(&b))));
    }
    let geometry = Geometry::new(&Superblock::decode(&a).map_err(|e| e.to_string())?);
    let (sector, block) = (geometry.sector_bytes(), geometry.block_bytes());
    let roots = geometry.ag_header_blocks() as usize;
    for ag in (0..geometry.ag_count).filter(|ag| *ag < COMPARED_AGS || *ag + COMPARED_AGS >= geometry.ag_count) {
        let start = (u64::from(ag) * u64::from(geometry.ag_blocks)) << geometry.block_log;
        let length = (roots + 6) * block;
        let (a, b) = (read(our, start, length), read(their, start, length));
        for (name, from) in [("AGF", sector), ("AGI", 2 * sector), ("AGFL", 3 * sector)] {
            if a[from..from + sector] != b[from..from + sector] {
                return Err(format!("{name} of AG {ag} differs"));
            }
        }
        let count = 3 + [geometry.has_finobt(), geometry.has_rmap(), geometry.has_reflink()]
            .map(usize::from)
            .iter()
            .sum::<usize>();
        for root in 0..count {
            let (a, b) = (&a[(roots + root) * block..][..block], &b[(roots + root) * block..][..block]);
            if live_bytes(a) != live_bytes(b) {
                return Err(format!("root {root} of AG {ag} differs"));
            }
        }
    }
    if let Some(log) = geometry.log_start {
        let start = geometry.fs_block_address(log).unwrap().bytes();
        let length = (256 * 1024).min((geometry.log_blocks as usize) << geometry.block_log);
        if read(our, start, length) != read(their, start, length) {
            return Err("the logs differ".into());
        }
    }
    Ok(())
}

/// Runs all cases and reports every one that fails.
fn check(cases: &[(u64, &str)]) {
    let Some(reference) = reference() else { return };
    let mut failures = Vec::new();
    for (size, text) in cases {
        let dir = scratch();
        let (our, their) = (dir.image("ours", *size), dir.image("theirs", *size));
        let result = match (ours(&our, text), theirs(&reference, &their, text)) {
            (Ok(_), Ok(())) => {
                compare(&our, &their).and_then(|()| reference.repair_findings(&our, None).map_or(Ok(()), Err))
            }
            (Err(ours), Err(theirs)) => {
                println!("both refuse {text:?}: {ours}; {}", theirs.lines().next().unwrap_or_default());
                Ok(())
            }
            (Err(ours), Ok(())) => Err(format!("we refuse: {ours}")),
            (Ok(_), Err(theirs)) => Err(format!("mkfs.xfs refuses: {theirs}")),
        };
        if let Err(why) = result {
            failures.push(format!("{} MiB, {text:?}: {why}", size / MIB));
        }
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn default_images_of_all_sizes_are_equal() {
    check(&[
        (299 * MIB, ""),
        (300 * MIB, ""),
        (301 * MIB + 12345 * 512, ""),
        (GIB, ""),
        (GIB, "-L twelve-bytes"),
        (10 * GIB, ""),
        (100 * GIB, ""),
        (TIB - 4096, ""),
        (TIB, ""),
        (5 * TIB, ""),
    ]);
}

#[test]
fn small_images_are_equal() {
    check(&[
        (16 * MIB, "--unsupported"),
        (20 * MIB, "--unsupported"),
        (31 * MIB, "--unsupported"),
        (32 * MIB, "--unsupported"),
        (64 * MIB, "--unsupported"),
        (127 * MIB, "--unsupported"),
        (128 * MIB, "--unsupported"),
        (200 * MIB, "-m rmapbt=0 --unsupported"),
        (200 * MIB, "-m reflink=0 --unsupported"),
        (200 * MIB, "-m rmapbt=0,reflink=0 -n parent=0 --unsupported"),
        (200 * MIB, "-n parent=0 --unsupported"),
        (200 * MIB, "-n parent=0 -m rmapbt=0 --unsupported"),
        (200 * MIB, "-n parent=0 -m reflink=0 --unsupported"),
        (200 * MIB, "-n parent=0 -i nrext64=0 --unsupported"),
        (200 * MIB, "-n parent=0 -m finobt=0 -i sparse=0 --unsupported"),
        (200 * MIB, "-i nrext64=0 --unsupported"),
        (200 * MIB, "-b size=1024 --unsupported"),
        (200 * MIB, "-b size=1024 -n parent=0 --unsupported"),
        (200 * MIB, "-b size=2048 -n size=8192 --unsupported"),
        (200 * MIB, "-i size=2048 -n size=65536 --unsupported"),
        (250 * MIB, "-b size=16384 --unsupported"),
        (290 * MIB, "-b size=65536 --unsupported"),
        (290 * MIB, "-b size=65536 -n parent=0 --unsupported"),
        (200 * MIB, "-s size=4096 --unsupported"),
        (200 * MIB, "-l su=32k --unsupported"),
        (200 * MIB, "-d su=64k,sw=2 --unsupported"),
        (200 * MIB, "-d agcount=1 --unsupported"),
        (300 * MIB, "-d agcount=1 --unsupported"),
        (400 * MIB, "-d agcount=1,su=64k,sw=2 --unsupported"),
        (400 * MIB, "-l size=20m --unsupported"),
        (400 * MIB, "-l size=4m --unsupported"),
    ]);
}

#[test]
fn block_sector_inode_and_directory_sizes_are_equal() {
    check(&[
        (GIB, "-b size=1024"),
        (GIB, "-b size=2048"),
        (GIB, "-b size=8192"),
        (GIB, "-b size=16384"),
        (GIB, "-b size=32768"),
        (2 * GIB, "-b size=65536"),
        (GIB, "-b size=65536 -i size=2048 -n size=65536"),
        (GIB, "-b size=1024 -s size=1024"),
        (GIB, "-s size=2048"),
        (GIB, "-s size=4096"),
        (2 * GIB, "-b size=65536 -s size=32768"),
        (GIB, "-i size=1024"),
        (GIB, "-i size=2048"),
        (GIB, "-b size=1024 -i size=1024"),
        (GIB, "-b size=1024 -i size=512"),
        (GIB, "-i perblock=4"),
        (GIB, "-i size=256"),
        (GIB, "-b size=2048 -i size=1024,sparse=0"),
        (GIB, "-n size=8192"),
        (GIB, "-n size=65536"),
        (GIB, "-b size=1024 -n size=4096"),
        (GIB, "-b size=8192 -n size=4096"),
        (GIB, "-i maxpct=0"),
        (GIB, "-i maxpct=77"),
    ]);
}

#[test]
fn features_are_equal() {
    check(&[
        (GIB, "-m finobt=0"),
        (GIB, "-m finobt=0,inobtcount=1"),
        (GIB, "-m inobtcount=0"),
        (GIB, "-m rmapbt=0"),
        (GIB, "-m reflink=0"),
        (GIB, "-m rmapbt=0,reflink=0"),
        (GIB, "-m rmapbt=0,reflink=0,finobt=0,bigtime=0,inobtcount=0 -i sparse=0,nrext64=0,exchange=0 -n parent=0"),
        (GIB, "-m bigtime=0"),
        (GIB, "-i sparse=0"),
        (GIB, "-i nrext64=0"),
        (GIB, "-i exchange=0"),
        (GIB, "-n parent=0"),
        (GIB, "-m rmapbt=0,autofsck=check"),
        (GIB, "-m autofsck=none"),
        (GIB, "-n parent=0 -m autofsck=optimize"),
        (GIB, "-b size=65536 -i sparse=0"),
    ]);
}

#[test]
fn stripes_ags_and_logs_are_equal() {
    check(&[
        (GIB, "-d su=64k,sw=4"),
        (GIB, "-d su=32k,sw=1"),
        (GIB, "-d sunit=128,swidth=512"),
        (GIB, "-d sunit=128,swidth=500"),
        (GIB, "-d noalign"),
        (10 * GIB, "-d su=512k,sw=8"),
        (100 * GIB, "-d su=64k,sw=3"),
        (TIB, "-d su=256k,sw=10"),
        (GIB, "-d su=64k,sw=4,agcount=7"),
        (GIB, "-d su=1m,sw=2"),
        (GIB, "-d agcount=2"),
        (GIB, "-d agcount=3"),
        (GIB, "-d agcount=64"),
        (GIB, "-d agcount=65"),
        (GIB, "-d agcount=1"),
        (10 * GIB, "-d agcount=300"),
        (100 * GIB, "-d agcount=300"),
        (GIB, "-d agsize=100m"),
        (GIB, "-d agsize=300m"),
        (GIB, "-d agsize=1020m"),
        (GIB, "-d agsize=100m,su=64k,sw=2"),
        (GIB, "-d size=700m"),
        (GIB, "-d size=2g"),
        (GIB, "-l su=4096"),
        (GIB, "-l su=32k"),
        (GIB, "-l su=256k"),
        (GIB, "-l sunit=64"),
        (GIB, "-l su=6000"),
        (GIB, "-l size=64m"),
        (GIB, "-l size=100m,su=64k"),
        (GIB, "-l size=20000b"),
        (GIB, "-l size=63m"),
        (GIB, "-l size=300m"),
        (GIB, "-l size=250m"),
        (GIB, "-l agnum=0"),
        (GIB, "-l agnum=3"),
        (GIB, "-l agnum=4"),
        (GIB, "-l agnum=0,su=64k"),
        (GIB, "-s size=4096 -l su=32k"),
        (100 * GIB, "-l size=2038m"),
        (100 * GIB, "-l size=2039m"),
    ]);
}

/// One of `choices`, by a generator whose state is `seed`.
fn pick<T: Copy>(seed: &mut u64, choices: &[T]) -> T {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    choices[(*seed >> 33) as usize % choices.len()]
}

#[test]
fn random_combinations_are_equal() {
    const CASES: usize = 60;
    let cases: usize = std::env::var("XFSKIT_MKFS_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let mut seed = 7;
    let texts: Vec<(u64, String)> = (0..cases)
        .map(|_| {
            let mut text = vec![pick(&mut seed, &["", "", "--unsupported"])];
            let size =
                pick(&mut seed, if text[0].is_empty() { &[900, 1000, 3001, 20_000] } else { &[24, 70, 133, 290, 511] });
            let sections: [&[&str]; 9] = [
                &["", "", "-b size=1024", "-b size=2048", "-b size=8192", "-b size=16384", "-b size=65536"],
                &["", "", "-s size=1024", "-s size=4096"],
                &[
                    "",
                    "",
                    "-i size=1024",
                    "-i size=2048,sparse=0",
                    "-i perblock=8",
                    "-i sparse=0",
                    "-i nrext64=0,exchange=0",
                ],
                &["", "", "", "-n size=8192", "-n size=65536,parent=0", "-n parent=0", "-n parent=0"],
                &["", "", "", "-m rmapbt=0", "-m reflink=0", "-m rmapbt=0,reflink=0", "-m finobt=0", "-m bigtime=0"],
                &["", "", "", "", "-d agcount=1", "-d agcount=2", "-d agcount=5", "-d agcount=13", "-d agsize=17m"],
                &["", "", "", "", "-d su=32k,sw=3", "-d su=64k,sw=1", "-d su=128k,sw=8", "-d su=1m,sw=2"],
                &["", "", "", "-l su=64k", "-l su=256k", "-l sunit=256"],
                &["", "", "", "-l agnum=0", "-l agnum=1", "-l size=9m", "-l size=70m"],
            ];
            text.extend(sections.map(|choices| pick(&mut seed, choices)));
            (size * MIB + pick(&mut seed, &[0, 512, 65536 * 3 + 1024]), text.join(" "))
        })
        .collect();
    let cases: Vec<(u64, &str)> = texts.iter().map(|(size, text)| (*size, text.as_str())).collect();
    check(&cases);
}

#[test]
fn an_external_log_is_found_clean() {
    let Some(reference) = reference() else { return };
    let dir = scratch();
    let (image, log) = (dir.image("image", GIB), dir.image("log", 100 * MIB));
    let open = |path: &Path| FileDevice::open(path, xfskit_device::Access::Write).unwrap();
    let options = parse(&format!("-l logdev={}", log.display())).unwrap();
    assert_eq!(options.log_device.as_deref(), Some(log.as_path()));
    let superblock = make(&open(&image), Some(&open(&log)), &options, TIME).unwrap();
    assert!(superblock.has_external_log());
    assert_eq!(superblock.raw().log_blocks.get(), 25600);
    assert_eq!(reference.repair_findings(&image, Some(&log)), None);
    // xfskit's log device against that of mkfs.xfs.
    let (their, their_log) = (dir.image("theirs", GIB), dir.image("their-log", 100 * MIB));
    theirs(&reference, &their, &format!("-l logdev={}", their_log.display())).unwrap();
    compare(&image, &their).unwrap();
    assert_eq!(read(&log, 0, 65536), read(&their_log, 0, 65536));
}

#[test]
fn the_kernel_mounts_our_images_and_repair_agrees_afterwards() {
    let Some(reference) = reference() else { return };
    for (size, text) in [
        (GIB, ""),
        (20 * MIB, "--unsupported"),
        (GIB, "-b size=1024 -n size=8192"),
        (GIB, "-i size=2048,sparse=0 -m rmapbt=0,reflink=0"),
        (GIB, "-d su=64k,sw=4 -s size=4096"),
        (GIB, "-m finobt=0 -n parent=0 -i nrext64=0 -m bigtime=0"),
        (400 * MIB, "-d agcount=1 --unsupported"),
    ] {
        let dir = scratch();
        let image = dir.image("image", size);
        ours(&image, text).unwrap();
        assert!(reference.log_is_clean(&image), "{text}");
        let Some(mount) = kernel_mount(&image) else { return };
        let script = "mkdir d; for i in $(seq 300); do echo $i >d/$i; ln d/$i d/link$i; done; rm d/1??; \
                      dd if=/dev/zero of=big bs=64k count=40 status=none; mv d e; sync -f .";
        let status = Command::new("bash").args(["-ec", script]).current_dir(mount.path()).status().unwrap();
        assert!(status.success(), "{text}");
        let big = mount.path().join("big");
        rustix::fs::setxattr(big, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
        mount.unmount();
        reference.repair_finds_nothing(&image);
    }
}

#[test]
fn an_older_image_leaves_no_superblock_behind() {
    let Some(reference) = reference() else { return };
    let dir = scratch();
    let image = dir.image("image", GIB);
    ours(&image, "-d agcount=8").unwrap();
    ours(&image, "-d agcount=3").unwrap();
    reference.repair_finds_nothing(&image);
    let old_ag = GIB / 8;
    assert_eq!(read(&image, old_ag, 4), [0; 4]);
    let device = FileDevice::open(&image, xfskit_device::Access::Write).unwrap();
    assert_eq!(existing_format(&device).unwrap(), Some(Kind::Xfs));
    assert_eq!(device.size_bytes(), GIB);
}
