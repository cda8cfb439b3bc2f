//! Which requests the kernel sends for what programs do, and those that few libraries know.

mod common;

use common::{Fixture, NOBODY, mounted, serve_device};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, linkat, open, statat, statx};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use xfskit_device::{Access, BlockDevice, FileDevice, WrapsDevice};
use xfskit_fuse::{Unmounted, WriteCache};
use xfskit_testkit::skip;

const FILES: usize = 100;
const WRITERS: usize = 16;
/// Direct writes of a program.
const WRITES: u64 = 50;

fn figures(fixture: &Fixture) -> serde_json::Value {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(fixture.path(""), xfskit_fuse::STATS_XATTR, &mut value).unwrap();
    serde_json::from_slice(&value[..length]).unwrap()
}

fn requests(fixture: &Fixture, name: &str) -> u64 {
    figures(fixture)["requests"][name].as_u64().unwrap_or(0)
}

#[test]
fn a_file_is_made_opened_and_closed_by_one_request() {
    let Some(fixture) = mounted() else { return };
    for number in 0..FILES {
        let mut file = File::create_new(fixture.path(&format!("{number}"))).unwrap();
        file.write_all(b"contents").unwrap();
        drop(file);
        assert_eq!(fs::read(fixture.path(&format!("{number}"))).unwrap(), b"contents");
    }
    fs::read_dir(fixture.path("")).unwrap().for_each(drop);
    let count = |name: &str| requests(&fixture, name);
    assert_eq!(count("mknod"), FILES as u64);
    // The kernel asks once whether these are needed.
    for name in ["create", "open", "opendir", "flush"] {
        assert!(count(name) <= 1, "{name}: {}", count(name));
    }
    assert_eq!((count("release"), count("releasedir"), count("access")), (0, 0, 0));
    // Contents that were written stay in the kernel's cache.
    assert_eq!(count("read"), 0);
}

/// Lists a tree and looks at everything in it, as `find` and `du` do; the number of entries. The standard library would
/// ask for the time of birth too, which no reply but STATX's carries.
fn walk(dir: &Path) -> usize {
    let entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_dir = |path: &Path| {
        let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        FileType::from_raw_mode(found.st_mode) == FileType::Directory
    };
    entries.len() + entries.iter().map(|path| if is_dir(path) { walk(path) } else { 0 }).sum::<usize>()
}

/// The requests of some work, without those for these figures; `forget` has nobody who waits for it.
fn requests_of(fixture: &Fixture, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let counts = || -> BTreeMap<String, u64> {
        let figures = figures(fixture);
        let counts = figures["requests"].as_object().unwrap().iter();
        counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
    };
    let before = counts();
    work();
    let mut after = counts();
    *after.get_mut("getxattr").unwrap() -= 1;
    after.iter_mut().for_each(|(name, count)| *count -= before.get(name).copied().unwrap_or(0));
    after.retain(|name, count| *count > 0 && !name.ends_with("forget"));
    after
}

/// The first listing comes from the server and makes the kernel doubt the time of access of the directory; from the
/// third on the kernel answers alone, until something changes, and then for all that did not.
#[test]
fn a_tree_that_the_kernel_knows_takes_no_request() {
    const DIRS: u64 = 20;
    let Some(fixture) = mounted() else { return };
    let root = fixture.path("tree");
    for number in 0..DIRS * 10 {
        let dir = root.join(format!("{}", number % DIRS));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("{number}")), vec![1; number as usize]).unwrap();
    }
    let walk = || assert_eq!(walk(&root) as u64, DIRS * 11);
    // The kernel asks once whether directories are opened by requests.
    fs::read_dir(fixture.path("")).unwrap().for_each(drop);
    let counted = |counts: &[(&str, u64)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let all: BTreeMap<_, _> = requests_of(&fixture, walk);
    assert_eq!(all, counted(&[("readdir", DIRS + 1), ("readdirplus", DIRS + 1)]));
    assert_eq!(requests_of(&fixture, walk), counted(&[("getattr", DIRS + 1)]));
    assert_eq!(requests_of(&fixture, walk), BTreeMap::new());
    fs::rename(root.join("3/3"), root.join("3/new")).unwrap();
    assert_eq!(requests_of(&fixture, walk), counted(&[("getattr", 1), ("readdir", 1), ("readdirplus", 1)]));
}

/// Root may let the kernel read ahead as far as several large requests; others read by its default, 128 KiB.
#[test]
fn a_long_read_takes_few_requests() {
    const MIB: usize = 16;
    let Some(fixture) = mounted() else { return };
    if !rustix::process::geteuid().is_root() {
        return skip("only root may change how far the kernel reads ahead");
    }
    let path = fixture.path("long");
    fs::write(&path, vec![7; MIB << 20]).unwrap();
    let mut file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while file.read(&mut buffer).unwrap() > 0 {
        assert!(buffer.iter().all(|byte| *byte == 7));
    }
    let reads = requests(&fixture, "read");
    assert!((MIB as u64..=2 * MIB as u64).contains(&reads), "{reads} requests for {MIB} MiB");
}

#[test]
fn a_file_without_a_name_gets_one_or_is_gone() {
    let Some(fixture) = mounted() else { return };
    let dir = fixture.path("dir");
    fs::create_dir(&dir).unwrap();
    let free_before = rustix::fs::statvfs(&dir).unwrap().f_ffree;
    let make = || File::from(open(&dir, OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o640)).unwrap());
    let (kept, lost) = (make(), make());
    kept.write_all_at(b"kept", 0).unwrap();
    lost.write_all_at(&[1; 100_000], 0).unwrap();
    assert_eq!((kept.metadata().unwrap().nlink(), fs::read_dir(&dir).unwrap().count()), (0, 0));
    let itself = format!("/proc/self/fd/{}", kept.as_raw_fd());
    linkat(CWD, &itself, CWD, dir.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop((kept, lost));
    assert_eq!(requests(&fixture, "tmpfile"), 2);
    // The kernel forgets the other one by a request that it does not wait for.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while rustix::fs::statvfs(&dir).unwrap().f_ffree != free_before - 1 {
        assert!(std::time::Instant::now() < end, "the file without a name is not freed");
        std::thread::sleep(Duration::from_millis(5));
    }
    fixture.judge(|root| {
        let named = root.join("dir/named");
        assert_eq!(fs::read(&named).unwrap(), b"kept");
        let data = fs::metadata(&named).unwrap();
        assert_eq!((data.nlink(), data.mode() & 0o7777), (1, 0o640));
        assert_eq!(fs::read_dir(root.join("dir")).unwrap().count(), 1);
    });
}

#[test]
fn the_time_of_birth_is_the_one_that_the_kernel_shows() {
    let Some(fixture) = mounted() else { return };
    let born = |path: &std::path::Path| {
        let data = statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME | StatxFlags::BASIC_STATS).unwrap();
        assert!(StatxFlags::from_bits_retain(data.stx_mask).contains(StatxFlags::BTIME));
        (data.stx_btime.tv_sec, data.stx_btime.tv_nsec, data.stx_size, data.stx_ino)
    };
    fs::write(fixture.path("file"), b"1234").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    fs::write(fixture.path("file"), b"123456").unwrap();
    let shown = born(&fixture.path("file"));
    assert_eq!(shown.2, 6);
    fixture.judge(|root| assert_eq!(born(&root.join("file")), shown));
}

/// An image whose flush takes as long as that of a disk.
struct SlowFlush(FileDevice);

impl WrapsDevice for SlowFlush {
    type Below = FileDevice;

    fn below(&self) -> &FileDevice {
        &self.0
    }

    fn pass_flush(&self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(5));
        self.0.flush()
    }
}

/// Where the threads that answer also wait for the device, no more flushes are in progress than there are threads, two
/// on small machines, and hardly any is shared.
#[test]
fn flushes_of_several_writers_become_one() {
    let Some(mut fixture) = mounted() else { return };
    fixture.mount.stop().unwrap();
    let device = SlowFlush(FileDevice::open(fixture.scratch.file("a.img"), Access::Write).unwrap());
    fixture.mount = serve_device(&fixture.scratch, Arc::new(device), WriteCache::default());
    let start = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (fixture, start) = (&fixture, &start);
            scope.spawn(move || {
                let file = File::create_new(fixture.path(&format!("{writer}"))).unwrap();
                start.wait();
                for round in 0..10 {
                    file.write_all_at(&[writer as u8; 4096], round * 4096).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    // The server runs in this process: two threads wait for the device, one of those that answer may, and one writes
    // back times.
    let waiting = fs::read_dir("/proc/self/task").unwrap().filter(|task| {
        let name = fs::read_to_string(task.as_ref().unwrap().path().join("comm"));
        name.is_ok_and(|name| name.trim() == "fuse-wait")
    });
    assert!(waiting.count() <= 4, "a thread for each fsync");
    let figures = figures(&fixture);
    let of = |name: &str| figures["counters"][name].as_u64().unwrap();
    assert_eq!(figures["waiting"]["requests"].as_u64(), figures["requests"]["fsync"].as_u64());
    assert!(of("log_forces_shared") * 2 > of("log_forces"), "{figures:#}");
    assert_eq!(fixture.mount.stop().unwrap(), Unmounted::Gone);
}

/// The kernel holds for sure what it knows of a file that has as many blocks after an fsync as before it.
#[test]
fn to_overwrite_and_sync_takes_two_requests() {
    const ROUNDS: u64 = 50;
    let Some(fixture) = mounted() else { return };
    let file = File::create_new(fixture.path("file")).unwrap();
    let round = |number: u64| {
        file.write_all_at(&[number as u8; 4096], number % 16 * 4096).unwrap();
        file.sync_data().unwrap();
    };
    (0..ROUNDS).for_each(round);
    let asked = requests_of(&fixture, || (0..ROUNDS).for_each(round));
    assert_eq!((asked["write"], asked["fsync"]), (ROUNDS, ROUNDS));
    let others: u64 = asked.values().sum::<u64>() - 2 * ROUNDS;
    // Times, a few times a second.
    assert!(others < ROUNDS / 5, "{asked:?}");
}

/// Direct writes to the beginning of a file by a program, twice, the second time counted: they take no other request.
fn direct_writes_take_no_other_request(fixture: &Fixture, program: &mut Command) {
    let to = format!("of={}", fixture.path("file").display());
    program.args(["if=/dev/zero", &to, "bs=4k", &format!("count={WRITES}"), "conv=notrunc", "oflag=direct"]);
    let mut write = || {
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    write();
    let asked = requests_of(fixture, write);
    assert_eq!(asked["write"], WRITES);
    let others: u64 = asked.values().sum::<u64>() - WRITES;
    assert!(others < WRITES / 5, "{asked:?}");
}

/// A copy that was made through the cache, and then belongs to a program that goes around it.
#[test]
fn direct_writes_to_a_file_that_was_cached_take_one_request_each_in_the_end() {
    let Some(fixture) = mounted() else { return };
    fs::write(fixture.path("file"), vec![1; WRITES as usize * 4096]).unwrap();
    direct_writes_take_no_other_request(&fixture, &mut Command::new("dd"));
    assert_eq!(fs::read(fixture.path("file")).unwrap(), vec![0; WRITES as usize * 4096]);
}

/// The kernel has each write of a user who is not root take set-ID bits away. Of a file that has none it goes on
/// holding what it knows.
#[test]
fn writes_of_a_user_to_a_file_without_privileges_take_no_other_request() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root may become another user");
    }
    let Some(fixture) = mounted() else { return };
    fs::write(fixture.path("file"), []).unwrap();
    fs::set_permissions(fixture.path("file"), fs::Permissions::from_mode(0o666)).unwrap();
    direct_writes_take_no_other_request(&fixture, Command::new("setpriv").args(NOBODY).arg("dd"));
}
