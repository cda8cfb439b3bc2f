//! Immutable and append-only files through the mount, compared with the kernel's XFS on a copy of the image.

mod common;

use common::{Fixture, has, mounted, serve};
use rustix::fs::{AtFlags, CWD, IFlags, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xfskit_testkit::{Mount, copy_image, kernel_mount};

/// The initial contents of the protected files.
const CONTENTS: &[u8] = b"0123456789";

/// A mount by xfskit, and the kernel's mount of a copy of its image, with files of `CONTENTS` that have `flags`.
fn with_protected(names: &[&str], flags: IFlags) -> Option<(Fixture, Mount)> {
    let scratch = mounted()?.unmount();
    let image = scratch.file("a.img");
    let kernel = kernel_mount(&image)?;
    fs::set_permissions(kernel.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in names {
        let path = kernel.path().join(name);
        fs::write(&path, CONTENTS).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let file = File::open(&path).unwrap();
        rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file).unwrap() | flags).unwrap();
    }
    kernel.unmount();
    let copy = scratch.file("kernel.img");
    copy_image(&image, &copy);
    let mount = serve(&scratch);
    for path in [scratch.path(), &scratch.file("mount")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let fixture = Fixture { mount, scratch };
    let kernel = kernel_mount(&copy)?;
    fs::set_permissions(kernel.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Some((fixture, kernel))
}

fn as_nobody(script: &str, path: &Path) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script, "sh"]).arg(path);
    command.output().unwrap().status.success()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Clearing the bits must not be refused like a chmod of an append-only file.
#[test]
fn an_append_by_another_user_takes_the_privileges_away() {
    let Some((fixture, kernel)) = with_protected(&["appended", "cut", "allocated"], IFlags::APPEND) else { return };
    let append = |path: &Path| (as_nobody("echo more >> \"$1\"", path), fs::read(path).unwrap(), mode(path));
    let cut = |path: &Path| (as_nobody("truncate -s 3 \"$1\"", path), fs::read(path).unwrap(), mode(path));
    assert_eq!(append(&kernel.path().join("appended")), (true, b"0123456789more\n".to_vec(), 0o777));
    assert_eq!(append(&fixture.path("appended")), (true, b"0123456789more\n".to_vec(), 0o777));
    assert_eq!(cut(&kernel.path().join("cut")), (false, CONTENTS.to_vec(), 0o6777));
    assert_eq!(cut(&fixture.path("cut")), (false, CONTENTS.to_vec(), 0o6777));
    // On the kernel's XFS the file would have to be opened for appending, which the program does not do.
    assert!(as_nobody("fallocate -l 10000 \"$1\"", &fixture.path("allocated")));
    assert!(!as_nobody("fallocate -p -l 5 \"$1\"", &fixture.path("cut")));
    assert_eq!((mode(&fixture.path("allocated")), mode(&fixture.path("cut"))), (0o777, 0o6777));
    kernel.unmount();
    fixture.judge(|dir| {
        assert_eq!(["appended", "cut", "allocated"].map(|name| mode(&dir.join(name))), [0o777, 0o6777, 0o777]);
    });
}

/// The kernel sends the time of a touch as a value, which must be distinguished from a time that a program sets.
#[test]
fn an_append_only_file_is_touched_but_takes_no_other_times() {
    let Some((fixture, kernel)) = with_protected(&["file"], IFlags::APPEND) else { return };
    let set = |dir: &Path, (atime, mtime): ((i64, i64), (i64, i64))| {
        let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        rustix::fs::utimensat(CWD, dir.join("file"), &times, AtFlags::empty()).map_err(rustix::io::Errno::raw_os_error)
    };
    let (now, omit) = ((0, UTIME_NOW), (0, UTIME_OMIT));
    // The case (omit, now) is missing, since for the server it looks like the end of a write.
    for times in
        [(now, now), (omit, (7, 0)), ((7, 0), omit), ((7, 0), (7, 0)), (now, (7, 0)), ((7, 0), now), (now, omit)]
    {
        assert_eq!(set(&fixture.path(""), times), set(kernel.path(), times), "{times:?}");
    }
    assert_eq!(set(&fixture.path(""), (now, now)), Ok(()));
    let mut file = File::options().append(true).open(fixture.path("file")).unwrap();
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    let shown = fs::metadata(fixture.path("file")).unwrap();
    drop(file);
    kernel.unmount();
    fixture.judge(|dir| {
        let found = fs::metadata(dir.join("file")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (shown.mtime(), shown.mtime_nsec()));
        assert_ne!(found.mtime(), 7);
    });
}

/// The kernel does not know the flag and opens such a file for any kind of writing. So the server must refuse pages
/// from the kernel's cache that change existing contents.
#[test]
fn what_an_append_only_file_holds_stays_whatever_the_cache_brings() {
    let Some((fixture, kernel)) = with_protected(&["over", "both", "long"], IFlags::APPEND) else { return };
    kernel.unmount();
    let file = |name: &str| File::options().read(true).write(true).open(fixture.path(name)).unwrap();
    let refused = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(1);
    let over = file("over");
    over.write_all_at(b"over", 3).unwrap();
    assert!(refused(over.sync_all()));
    let both = file("both");
    both.write_all_at(b"more", 10).unwrap();
    both.sync_all().unwrap();
    // Contents that were appended while the file is open stay as well.
    both.write_all_at(b"less", 10).unwrap();
    assert!(refused(both.sync_all()));
    // Pages arrive in any order; here the last one arrives before those that fill the gap.
    let long = file("long");
    let bytes: Vec<_> = CONTENTS.iter().copied().cycle().take(500_010).collect();
    long.write_all_at(&bytes[400_000..], 400_000).unwrap();
    long.sync_all().unwrap();
    long.write_all_at(&bytes[10..400_000], 10).unwrap();
    long.sync_all().unwrap();
    let mut appender = File::options().append(true).open(fixture.path("long")).unwrap();
    for _ in 0..100 {
        appender.write_all(CONTENTS).unwrap();
        appender.sync_data().unwrap();
    }
    drop((over, both, long, appender));
    fixture.judge(|dir| {
        assert_eq!(fs::read(dir.join("over")).unwrap(), CONTENTS);
        assert_eq!(fs::read(dir.join("both")).unwrap(), b"0123456789more");
        let long: Vec<_> = CONTENTS.iter().copied().cycle().take(501_010).collect();
        assert!(fs::read(dir.join("long")).unwrap() == long);
    });
}

/// Bytes that a file had before it was made shorter are none that it may not lose.
#[test]
fn a_file_that_was_emptied_before_it_became_append_only_takes_what_is_appended() {
    let Some((fixture, kernel)) = with_protected(&[], IFlags::empty()) else { return };
    let work = |path: &Path| {
        fs::write(path, [7; 10_000]).unwrap();
        let mut file = File::options().append(true).open(path).unwrap();
        file.sync_all().unwrap();
        file.set_len(0).unwrap();
        rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file).unwrap() | IFlags::APPEND).unwrap();
        file.write_all(b"one line\n").unwrap();
        (file.sync_all().map_err(|error| error.raw_os_error()), fs::read(path).unwrap())
    };
    let expected = work(&kernel.path().join("file"));
    assert_eq!(work(&fixture.path("file")), expected);
    kernel.unmount();
    fixture.judge(|dir| assert_eq!(fs::read(dir.join("file")).unwrap(), b"one line\n"));
}

/// The kernel must drop refused contents from its cache.
#[test]
fn what_was_refused_is_shown_no_more() {
    let Some((fixture, kernel)) = with_protected(&["file"], IFlags::IMMUTABLE) else { return };
    kernel.unmount();
    let path = fixture.path("file");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"over", 3).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(1));
    // The kernel drops them a moment later.
    let end = Instant::now() + Duration::from_secs(10);
    while fs::read(&path).unwrap() != CONTENTS {
        assert!(Instant::now() < end, "{:?}", fs::read(&path));
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(file);
    fixture.judge(|dir| assert_eq!(fs::read(dir.join("file")).unwrap(), CONTENTS));
}

/// The bits must not be cleared before the copy succeeds.
#[test]
fn a_refused_copy_leaves_the_privileges() {
    if !has("python3") {
        return;
    }
    let Some((fixture, kernel)) = with_protected(&["file", "source"], IFlags::APPEND) else { return };
    kernel.unmount();
    let script = "python3 -c 'import os, sys
to = os.open(sys.argv[1], os.O_WRONLY)
os.copy_file_range(os.open(sys.argv[1].replace(\"file\", \"source\"), os.O_RDONLY), to, 5)' \"$1\"";
    assert!(!as_nobody(script, &fixture.path("file")));
    assert_eq!(mode(&fixture.path("file")), 0o6777);
    fixture.judge(|dir| assert_eq!(fs::read(dir.join("file")).unwrap(), CONTENTS));
}

/// What a program has written waits in the kernel's cache when the file is protected: the kernel's own XFS checks when
/// it is written, and so the data is not lost.
#[test]
fn what_was_written_before_a_file_is_protected_is_kept() {
    let Some(fixture) = mounted() else { return };
    let protect = |path: &Path, flag: IFlags, is_on: bool| {
        let file = File::open(path).unwrap();
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        rustix::fs::ioctl_setflags(&file, if is_on { flags | flag } else { flags & !flag }).unwrap();
    };
    let expected = [b"fresh\0".as_slice(), &[0; 4090], CONTENTS].concat();
    for (name, flag) in [("appended", IFlags::APPEND), ("immutable", IFlags::IMMUTABLE)] {
        let path = fixture.path(name);
        let file = File::create(&path).unwrap();
        file.write_all_at(CONTENTS, 4096).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(b"fresh", 0).unwrap();
        protect(&path, flag, true);
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(fs::read(&path).unwrap() == expected, "{name}");
        protect(&path, flag, false);
    }
    fixture.judge(|dir| {
        for name in ["appended", "immutable"] {
            assert!(fs::read(dir.join(name)).unwrap() == expected, "{name}");
        }
    });
}

/// Without the option the kernel opens such files without a word.
#[test]
fn with_checked_opens_a_protected_file_is_not_opened_for_what_it_refuses() {
    let Some((mut fixture, kernel)) = with_protected(&["immutable"], IFlags::IMMUTABLE) else { return };
    let set = |dir: &Path| {
        let path = dir.join("appended");
        fs::write(&path, CONTENTS).unwrap();
        let file = File::open(&path).unwrap();
        rustix::fs::ioctl_setflags(&file, IFlags::APPEND).unwrap();
        fs::write(dir.join("plain"), CONTENTS).unwrap();
    };
    set(kernel.path());
    set(&fixture.path(""));
    assert!(File::options().write(true).open(fixture.path("immutable")).is_ok(), "opens are not checked");
    fixture.mount.stop().unwrap();
    let device = xfskit_device::FileDevice::open(fixture.scratch.file("a.img"), xfskit_device::Access::Write);
    let options = xfskit_fuse::Options { opens: xfskit_fuse::Opens::Checked, ..Default::default() };
    fixture.mount = common::serve_as(&fixture.scratch, std::sync::Arc::new(device.unwrap()), options);
    let open = |dir: &Path, name: &str, flags: OFlags| {
        let made = rustix::fs::open(dir.join(name), flags, 0o644.into());
        made.map(drop).map_err(rustix::io::Errno::raw_os_error)
    };
    for name in ["immutable", "appended", "plain", "new"] {
        for access in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
            for more in [OFlags::empty(), OFlags::APPEND, OFlags::TRUNC, OFlags::APPEND | OFlags::TRUNC, OFlags::CREATE]
            {
                let flags = access | more;
                let expected = open(kernel.path(), name, flags);
                assert_eq!(open(&fixture.path(""), name, flags), expected, "{name} {flags:?}");
            }
        }
    }
    // It may be read, and the other one appended to.
    assert_eq!(fs::read(fixture.path("immutable")).unwrap(), CONTENTS);
    fs::write(fixture.path("made"), CONTENTS).unwrap();
    let mut file = File::options().append(true).open(fixture.path("appended")).unwrap();
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    drop(file);
    kernel.unmount();
    fixture.judge(|dir| {
        assert_eq!(fs::read(dir.join("appended")).unwrap(), b"0123456789more");
        assert_eq!(fs::read(dir.join("made")).unwrap(), CONTENTS);
    });
}

/// The kernel keeps ctime of a file that it knows itself.
#[test]
fn a_change_of_flags_is_seen_in_ctime() {
    let Some(fixture) = mounted() else { return };
    let ctime = |name: &str| {
        let data = fs::metadata(fixture.path(name)).unwrap();
        (data.ctime(), data.ctime_nsec())
    };
    fs::write(fixture.path("file"), CONTENTS).unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    for name in ["file", "dir"] {
        for flags in [IFlags::NODUMP, IFlags::NOATIME, IFlags::empty()] {
            let before = ctime(name);
            std::thread::sleep(Duration::from_millis(20));
            let file = File::open(fixture.path(name)).unwrap();
            rustix::fs::ioctl_setflags(&file, flags).unwrap();
            drop(file);
            // Programs of their own take as long to end and to start.
            std::thread::sleep(Duration::from_millis(5));
            assert!(ctime(name) > before, "{name}, {flags:?}");
            assert_eq!(ctime(name), ctime(name));
        }
    }
    assert_eq!(fs::read(fixture.path("file")).unwrap(), CONTENTS);
    fixture.judge(|_| {});
}
