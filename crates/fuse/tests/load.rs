//! Eight processes that write, rename, remove, resize, clone and sync at the same time on an image that is too small
//! for them: no call waits forever, freed space can be used, and the image is consistent.

mod common;

use common::{Random, mounted_with, seeds};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PROCESSES: u64 = 8;
const IMAGE_BYTES: u64 = 96 << 20;
const OPERATIONS: usize = 1500;
const MAX_SECONDS: u64 = 200;
const NAMES: usize = 80;

/// Errors that are possible because other processes work in the same directories and space is short.
fn expected(error: &std::io::Error) -> bool {
    const ERRORS: [Errno; 6] = [Errno::NOSPC, Errno::NOENT, Errno::EXIST, Errno::NOTEMPTY, Errno::ISDIR, Errno::NOTDIR];
    error.raw_os_error().is_some_and(|code| ERRORS.iter().any(|errno| errno.raw_os_error() == code))
}

fn name(random: &mut Random, mount: &Path) -> PathBuf {
    mount.join(format!("d{}/f{}", random.below(3), random.below(NAMES)))
}

fn open(random: &mut Random, mount: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(name(random, mount))
}

fn copy(random: &mut Random, mount: &Path) -> std::io::Result<()> {
    let (from, to) = (open(random, mount)?, open(random, mount)?);
    let (mut in_at, mut out_at) = (4096 * random.below(64) as u64, 4096 * random.below(256) as u64);
    match rustix::fs::copy_file_range(&from, Some(&mut in_at), &to, Some(&mut out_at), 1 + random.below(2 << 20)) {
        // Both names may be the same file.
        Err(Errno::INVAL) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn operate(random: &mut Random, mount: &Path) -> std::io::Result<()> {
    let most = [100, 5000, 500_000, 3 << 20][random.below(4)];
    let (offset, length) = (random.below(6 << 20) as u64, 1 + random.below(most));
    match random.below(16) {
        0..=3 => open(random, mount)?.write_all_at(&vec![random.next() as u8; length], offset),
        4 => fs::remove_file(name(random, mount)),
        5 => fs::rename(name(random, mount), name(random, mount)),
        6 => open(random, mount)?.set_len(offset),
        7 | 8 => copy(random, mount),
        9 | 10 => {
            let keep = FallocateFlags::KEEP_SIZE;
            let flags = [FallocateFlags::empty(), keep, FallocateFlags::PUNCH_HOLE | keep, FallocateFlags::ZERO_RANGE];
            let flags = flags[random.below(4)];
            Ok(rustix::fs::fallocate(open(random, mount)?, flags, offset, length as u64)?)
        }
        11 => open(random, mount)?.sync_all(),
        12 => fs::hard_link(name(random, mount), name(random, mount)),
        13 => fs::read(name(random, mount)).map(drop),
        14 => {
            // Another process may have an unlinked file open.
            let file = open(random, mount)?;
            fs::remove_file(name(random, mount))?;
            file.write_all_at(&vec![1; length], offset)?;
            file.sync_data()
        }
        _ => fs::read_dir(mount.join("d1"))?.try_for_each(|entry| entry?.metadata().map(drop)),
    }
}

/// One of the processes: this same test program, with its task in environment variables.
#[test]
fn a_process_of_the_load() {
    let Some(mount) = std::env::var_os("XFSKIT_LOAD_MOUNT") else { return };
    let seed: u64 = std::env::var("XFSKIT_LOAD_SEED").unwrap().parse().unwrap();
    let mut random = Random(seed);
    let mut full = 0;
    for _ in 0..OPERATIONS {
        match operate(&mut random, Path::new(&mount)) {
            Err(error) if expected(&error) => full += usize::from(error.kind() == std::io::ErrorKind::StorageFull),
            other => other.unwrap(),
        }
    }
    assert!(full > 0, "the image was never full");
}

fn start(mount: &Path, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_process_of_the_load", "--nocapture"]);
    command.env("XFSKIT_LOAD_MOUNT", mount).env("XFSKIT_LOAD_SEED", seed.to_string()).spawn().unwrap()
}

fn wait(mut processes: Vec<Child>) {
    let end = Instant::now() + Duration::from_secs(MAX_SECONDS);
    while let Some(process) = processes.first_mut() {
        match process.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "{status}");
                processes.remove(0).wait().unwrap();
            }
            None if Instant::now() > end => {
                // The server that does not answer runs in this process: its exit ends the mount.
                eprintln!("process {} of the load hangs", process.id());
                std::process::abort();
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn eight_processes_on_a_full_image_leave_it_whole() {
    for seed in seeds(2) {
        let Some(fixture) = mounted_with(IMAGE_BYTES) else { return };
        for n in 0..3 {
            fs::create_dir(fixture.path(&format!("d{n}"))).unwrap();
        }
        let mount = fixture.path("");
        let free = || rustix::fs::statvfs(&mount).unwrap().f_bavail * 4096;
        let before = free();
        wait((0..PROCESSES).map(|n| start(&mount, seed * 1000 + n)).collect());
        for n in 0..3 {
            fs::remove_dir_all(mount.join(format!("d{n}"))).unwrap();
        }
        // The kernel forgets unlinked files a moment later.
        let end = Instant::now() + Duration::from_secs(20);
        while free() + (1 << 20) < before {
            assert!(Instant::now() < end, "{} of {before} bytes are free", free());
            std::thread::sleep(Duration::from_millis(20));
        }
        let most = before as usize / 10 * 9;
        fs::write(mount.join("again"), vec![5u8; most]).unwrap();
        File::open(mount.join("again")).unwrap().sync_all().unwrap();
        fixture.judge(|dir| {
            let found = fs::read(dir.join("again")).unwrap();
            assert!(found.len() == most && found.iter().all(|byte| *byte == 5));
        });
    }
}
