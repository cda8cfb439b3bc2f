//! Times, sizes and blocks, which the kernel caches while it has dirty pages: a second mount and the kernel's XFS show
//! the same as the first mount.

mod common;

use common::{Fixture, Served, has, mounted, run, serve};
use rustix::fs::{FallocateFlags, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::ReadWriteFlags;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{MountOptions, Volume};
use xfskit_fuse::{KernelClock, Options, Session, WriteCache};
use xfskit_testkit::{copy_image, kernel_mount_with, reference, scratch};

/// Times, size and space of everything in a folder.
fn times(dir: &Path) -> BTreeMap<String, [i64; 7]> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let stat = entry.metadata().unwrap();
        let sizes = [stat.size() as i64, i64::from(stat.mode())];
        let times = [stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec(), stat.blocks() as i64];
        (entry.file_name().into_string().unwrap(), [times.as_slice(), &sizes].concat().try_into().unwrap())
    });
    entries.collect()
}

fn pause() {
    std::thread::sleep(Duration::from_millis(15));
}

fn set_mtime(file: &File, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
    rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time }).unwrap();
}

/// Files whose times are set in all ways.
fn work(fixture: &Fixture) {
    let new = |name: &str| File::options().read(true).write(true).create_new(true).open(fixture.path(name)).unwrap();
    new("written").write_all(&[1; 10_000]).unwrap();
    let file = new("set, then written");
    set_mtime(&file, 1_000_000_000);
    pause();
    file.write_all_at(b"later", 0).unwrap();
    let file = new("written, then set");
    file.write_all_at(&[2; 300_000], 0).unwrap();
    pause();
    set_mtime(&file, 1_000_000_000);
    let file = new("cut");
    file.write_all_at(&[3; 300_000], 0).unwrap();
    pause();
    file.set_len(100_001).unwrap();
    let file = new("grown");
    file.write_all_at(&[4; 100], 0).unwrap();
    file.set_len(100_001).unwrap();
    let file = new("allocated");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 200_000).unwrap();
    // Without a pause, so that both calls are in the same tick of the kernel's clock.
    for (n, mode) in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE].into_iter().cycle().take(8).enumerate() {
        let name = format!("written, then allocated {n}");
        new(&name).write_all_at(&[5; 5000], 0).unwrap();
        let file = File::options().write(true).open(fixture.path(&name)).unwrap();
        rustix::fs::fallocate(&file, mode, 10_000 * n as u64, 20_000).unwrap();
    }
    let file = new("written, then changed");
    file.write_all_at(&[5; 5000], 0).unwrap();
    pause();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let file = new("written, then linked");
    file.write_all_at(&[5; 5000], 0).unwrap();
    pause();
    fs::hard_link(fixture.path("written, then linked"), fixture.path("link")).unwrap();
    let file = new("written, then named");
    file.write_all_at(&[5; 5000], 0).unwrap();
    pause();
    rustix::fs::fsetxattr(&file, "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    drop(new("direct"));
    let file = File::options().write(true).custom_flags(direct).open(fixture.path("direct")).unwrap();
    file.write_all_at(&vec![6; 4096], 0).unwrap();
    let mut from = new("source");
    from.write_all(&[7; 100_000]).unwrap();
    from.seek(SeekFrom::Start(0)).unwrap();
    pause();
    let to = new("copied");
    rustix::fs::copy_file_range(&from, None, &to, None, 100_000).unwrap();
    run("cp", &["-p", fixture.path("written, then set").to_str().unwrap()], &fixture.path("kept by cp"));
    if has("python3") {
        let script = "import mmap, sys
with open(sys.argv[1], 'wb+') as f:
    f.truncate(9000)
    m = mmap.mmap(f.fileno(), 9000)
    m[5000:5003] = b'abc'";
        run("python3", &["-c", script], &fixture.path("mapped"));
    }
}

#[test]
fn times_sizes_and_blocks_are_the_same_after_a_remount_and_for_the_kernel() {
    for cache in [WriteCache::Back, WriteCache::Through] {
        let Some(mut fixture) = mounted() else { return };
        fixture.remount(cache);
        are_the_same_afterwards(fixture);
    }
}

fn are_the_same_afterwards(mut fixture: Fixture) {
    work(&fixture);
    // Blocks of the kernel's dirty pages are not counted yet.
    assert!(Command::new("sync").arg("-f").arg(fixture.path("")).status().unwrap().success());
    for entry in fs::read_dir(fixture.path("")).unwrap() {
        File::open(entry.unwrap().path()).unwrap().sync_all().unwrap();
    }
    let mut ours = times(&fixture.path(""));
    fixture.mount.stop().unwrap();
    fixture.mount = serve(&fixture.scratch);
    let again = times(&fixture.path(""));
    // Of a direct write the kernel keeps its own time, and the server has that at which the request came.
    let later_nanoseconds = |at: usize| {
        let time = |of: &BTreeMap<String, [i64; 7]>| of["direct"][at] * 1_000_000_000 + of["direct"][at + 1];
        time(&again) - time(&ours)
    };
    assert!([0, 2].iter().all(|at| (0..100_000_000).contains(&later_nanoseconds(*at))), "{:?}", again["direct"]);
    ours.insert("direct".into(), again["direct"]);
    assert_eq!(ours, again);
    assert_eq!(ours["written, then set"][0], 1_000_000_000);
    assert_eq!(ours["kept by cp"][..2], [1_000_000_000, 123_456_789]);
    assert!(ours["set, then written"][0] > 1_000_000_000);
    assert_eq!(ours["written"][4], 24);
    fixture.judge(|dir| assert_eq!(ours, times(dir)));
}

/// The conversion of such a time must not overflow, which would end the server.
#[test]
fn the_first_and_the_last_second_can_be_set() {
    let Some(fixture) = mounted() else { return };
    for (name, seconds) in [("first", i64::MIN), ("second", i64::MIN + 1), ("last", i64::MAX)] {
        set_mtime(&File::create(fixture.path(name)).unwrap(), seconds);
    }
    assert_eq!(fs::read_dir(fixture.path("")).unwrap().count(), 3);
    fixture.judge(|dir| {
        let found = ["first", "second", "last"].map(|name| fs::metadata(dir.join(name)).unwrap().mtime());
        let kernels = ["a", "b", "c"].map(|name| File::create(dir.join(name)).unwrap());
        kernels.iter().zip([i64::MIN, i64::MIN + 1, i64::MAX]).for_each(|(file, seconds)| set_mtime(file, seconds));
        assert_eq!(found, kernels.map(|file| file.metadata().unwrap().mtime()));
    });
}

#[test]
fn a_write_by_another_user_takes_privileges_away() {
    let Some(fixture) = mounted() else { return };
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for path in [fixture.scratch.path(), &fixture.scratch.file("mount")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let modes = |what: &str| {
        let path = fixture.path(what);
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        path
    };
    let [written, cut, allocated, mine] = ["written", "cut", "allocated", "mine"].map(modes);
    let as_nobody = |script: &str, path: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script, "sh"]).arg(path);
        assert!(command.status().unwrap().success(), "{script}");
    };
    as_nobody("echo more >> \"$1\"", &written);
    as_nobody(": > \"$1\"", &cut);
    as_nobody("fallocate -l 10000 \"$1\"", &allocated);
    fs::write(&mine, "by root").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!([&written, &cut, &allocated, &mine].map(|path| mode(path)), [0o777, 0o777, 0o777, 0o6777]);
    fixture.judge(|dir| {
        let found = ["written", "cut", "allocated", "mine"].map(|name| mode(&dir.join(name)));
        assert_eq!(found, [0o777, 0o777, 0o777, 0o6777]);
    });
}

/// Data that is durable when a call returns: a copy of the image at that time is what a power cut would leave.
#[test]
fn synchronous_writes_are_durable_when_they_return() {
    let Some(fixture) = mounted() else { return };
    let open = |name: &str, flags: OFlags| {
        let flags = flags.bits() as i32;
        File::options().write(true).create(true).custom_flags(flags).open(fixture.path(name)).unwrap()
    };
    let files = ["sync", "dsync", "direct", "flag", "direct and flag"];
    let flags = [OFlags::SYNC, OFlags::DSYNC, OFlags::DIRECT | OFlags::DSYNC, OFlags::empty(), OFlags::DIRECT];
    for round in 1..=3u8 {
        for (name, flags) in files.iter().zip(flags) {
            let file = open(name, flags);
            let data = vec![round; 4096 * usize::from(round) * 5];
            if name.contains("flag") {
                let slices = [IoSlice::new(&data)];
                assert_eq!(rustix::io::pwritev2(&file, &slices, 0, ReadWriteFlags::DSYNC).unwrap(), data.len());
            } else {
                file.write_all_at(&data, 0).unwrap();
            }
            let copy = fixture.scratch.file("copy.img");
            copy_image(&fixture.scratch.file("a.img"), &copy);
            let device = FileDevice::open(&copy, Access::Write).unwrap();
            let filesystem =
                Volume::open_in(Arc::new(device), None, MountOptions::default(), Arc::new(KernelClock::default()))
                    .unwrap();
            let inode = filesystem.lookup_number(filesystem.root(), name.as_bytes()).unwrap();
            let mut found = vec![0; data.len() + 1];
            let count = filesystem.read_at(inode, 0, &mut found).unwrap();
            assert!(found[..count] == data, "{name}, round {round}: {count} bytes");
            filesystem.unmount().unwrap();
            if let Some(reference) = reference() {
                reference.repair_finds_nothing(&copy);
            }
        }
    }
    fixture.judge(|_| ());
}

#[test]
fn space_is_counted_as_it_is_taken_and_given_back() {
    let Some(fixture) = mounted() else { return };
    let free = || rustix::fs::statvfs(fixture.path("")).unwrap().f_bavail * 4096;
    let blocks = |file: &File| file.metadata().unwrap().blocks() * 512;
    let before = free();
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(fixture.path("a")).unwrap();
    assert_eq!(blocks(&file), 0);
    file.write_all(&vec![1; 40 << 20]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(blocks(&file), 40 << 20);
    let taken = before - free();
    assert!((40 << 20..42 << 20).contains(&taken), "{taken}");
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 10 << 20).unwrap();
    assert_eq!(blocks(&file), 30 << 20);
    file.write_all_at(&[2; 4096], 4096).unwrap();
    file.sync_data().unwrap();
    assert_eq!(blocks(&file), (30 << 20) + 4096);
    // A file without a name keeps its contents until it is closed.
    fs::remove_file(fixture.path("a")).unwrap();
    file.write_all_at(b"still here", 11 << 20).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut text = [0; 10];
    file.seek(SeekFrom::Start(11 << 20)).unwrap();
    file.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"still here");
    assert_eq!(rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive), Ok(()));
    assert_eq!(rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive), Ok(()));
    drop(file);
    let mut waits = 0..500;
    while free() + (1 << 20) < before {
        assert!(waits.next().is_some(), "{} of {before} bytes are free", free());
        std::thread::sleep(Duration::from_millis(10));
    }
    fixture.judge(|_| ());
}

fn path_of(file: &File) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

/// Operations after which a file has as many blocks at an fsync as at the one before, and others in between.
#[test]
fn blocks_are_those_of_the_file_when_it_has_as_many_again() {
    type Take = fn(&File);
    const BLOCK: usize = 4096;
    let takes: [(&str, Take); 4] = [
        ("truncate", |file| file.set_len(5 * BLOCK as u64).unwrap()),
        ("punch", |file| {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, mode, 5 * BLOCK as u64, 5 * BLOCK as u64).unwrap();
        }),
        // A write to a shared block needs one more until it is brought out.
        ("shared", |file| {
            let beside = File::create(path_of(file).with_extension("clone")).unwrap();
            let copied = rustix::fs::copy_file_range(file, Some(&mut 0), &beside, Some(&mut 0), 10 * BLOCK).unwrap();
            assert_eq!(copied, 10 * BLOCK);
            file.sync_all().unwrap();
            file.write_all_at(&[2; BLOCK], 0).unwrap();
            // The contents reach the server when the file is closed, and the kernel asks for the blocks.
            drop(File::open(path_of(file)).unwrap());
            let before = file.metadata().unwrap().blocks();
            file.sync_data().unwrap();
            // XFS sets more aside.
            assert!(file.metadata().unwrap().blocks() < before);
            file.set_len(0).unwrap();
            file.write_all_at(&[1; 10 * BLOCK], 0).unwrap();
            file.sync_data().unwrap();
        }),
        ("attribute", |file| {
            rustix::fs::fsetxattr(file, "user.large", &[1; 5 * BLOCK], XattrFlags::CREATE).unwrap();
            // The kernel asks for the blocks after a close.
            drop(File::open(path_of(file)).unwrap());
            assert!(file.metadata().unwrap().blocks() > 10 * 8);
            rustix::fs::fremovexattr(file, "user.large").unwrap();
        }),
    ];
    let scenario = |root: &Path| {
        takes.map(|(name, take)| {
            let file = File::options().read(true).write(true).create_new(true).open(root.join(name)).unwrap();
            let write = |range: Range<usize>| {
                file.write_all_at(&vec![1; range.len() * BLOCK], (range.start * BLOCK) as u64).unwrap();
                file.sync_all().unwrap();
                file.metadata().unwrap().blocks()
            };
            let first = write(0..10);
            take(&file);
            [first, write(5..10)]
        })
    };
    let Some(fixture) = mounted() else { return };
    let (ours, theirs) = (fixture.path("ours"), "theirs");
    fs::create_dir(&ours).unwrap();
    let ours = scenario(&ours);
    assert!(ours.iter().all(|blocks| *blocks == [80; 2]), "{ours:?}");
    fixture.judge(|root| {
        let root = root.join(theirs);
        fs::create_dir(&root).unwrap();
        assert_eq!(scenario(&root), ours);
    });
}

/// The second of a file's last modification that a power cut now would leave.
fn after_a_power_cut(image: &Path, name: &str) -> i64 {
    let scratch = scratch();
    let copy = scratch.file("copy.img");
    copy_image(image, &copy);
    let device = Arc::new(FileDevice::open(&copy, Access::Read).unwrap());
    let filesystem = Volume::open(device, MountOptions::read_only()).unwrap();
    filesystem.lookup(filesystem.root(), name.as_bytes()).unwrap().mtime.seconds
}

/// The table in docs/design/times.md, line by line.
#[test]
fn what_makes_times_durable() {
    const SET: i64 = 1_000_000_000;
    let Some(mut fixture) = mounted() else { return };
    let image = fixture.scratch.file("a.img");
    let new = |fixture: &Fixture, name: &str| {
        let file = File::create(fixture.path(name)).unwrap();
        file.sync_all().unwrap();
        file
    };
    let (file, other) = (new(&fixture, "file"), new(&fixture, "other"));
    let cut = || after_a_power_cut(&image, "file");
    set_mtime(&file, SET);
    other.write_all_at(b"x", 0).unwrap();
    other.sync_all().unwrap();
    assert_ne!(cut(), SET, "an fsync of another file");
    rustix::fs::syncfs(&file).unwrap();
    assert_ne!(cut(), SET, "syncfs");
    file.sync_all().unwrap();
    assert_eq!(cut(), SET, "fsync");
    // Of a write: the kernel keeps the time until it sends the contents.
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(cut(), SET, "a write");
    rustix::fs::syncfs(&file).unwrap();
    assert_eq!(cut(), SET, "a write and syncfs");
    file.sync_all().unwrap();
    assert!(cut() > SET, "a write and fsync");
    // With another change of the file, which the fsync of yet another one makes durable.
    set_mtime(&file, SET);
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    other.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    other.sync_all().unwrap();
    assert_eq!(cut(), SET, "a later change");
    set_mtime(&file, SET + 1);
    drop((file, other));
    fixture.mount.stop().unwrap();
    assert_eq!(cut(), SET + 1, "umount");
    // With a commit each second, and at once with wsync.
    for wsync in [false, true] {
        fixture.mount = serve_committing(&fixture, wsync);
        set_mtime(&File::open(fixture.path("file")).unwrap(), SET);
        if !wsync {
            std::thread::sleep(Duration::from_millis(2500));
        }
        assert_eq!(cut(), SET, "commit, or wsync {wsync}");
        set_mtime(&File::open(fixture.path("file")).unwrap(), SET + 1);
        fixture.mount.stop().unwrap();
    }
    // The kernel's mount with lazytime: an fsync of another file is enough.
    let Some(kernel) = kernel_mount_with(&image, None, &["lazytime"]) else { return };
    let at = |name: &str| File::options().write(true).open(kernel.path().join(name)).unwrap();
    set_mtime(&at("file"), SET);
    at("other").write_all_at(b"y", 0).unwrap();
    at("other").sync_all().unwrap();
    assert_eq!(cut(), SET, "the kernel, with lazytime");
    kernel.unmount();
}

/// The size of a file that a power cut now would leave.
fn size_after_a_power_cut(image: &Path, name: &str) -> u64 {
    let scratch = scratch();
    let copy = scratch.file("copy.img");
    copy_image(image, &copy);
    let device = Arc::new(FileDevice::open(&copy, Access::Read).unwrap());
    let filesystem = Volume::open(device, MountOptions::read_only()).unwrap();
    filesystem.lookup(filesystem.root(), name.as_bytes()).unwrap().size
}

/// Linux's `FS_SYNC_FL`.
const SYNC: u32 = 8;

/// `chattr +S`: of contents, not of sizes, here and on the kernel's mount.
#[test]
fn what_reaches_a_synchronous_file_is_durable() {
    let Some(fixture) = mounted() else { return };
    let image = fixture.scratch.file("a.img");
    let use_it = |path: &Path| {
        let file = File::create(path).unwrap();
        file.sync_all().unwrap();
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::from_bits_retain(SYNC)).unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        drop(file);
        let name = path.file_name().unwrap().to_str().unwrap();
        let written = size_after_a_power_cut(&image, name);
        let file = File::options().write(true).open(path).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
        let allocated = size_after_a_power_cut(&image, name);
        file.set_len(100).unwrap();
        [written, allocated, size_after_a_power_cut(&image, name)]
    };
    let sizes = use_it(&fixture.path("ours"));
    assert_eq!(sizes, [5000, 20_000, 20_000]);
    drop(fixture.mount);
    let Some(kernel) = kernel_mount_with(&image, None, &[]) else { return };
    assert_eq!(use_it(&kernel.path().join("theirs")), sizes);
    kernel.unmount();
}

/// The image, mounted with a commit each second, or with `wsync` and without commits.
fn serve_committing(fixture: &Fixture, wsync: bool) -> Served {
    let device = Arc::new(FileDevice::open(fixture.scratch.file("a.img"), Access::Write).unwrap());
    let engine = MountOptions { wsync, ..MountOptions::default() };
    let filesystem = Volume::open_in(device, None, engine, Arc::new(KernelClock::default())).unwrap();
    let options = Options { commit_seconds: u64::from(!wsync), ..Options::default() };
    let session = Session::mount(filesystem, &fixture.path(""), &options).unwrap();
    Served { unmounter: session.unmounter(), thread: Some(std::thread::spawn(|| session.run())) }
}
