//! The end of a server: it unmounts only its own mount, and the program that unmounts learns whether the image was
//! closed.

mod common;

use common::mounts::{SmallHost, prepared, prepared_for_root, run, server_of, signal, wait_for_end};
use common::{fails, ok, words, xfskit};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{reference, skip};

fn is_clean(image: &Path) -> bool {
    ok("info IMAGE", image).ends_with("clean\n")
}

/// Another mount may lie over the server's own mount at the same folder.
#[test]
fn a_signal_ends_the_servers_own_mount_and_no_other() {
    let Some(at) = prepared_for_root() else { return };
    let other = at.scratch.file("b.img");
    ok("mkfs IMAGE --size 400M -q", &other);
    for way in ["signal", "close"] {
        at.line("mount IMAGE DIR");
        let file = File::create(at.dir.join(way)).unwrap();
        run("umount", &["-l"], &at.dir);
        let first = server_of(&at.image);
        ok(&format!("mount IMAGE {}", at.dir.display()), &other);
        // The last close of a file on the first mount ends the server as well.
        if way == "signal" {
            signal(first, "-TERM");
            wait_for_end(first);
            drop(file);
        } else {
            drop(file);
            wait_for_end(first);
        }
        fs::write(at.dir.join(way), "of the other").unwrap();
        assert!(is_clean(&at.image));
        at.line("umount DIR");
        assert!(ok("ls IMAGE", &other).contains(way));
    }
}

/// The mount may still exist in another mount namespace.
#[test]
fn a_signal_ends_a_server_whose_mount_lives_on_elsewhere() {
    let Some(at) = prepared_for_root() else { return };
    at.line("mount IMAGE DIR");
    fs::write(at.dir.join("file"), "contents").unwrap();
    let server = server_of(&at.image);
    let namespace = ["--mount", "--propagation", "private", "sleep", "1000"];
    let mut elsewhere = Command::new("unshare").args(namespace).stdin(Stdio::null()).spawn().unwrap();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while fs::read_link(format!("/proc/{}/ns/mnt", elsewhere.id())).is_ok_and(|theirs| theirs == own) {
        assert!(Instant::now() < end, "no namespace");
        std::thread::sleep(Duration::from_millis(5));
    }
    run("umount", &[], &at.dir);
    signal(server, "-TERM");
    wait_for_end(server);
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert!(is_clean(&at.image));
    assert_eq!(ok("cat IMAGE /file", &at.image), "contents");
}

/// The image stays in use by the other mount, so `umount` must not wait for it.
#[test]
fn a_bind_mount_is_unmounted_by_itself() {
    let Some(at) = prepared_for_root() else { return };
    let bound = at.scratch.file("bound");
    fs::create_dir(&bound).unwrap();
    at.line("mount IMAGE DIR");
    run("mount", &["--bind", at.dir.to_str().unwrap()], &bound);
    ok(&format!("umount {}", bound.display()), &at.image);
    fs::write(at.dir.join("file"), "").unwrap();
    at.line("umount DIR");
    assert!(is_clean(&at.image));
}

/// A full host must not end the filesystem when the journal reaches a hole of the image, and `umount` must report what
/// was lost.
#[test]
fn a_full_host_is_reported_and_nothing_durable_is_lost() {
    let Some(at) = prepared_for_root() else { return };
    let Some(host) = SmallHost::new(at.scratch.file("host"), "48m") else { return };
    let image = host.0.join("a.img");
    ok("mkfs IMAGE -q --small --size 400M -l size=16m", &image);
    ok(&format!("mount -o commit=0 IMAGE {}", at.dir.display()), &image);
    fs::write(at.dir.join("before"), "contents").unwrap();
    File::open(at.dir.join("before")).unwrap().sync_all().unwrap();
    let mut junk = File::create(host.0.join("junk")).unwrap();
    while junk.write_all(&[1; 65536]).is_ok() {}
    let file = File::create(at.dir.join("too much")).unwrap();
    file.write_all_at(&vec![1; 4 << 20], 0).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(28));
    drop(file);
    // More than the part of the journal that was written before.
    for n in 0..200 {
        let path = at.dir.join(n.to_string());
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        File::open(&at.dir).unwrap().sync_all().unwrap();
    }
    let (code, message) = fails(&format!("umount {}", at.dir.display()), &image);
    assert!(code == 1 && message.contains("could not be closed") && message.contains("No space left"), "{message}");
    drop(junk);
    fs::remove_file(host.0.join("junk")).unwrap();
    let names = ok("ls IMAGE", &image);
    assert!(names.contains("before") && names.lines().count() > 200, "{names}");
    ok("log replay IMAGE", &image);
    assert_eq!(ok("cat IMAGE /before", &image), "contents");
    let copy = at.scratch.file("copy.img");
    fs::copy(&image, &copy).unwrap();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&copy);
    }
}

/// Without its space, the journal could not be written on a full host.
#[test]
fn the_journal_has_its_space_on_the_host() {
    use std::os::unix::fs::MetadataExt;
    let scratch = xfskit_testkit::scratch();
    let [image, copy] = ["a.img", "copy.img"].map(|name| scratch.file(name));
    let taken = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    let journal = 16 << 20;
    ok("mkfs IMAGE -q --small --size 400M -l size=16m", &image);
    assert!(taken(&image) >= journal, "{}", taken(&image));
    xfskit_testkit::copy_image(&image, &copy);
    assert!(taken(&copy) < journal);
    ok("ls IMAGE /", &copy);
    assert!(taken(&copy) < journal, "a reader takes nothing");
    ok("mkdir IMAGE /dir", &copy);
    assert!(taken(&copy) >= journal, "{}", taken(&copy));
}

/// Opening an image for writing must not need space for the whole journal.
#[test]
fn files_can_be_removed_from_an_image_on_a_full_host() {
    let Some(at) = prepared_for_root() else { return };
    let host = SmallHost(at.scratch.file("host"));
    fs::create_dir(&host.0).unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs"], &host.0);
    let image = host.0.join("a.img");
    ok("mkfs IMAGE -q --small --size 400M -l size=48m", &image);
    (0..9).for_each(|number| drop(ok(&format!("mkdir IMAGE /dir{number}"), &image)));
    let punch = |image: &Path| {
        // The holes that a copy with `cp --sparse=always` makes in the journal.
        let copy = at.scratch.file("sparse");
        xfskit_testkit::copy_image(image, &copy);
        fs::remove_file(image).unwrap();
        // The kernel gives up the rules of a process's sandbox, and with them the file, a moment after its end.
        let free = || rustix::fs::statvfs(&host.0).unwrap().f_bavail * 4096;
        let end = Instant::now() + Duration::from_secs(10);
        while free() < 63 << 20 {
            assert!(Instant::now() < end, "{} bytes are free", free());
            std::thread::sleep(Duration::from_millis(5));
        }
        xfskit_testkit::copy_image(&copy, image);
    };
    punch(&image);
    let mut junk = File::create(host.0.join("junk")).unwrap();
    while junk.write_all(&[1; 65536]).is_ok() {}
    let (_, message) = fails("rm -r IMAGE /dir0", &image);
    assert!(message.contains("free up to 48 MiB on the host"), "{message}");
    junk.set_len(junk.metadata().unwrap().len() - (5 << 20)).unwrap();
    let removed = xfskit(words("rm -r IMAGE /dir0 /dir1", &image));
    let message = String::from_utf8_lossy(&removed.stderr);
    assert!(removed.status.success() && message.contains("the next 3 MiB of the journal"), "{message}");
    let (_, message) = fails(&format!("mount IMAGE {}", at.dir.display()), &image);
    assert!(message.contains("free up to 48 MiB on the host"), "a mount is to last: {message}");
    // There is room for some of these; the others are errors.
    let names: String = (0..30_000).map(|number| format!(" /many-directories-{number:05}")).collect();
    let (_, message) = fails(&format!("mkdir IMAGE{names}"), &image);
    assert!(message.contains("No space left"), "{message}");
    fs::remove_file(host.0.join("junk")).unwrap();
    drop(junk);
    let found = ok("ls IMAGE", &image);
    let made: Vec<_> = found.lines().filter(|line| line.starts_with("many")).collect();
    let expected: Vec<_> = (0..made.len()).map(|number| format!("many-directories-{number:05}")).collect();
    assert!(made == expected && (1000..30_000).contains(&made.len()), "{} directories", made.len());
    assert!(!ok("ls IMAGE", &image).contains("dir0"));
    ok("log replay IMAGE", &image);
    ok("rm -r IMAGE /dir2", &image);
    if let Some(reference) = reference() {
        let copy = at.scratch.file("copy.img");
        fs::copy(&image, &copy).unwrap();
        reference.repair_finds_nothing(&copy);
    }
}

/// Open files of the caller would keep another filesystem busy, or a pipe from ending.
#[test]
fn a_server_keeps_nothing_of_its_callers_open() {
    let Some(at) = prepared() else { return };
    let file = at.scratch.file("of the caller");
    fs::write(&file, "").unwrap();
    let script = "exec 7<\"$1\" 23>>\"$1\"; exec \"$2\" mount \"$3\" \"$4\"";
    let mut caller = Command::new("bash");
    caller.args(["-c", script, "bash"]).arg(&file).arg(env!("CARGO_BIN_EXE_xfskit")).arg(&at.image).arg(&at.dir);
    assert!(caller.status().unwrap().success());
    let open = fs::read_dir(format!("/proc/{}/fd", server_of(&at.image))).unwrap();
    let open: Vec<_> = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect();
    assert!(open.contains(&at.image.canonicalize().unwrap()) && !open.contains(&file), "{open:?}");
    at.line("umount DIR");
}

/// A failed commit in the background is logged, counted and reported by umount.
#[test]
fn a_commit_that_fails_is_reported_at_once_and_by_umount() {
    let Some(at) = prepared_for_root() else { return };
    let mut kernel_log = File::options().read(true).custom_flags(0o4000).open("/dev/kmsg").unwrap();
    at.line("mount -o commit=1,errortag=logiodone IMAGE DIR");
    fs::write(at.dir.join("file"), "").unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let stats: serde_json::Value = serde_json::from_str(&at.line("--json stats DIR")).unwrap();
        if stats["commits"]["failed"].as_u64().unwrap() > 0 {
            assert!(!stats["commits"]["last_error"].as_str().unwrap().is_empty(), "{stats}");
            break;
        }
        assert!(Instant::now() < end, "{stats}");
        std::thread::sleep(Duration::from_millis(50));
    }
    if Path::new("/dev/log").exists() {
        skip("the message is where syslogd writes it");
    } else {
        let mut record = vec![0; 8192];
        loop {
            let count = match kernel_log.read(&mut record) {
                // Records were overwritten meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => continue,
                other => other.expect("the message in the kernel's log"),
            };
            let text = String::from_utf8_lossy(&record[..count]).into_owned();
            if text.contains("xfskit[") && text.contains(at.image.to_str().unwrap()) {
                assert!(text.starts_with("27,"), "{text}");
                break;
            }
        }
    }
    let (code, message) = fails(&format!("umount {}", at.dir.display()), &at.image);
    assert!(code == 1 && message.contains("could not be closed"), "{message}");
}

/// No commit by time says so here.
#[test]
fn the_figures_say_that_the_filesystem_is_shut_down() {
    let Some(at) = prepared() else { return };
    at.line("mount -o commit=0,errortag=logiodone IMAGE DIR");
    let shut_down = || {
        let stats: serde_json::Value = serde_json::from_str(&at.line("--json stats DIR")).unwrap();
        stats["state"]["shut_down"].as_str().unwrap().to_owned()
    };
    assert_eq!(shut_down(), "");
    let file = File::create(at.dir.join("file")).unwrap();
    file.sync_all().unwrap_err();
    assert!(shut_down().contains("shut down"), "{}", shut_down());
    drop(file);
    fails(&format!("umount {}", at.dir.display()), &at.image);
}

/// The kernel makes no request for these options but the writes'; the server must not leave them to the next commit.
#[test]
fn what_is_done_to_directories_is_durable_at_once_where_that_is_asked_for() {
    for (options, is_durable) in [("dirsync", true), ("sync", true), ("async,commit=0", false), ("sync,async", false)] {
        let Some(at) = prepared() else { return };
        at.line(&format!("mount -o {options} IMAGE DIR"));
        fs::create_dir(at.dir.join("old")).unwrap();
        File::open(at.dir.join("old")).unwrap().sync_all().unwrap();
        fs::rename(at.dir.join("old"), at.dir.join("new")).unwrap();
        let server = server_of(&at.image);
        signal(server, "-KILL");
        wait_for_end(server);
        fails(&format!("umount {}", at.dir.display()), &at.image);
        let expected = if is_durable { "new\n" } else { "old\n" };
        assert_eq!(ok("ls IMAGE", &at.image), expected, "{options}");
    }
}

/// As with mount(8).
#[test]
fn of_options_that_contradict_each_other_the_last_one_counts() {
    for (options, is_read_only) in [("ro,rw", false), ("rw,ro", true), ("ro,rw,ro", true)] {
        let Some(at) = prepared() else { return };
        at.line(&format!("mount -o {options} IMAGE DIR"));
        assert_eq!(fs::write(at.dir.join("file"), "contents").is_err(), is_read_only, "{options}");
        at.line("umount DIR");
    }
}

#[test]
fn umount_says_that_a_server_died() {
    let Some(at) = prepared() else { return };
    at.line("mount IMAGE DIR");
    let server = server_of(&at.image);
    signal(server, "-KILL");
    wait_for_end(server);
    let (code, message) = fails(&format!("umount {}", at.dir.display()), &at.image);
    assert!(code == 1 && message.contains("without closing"), "{code} {message}");
    at.line("mount IMAGE DIR");
    at.line("umount DIR");
}

/// The source of a mount may be a pipe by now, whose open would wait for its other end. For another user's mount, that
/// user can put the pipe there.
#[test]
fn a_pipe_in_the_place_of_an_image_blocks_no_command() {
    let Some(at) = prepared() else { return };
    for dies in [false, true] {
        at.line("mount IMAGE DIR");
        let server = server_of(&at.image);
        let moved = at.scratch.file("moved.img");
        fs::rename(&at.image, &moved).unwrap();
        run("mkfifo", &["-m", "666"], &at.image);
        if dies {
            signal(server, "-KILL");
            wait_for_end(server);
        }
        let mut umount = Command::new("timeout");
        umount.args(["20", env!("CARGO_BIN_EXE_xfskit"), "umount"]).arg(&at.dir);
        let status = umount.stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(i32::from(dies)));
        fs::remove_file(&at.image).unwrap();
        fs::rename(&moved, &at.image).unwrap();
    }
}

/// A backslash and a comma in the name of an image must not begin options.
#[test]
fn an_images_name_is_no_list_of_options() {
    let Some(at) = prepared_for_root() else { return };
    let image = at.scratch.file(r"a\,suid,dev\040 b.img");
    fs::rename(&at.image, &image).unwrap();
    let options = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(at.dir.to_str().unwrap())).expect("a mount").to_owned();
        (line.split(' ').next().unwrap().to_owned(), line.split(' ').nth(3).unwrap().to_owned())
    };
    let expected = image.to_str().unwrap().replace('\\', r"\134").replace(' ', r"\040");
    ok(&format!("mount IMAGE {}", at.dir.display()), &image);
    let (source, list) = options();
    assert!(source == expected && list.contains("nosuid") && list.contains("nodev"), "{source} {list}");
    assert_eq!(xfskit(words("info IMAGE", &image)).status.code(), Some(4));
    ok(&format!("umount {}", at.dir.display()), &image);
    assert!(is_clean(&image));
    // With fusermount3, as for an ordinary user.
    ok(&format!("mount -o auto_unmount,allow_other IMAGE {}", at.dir.display()), &image);
    let (source, list) = options();
    assert!(source == expected && list.contains("nosuid") && list.contains("nodev"), "{source} {list}");
    ok(&format!("umount {}", at.dir.display()), &image);
    assert!(is_clean(&image));
}

/// Runs a script in a mount namespace that has the helpers of mount(8) and umount(8).
fn with_helpers(script: &str, image: &Path, dir: &Path) {
    let setup = "set -e; mount -t tmpfs tmpfs /usr/sbin; mkdir -p /run/mount; mount -t tmpfs tmpfs /run/mount
        for helper in mount umount; do ln -s $3 /usr/sbin/$helper.fuse.xfskit; done\n";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &format!("{setup}{script}"), "sh"]);
    let output = command.arg(image).arg(dir).arg(env!("CARGO_BIN_EXE_xfskit")).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// umount(8) would not look for the helper when root gives a whole path.
#[test]
fn umount_by_root_waits_for_the_image() {
    let Some(at) = prepared_for_root() else { return };
    let script = "for n in 1 2 3 4; do
            mount -t fuse.xfskit -o commit=0 $1 $2
            mkdir $2/$n; (cd $2/$n; for f in $(seq 2000); do : > $f; done)
            umount $2; flock -n $1 true
        done
        ! grep -s . /run/mount/utab
        mount -t fuse.xfskit $1 $2; grep -q uhelper /run/mount/utab; $3 umount $2
        ! grep -s . /run/mount/utab";
    with_helpers(script, &at.image, &at.dir);
    assert!(is_clean(&at.image));
}

/// `mount -o remount` changes the flags.
#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let Some(at) = prepared_for_root() else { return };
    let script = "mount -t fuse.xfskit $1 $2; : > $2/a
        mount -o remount,ro $2; ! touch $2/b; findmnt -no OPTIONS $2 | grep ^ro,nosuid,nodev
        mount -o remount,rw,noexec $2; : > $2/c; findmnt -no OPTIONS $2 | grep ^rw,nosuid,nodev,noexec
        umount $2; mount -t fuse.xfskit -o ro $1 $2; ! mount -o remount,rw $2; umount $2";
    with_helpers(script, &at.image, &at.dir);
    assert_eq!(ok("ls IMAGE", &at.image), "a\nc\n");
}

/// A server that ends after the mount would leave a mount without a server.
#[test]
fn a_log_file_that_cannot_be_made_is_met_before_the_mount() {
    let Some(at) = prepared_for_root() else { return };
    let output = xfskit(words(&format!("mount --log-file /nodir/log IMAGE {}", at.dir.display()), &at.image));
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/nodir/log"), "{output:?}");
    assert!(fs::read_dir(&at.dir).unwrap().next().is_none());
    assert!(is_clean(&at.image));
}

/// After a failed fallocate, ext4 keeps the blocks that it has found. They must be freed, and the image must not
/// change.
#[test]
fn a_host_without_space_for_the_journal_is_left_as_it_is() {
    let scratch = xfskit_testkit::scratch();
    let [image, ext4, dir] = ["a.img", "ext4", "host"].map(|name| scratch.file(name));
    ok("mkfs IMAGE -q --small --size 400M -l size=64m", &image);
    fs::create_dir(&dir).unwrap();
    File::create(&ext4).unwrap().set_len(64 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&ext4).output().is_ok_and(|made| made.status.success());
    let mounted = made && Command::new("mount").args(["-o", "loop"]).args([&ext4, &dir]).status().unwrap().success();
    if !mounted {
        return xfskit_testkit::skip("no ext4 can be mounted here");
    }
    let copy = dir.join("a.img");
    xfskit_testkit::copy_image(&image, &copy);
    rustix::fs::syncfs(File::open(&dir).unwrap()).unwrap();
    let free = || rustix::fs::statvfs(&dir).unwrap().f_bfree;
    let (before, bytes) = (free(), fs::read(&copy).unwrap());
    // A copy may take long, so it needs space for the whole journal.
    let target = format!("{}:/f", copy.display());
    let copied = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(["cp", "/etc/hostname", &target]).output().unwrap();
    let (code, message) = (copied.status.code().unwrap(), String::from_utf8(copied.stderr).unwrap());
    let (after, same) = (free(), fs::read(&copy).unwrap() == bytes);
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert!(code == 1 && message.contains("No space left"), "{code} {message}");
    assert!(same && after >= before, "{after} blocks are free of {before}, same {same}");
}

/// What a remount makes read-only is durable, as on the kernel's mount: a shutdown has no later step. What is not the
/// root of a mount of xfskit is left alone.
#[test]
fn what_becomes_read_only_is_durable_and_other_mounts_do_not_change() {
    let Some(at) = common::mounts::prepared_for_root() else { return };
    at.line("mount -o commit=0 IMAGE DIR");
    fs::create_dir(at.dir.join("folder")).unwrap();
    fs::write(at.dir.join("file"), "contents").unwrap();
    let folder = at.dir.join("folder");
    let mount = |line: &[&str]| Command::new("mount").args(line).arg(&folder).status().unwrap().success();
    let is_mounted = mount(&["-t", "tmpfs", "foreign"]);
    let line = format!("mount -o remount,ro IMAGE {}", folder.display());
    let refused = is_mounted.then(|| fails(&line, &at.image));
    let is_writable = fs::write(folder.join("new"), "").is_ok();
    if is_mounted {
        assert!(Command::new("umount").arg(&folder).status().unwrap().success());
    }
    at.line("mount -o remount,ro IMAGE DIR");
    // As the power leaves it.
    let copy = at.scratch.file("copy.img");
    xfskit_testkit::copy_image(&at.image, &copy);
    at.line("umount DIR");
    assert_eq!(common::ok("cat IMAGE /file", &copy), "contents");
    assert!(is_writable);
    if let Some((_, message)) = refused {
        assert!(message.contains("not the root of an xfskit mount"), "{message}");
    }
}

/// A read-only device makes the kernel refuse an image that needs recovery.
fn needs_no_recovery(at: &common::mounts::Prepared, image: &std::path::Path) {
    let Some(device) = common::loops::Loop::attach(&["-r"], image) else { return };
    let dir = at.scratch.file("kernel");
    let _ = fs::create_dir(&dir);
    let mount = |line: &[&str]| Command::new("mount").args(line).arg(&device.0).arg(&dir).output().unwrap();
    let mounted = mount(&["-i", "-t", "xfs", "-o", "ro,nouuid"]);
    drop(Command::new("umount").arg(&dir).output());
    let error = String::from_utf8_lossy(&mounted.stderr);
    assert!(mounted.status.success() || error.contains("unknown filesystem"), "{error}");
}

/// What is copied of an image whose mount is read-only by then is whole. It becomes writable again, and a crash then is
/// recovered.
#[test]
fn a_remount_ends_the_journal_clean_and_it_goes_on() {
    let Some(at) = common::mounts::prepared_for_root() else { return };
    at.line("mount -o commit=0 IMAGE DIR");
    let copy = at.scratch.file("copy.img");
    for round in 0..40 {
        fs::create_dir(at.dir.join(format!("folder{round}"))).unwrap();
        for file in 0..30 {
            fs::write(at.dir.join(format!("folder{round}/{file}")), "contents").unwrap();
        }
        at.line("mount -o remount,ro IMAGE DIR");
        if round % 10 == 0 {
            xfskit_testkit::copy_image(&at.image, &copy);
            needs_no_recovery(&at, &copy);
            fs::remove_file(&copy).unwrap();
        }
        at.line("mount -o remount,rw IMAGE DIR");
    }
    fs::write(at.dir.join("last"), "contents").unwrap();
    fs::File::open(at.dir.join("last")).unwrap().sync_all().unwrap();
    xfskit_testkit::copy_image(&at.image, &copy);
    at.line("umount DIR");
    for image in [&copy, &at.image] {
        let Some(kernel) = xfskit_testkit::kernel_mount(image) else { return };
        assert_eq!(fs::read_to_string(kernel.path().join("last")).unwrap(), "contents");
        assert_eq!(fs::read_dir(kernel.path().join("folder39")).unwrap().count(), 30);
        kernel.unmount();
        if let Some(reference) = xfskit_testkit::reference() {
            reference.repair_finds_nothing(image);
        }
    }
}

/// A remount with another image, or with an unknown option, is refused.
#[test]
fn a_remount_is_for_what_is_mounted_and_for_options_that_exist() {
    let Some(at) = common::mounts::prepared_for_root() else { return };
    let other = at.scratch.file("other.img");
    common::ok("mkfs IMAGE --size 512M -q", &other);
    at.line("mount IMAGE DIR");
    let dir = at.dir.to_str().unwrap();
    let refused = [
        (fails(&format!("mount -o remount,foo IMAGE {dir}"), &at.image), "foo"),
        (fails(&format!("mount -o remount,ro IMAGE {dir}"), &other), at.image.to_str().unwrap()),
    ];
    let is_writable = fs::write(at.dir.join("new"), "").is_ok();
    at.line("mount -o remount,ro,wsync IMAGE DIR");
    let is_read_only = fs::write(at.dir.join("newer"), "").is_err();
    at.line("umount DIR");
    for ((code, message), part) in refused {
        assert!(code == 2 && message.contains(part), "{code} {message}");
    }
    assert!(is_writable && is_read_only);
}
