//! Mistakes in typing that must not destroy anything.

mod common;

use common::{image, ok, xfskit};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch};

/// Runs a line in which `DIR` stands for the folder; returns its exit code and its message.
fn run(line: &str, scratch: &Scratch) -> (i32, String) {
    let dir = scratch.path().display().to_string();
    let output = xfskit(line.split(' ').map(|word| word.replace("DIR", &dir)));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("panicked"), "{message}");
    (output.status.code().unwrap(), message)
}

fn succeeds(line: &str, scratch: &Scratch) {
    let (code, message) = run(line, scratch);
    assert_eq!(code, 0, "{line}: {message}");
}

fn refused(line: &str, part: &str, scratch: &Scratch) {
    let (code, message) = run(line, scratch);
    // An image in use has an exit code of its own.
    let expected = if part == "in use" { 4 } else { 2 };
    assert!(code == expected && message.contains(part), "{line}: {code} {message}");
}

/// The properties that change when a file is replaced or written to.
fn version(file: &Path) -> (u64, u64, i64, i64) {
    let data = fs::metadata(file).unwrap();
    (data.ino(), data.len(), data.mtime(), data.mtime_nsec())
}

#[test]
fn rm_and_mv_take_no_dots_for_names() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE -p /etc/conf /usr/share /d", &image);
    ok("touch IMAGE /etc/passwd /usr/share/file", &image);
    let tree = ok("tree IMAGE", &image);
    let before = version(&image);
    for path in ["/etc/..", "/.", "/./", "/..", "/usr/..", "/usr/share/../", "/etc/.", "/", "//", "/etc/../.."] {
        refused(&format!("rm -r DIR/a.img /d {path}"), "never removed", &scratch);
        refused(&format!("rm -rf DIR/a.img {path}"), "never removed", &scratch);
        refused(&format!("mv DIR/a.img {path} /d"), "never removed", &scratch);
        refused(&format!("mv -T DIR/a.img /d {path}"), "never removed", &scratch);
    }
    assert_eq!(version(&image), before, "something was touched");
    assert_eq!(ok("tree IMAGE", &image), tree);
    // A path through dots that ends in a name is accepted.
    succeeds("rm -r DIR/a.img /etc/../usr", &scratch);
    assert!(!ok("tree IMAGE", &image).contains("share"));
}

#[test]
fn what_can_be_done_is_done_and_every_error_is_reported() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /a /b /c", &image);
    let (code, message) = run("rm DIR/a.img /a /missing /b /none /c", &scratch);
    assert!(code == 1 && message.contains("/missing") && message.contains("/none"), "{message}");
    assert_eq!(ok("ls IMAGE", &image), "");
    ok("mkdir IMAGE /d", &image);
    ok("touch IMAGE /d/a /z", &image);
    let (code, message) = run("chmod -R DIR/a.img 700 /missing /d /z", &scratch);
    assert!(code == 1 && message.contains("/missing"), "{message}");
    assert!(ok("stat IMAGE /d/a", &image).contains("0700") && ok("stat IMAGE /z", &image).contains("0700"));
    fs::write(scratch.file("dump"), "# file: none\nuser.a=\"1\"\n\n# file: z\nuser.a=\"1\"\n\n").unwrap();
    let (code, message) = run("xattr restore DIR/a.img DIR/dump", &scratch);
    assert!(code == 1 && message.contains("none"), "{code} {message}");
    assert_eq!(ok("xattr get IMAGE /z user.a", &image), "1");
}

#[test]
fn a_forgotten_colon_replaces_no_image() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkfs IMAGE --size 300M -q", &scratch.file("b.img"));
    fs::write(scratch.file("F"), "a file").unwrap();
    succeeds("cp DIR/F DIR/a.img:/f", &scratch);
    let before = (version(&image), version(&scratch.file("b.img")));
    refused("cp DIR/F DIR/a.img", "no path is within an image", &scratch);
    refused("cp -f DIR/F DIR/G", "no path is within an image", &scratch);
    refused("cp DIR/a.img:/f DIR/b.img", "XFS image", &scratch);
    refused("cp DIR/a.img:/f DIR/a.img", "the image that is copied from", &scratch);
    refused("cp -f DIR/a.img:/f DIR/a.img", "the image that is copied from", &scratch);
    refused("cp DIR/F DIR/a.img:rel", "a.img:/rel", &scratch);
    refused("cp DIR/a.img:rel DIR/b.img:/x", "a.img:/rel", &scratch);
    refused("cp DIR/a.img DIR/a.img:/", "into itself", &scratch);
    refused("cp DIR/a.img:/f DIR/a.img:/", "the same file", &scratch);
    refused("cp DIR/a.img:/f DIR/a.img:/f", "the same file", &scratch);
    refused("export DIR/a.img / -o DIR/b.img", "XFS image", &scratch);
    refused("export DIR/b.img / -o DIR/b.img", "the image that is exported", &scratch);
    refused("export -f DIR/b.img / -o DIR/b.img", "the image that is exported", &scratch);
    refused("export DIR/a.img / -f", "--output", &scratch);
    // Within a tree as well.
    fs::create_dir(scratch.file("out")).unwrap();
    fs::copy(scratch.file("b.img"), scratch.file("out/f")).unwrap();
    refused("cp -r DIR/a.img:/. DIR/out", "XFS image", &scratch);
    assert_eq!((version(&image), version(&scratch.file("b.img"))), before, "an image was touched");
    assert!(!scratch.file("a.img:rel").exists());
    // A file in use is not replaced even with the flag.
    let held = fs::File::open(scratch.file("b.img")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    refused("cp -f DIR/a.img:/f DIR/b.img", "in use", &scratch);
    drop(held);
    succeeds("cp -f DIR/a.img:/f DIR/b.img", &scratch);
    assert_eq!(fs::read_to_string(scratch.file("b.img")).unwrap(), "a file");
    succeeds("export -f DIR/a.img / -o DIR/out/f", &scratch);
    // A file that is not an image is replaced, and a file whose name has a colon is found by that name.
    succeeds("cp DIR/a.img:/f DIR/F", &scratch);
    fs::write(scratch.file("a.img:rel"), "named so").unwrap();
    succeeds("cp DIR/a.img:rel DIR/a.img:/colon", &scratch);
    assert_eq!(ok("cat IMAGE /colon", &image), "named so");
}

#[test]
fn a_copy_replaces_no_device_of_the_host() {
    if !common::trees::is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let null = scratch.file("null");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &null,
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    ok("touch IMAGE /null", &image);
    refused("cp DIR/a.img:/null DIR/null", "device", &scratch);
    assert!(!fs::metadata(&null).unwrap().is_file());
}

/// As cp(1), which writes into a pipe and through a link to a device, a copy leaves them where they are.
#[test]
fn a_copy_replaces_no_pipe_of_the_host_and_no_link_to_what_is_no_file() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /f", &image);
    assert!(Command::new("mkfifo").arg(scratch.file("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/null", scratch.file("null")).unwrap();
    std::os::unix::fs::symlink("/proc/self/fd/1", scratch.file("stdout")).unwrap();
    std::os::unix::fs::symlink("F", scratch.file("link")).unwrap();
    for name in ["pipe", "null", "stdout"] {
        let before = fs::symlink_metadata(scratch.file(name)).unwrap().file_type();
        refused(&format!("cp DIR/a.img:/f DIR/{name}"), "xfskit cat", &scratch);
        assert_eq!(fs::symlink_metadata(scratch.file(name)).unwrap().file_type(), before);
    }
    succeeds("cp DIR/a.img:/f DIR/link", &scratch);
}

/// Room of 20 bytes is a percent sign or a letter that was forgotten.
#[test]
fn room_without_a_unit_is_not_taken_for_bytes() {
    let scratch = scratch();
    fs::create_dir(scratch.file("tree")).unwrap();
    for number in ["1", "20", "1048575"] {
        let line = format!("mkfs -q --small --from DIR/tree --free {number} DIR/a.img");
        refused(&line, &format!("{number}% of the image, or {number}M"), &scratch);
        assert!(!scratch.file("a.img").exists());
    }
    for room in ["0", "20%", "1048576", "20k"] {
        succeeds(&format!("mkfs -q -f --small --size auto --from DIR/tree --free {room} DIR/a.img"), &scratch);
    }
}

/// The engine, as the kernel, would set the nearest time instead.
#[test]
fn a_date_that_the_image_cannot_hold_is_refused() {
    let scratch = scratch();
    for (options, last) in [("", "2486-07-02T20:20:24"), (" -m bigtime=0", "2038-01-19T03:14:07")] {
        succeeds(&format!("mkfs -q -f --small --size 64M{options} DIR/a.img"), &scratch);
        let (image, bytes) = (scratch.file("a.img"), fs::read(scratch.file("a.img")).unwrap());
        for date in ["1800-01-01", "1901-12-13T20:45:51Z", "2500-01-01", "@99999999999"] {
            let line = format!("touch -d {date} DIR/a.img /file");
            refused(&line, "holds times from 1901-12-13T20:45:52", &scratch);
            refused(&line, last, &scratch);
        }
        assert!(fs::read(&image).unwrap() == bytes, "the image was changed");
        for date in ["1901-12-13T20:45:52Z", &format!("{last}Z"), "2026-01-31"] {
            succeeds(&format!("touch -d {date} DIR/a.img /{date}"), &scratch);
            let shown: serde_json::Value =
                serde_json::from_str(&ok(&format!("--json stat IMAGE /{date}"), &image)).unwrap();
            assert!(shown["mtime"].as_str().unwrap().starts_with(&date.replace('Z', "")), "{date}: {shown}");
        }
        // The kernel has the same limits.
        if let Some(mount) = kernel_mount(&image) {
            for (wanted, has) in [("1800-01-01", "1901-12-13T20:45:52"), ("2600-01-01", last)] {
                let path = mount.path().join("kernels");
                assert!(Command::new("touch").args(["-d", wanted]).arg(&path).status().unwrap().success());
                let has: i64 = {
                    let line = ["-u", "-d", has, "+%s"];
                    let seconds = Command::new("date").args(line).output().unwrap().stdout;
                    String::from_utf8(seconds).unwrap().trim().parse().unwrap()
                };
                assert_eq!(fs::metadata(&path).unwrap().mtime(), has, "{wanted}");
            }
        }
    }
}

#[test]
fn nothing_is_mounted_over_the_root() {
    let scratch = scratch();
    ok("touch IMAGE /f", &image(&scratch));
    for root in ["/", "/.", "//"] {
        refused(&format!("mount DIR/a.img {root}"), "no mount point", &scratch);
    }
}

#[test]
fn mkfs_overwrites_nothing_that_is_not_empty() {
    let scratch = scratch();
    let file = scratch.file("a.img");
    for (offset, bytes) in [(0, &b"\x1f\x8b\x08\0gzip"[..]), (257, b"ustar"), (200 << 20, b"x"), (310 << 20, b"y")] {
        let archive = fs::File::create(&file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&archive, bytes, offset).unwrap();
        archive.set_len(320 << 20).unwrap();
        drop(archive);
        let before = version(&file);
        refused("mkfs -q DIR/a.img", "not empty", &scratch);
        refused("mkfs -q DIR/a.img --size 400M", "not empty", &scratch);
        fs::create_dir_all(scratch.file("empty")).unwrap();
        refused("mkfs -q DIR/a.img --from DIR/empty", "not empty", &scratch);
        assert_eq!(version(&file), before);
    }
    succeeds("mkfs -q -f DIR/a.img", &scratch);
    refused("mkfs -q DIR/a.img", "XFS image", &scratch);
    // Zeros may be overwritten, but the file is not cut.
    fs::File::create(&file).unwrap().set_len(400 << 20).unwrap();
    refused("mkfs -q DIR/a.img --size 300M", "cut", &scratch);
    refused("mkfs -q DIR/a.img --size 300M --from DIR/empty", "cut", &scratch);
    assert_eq!(fs::metadata(&file).unwrap().len(), 400 << 20);
    succeeds("mkfs -q DIR/a.img --size 500M", &scratch);
    succeeds("mkfs -q -f DIR/a.img --size 300M", &scratch);
    assert_eq!(fs::metadata(&file).unwrap().len(), 300 << 20);
}

#[test]
fn mkfs_makes_no_file_among_the_devices() {
    let scratch = scratch();
    fs::create_dir(scratch.file("tree")).unwrap();
    let made = Path::new("/dev/xfskit-no-such-device");
    for line in [
        "mkfs -q --size 300M /dev/xfskit-no-such-device",
        "mkfs -q -f --size 300M /dev/../dev/xfskit-no-such-device",
        "mkfs -q --from DIR/tree /dev/xfskit-no-such-device",
        "mkfs -q --from DIR/tree --size 300M /dev/xfskit-no-such-device",
        "mkfs -q --size 300M /dev/mapper/xfskit-no-such-device",
    ] {
        refused(line, "there is no such device", &scratch);
        assert!(!made.exists());
    }
    let program = scratch.file("mkfs.xfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_xfskit"), &program).unwrap();
    let option = format!("file=1,size=300m,name={}", made.display());
    let output = std::process::Command::new(program).args(["-q", "-d", &option]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("there is no such device"), "{message}");
    assert!(!made.exists());
}

/// Makes an image with a dirty journal.
fn dirty(scratch: &Scratch) -> std::path::PathBuf {
    let image = image(scratch);
    ok("mkdir IMAGE /d", &image);
    let large = vec![1; 40 << 20];
    fs::write(scratch.file("large"), large).unwrap();
    // Kills a second process as soon as its journal is not empty.
    for wait in 1..200 {
        let tree = scratch.file("tree");
        if wait == 1 {
            fs::create_dir(&tree).unwrap();
            (0..3000).for_each(|n| fs::write(tree.join(n.to_string()), "x".repeat(2000)).unwrap());
        }
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_xfskit"))
            .args(["cp", "-r", "-T"])
            .arg(&tree)
            .arg(format!("{}:/d", image.display()))
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait % 20 * 5));
        child.kill().unwrap();
        child.wait().unwrap();
        if !ok("log print IMAGE", &image).contains("clean") {
            return image;
        }
    }
    panic!("the journal never stayed dirty");
}

/// A command that fails has not replayed the journal.
#[test]
fn a_command_that_fails_leaves_the_journal_as_it_is() {
    let scratch = scratch();
    let image = dirty(&scratch);
    fs::write(scratch.file("F"), "x").unwrap();
    fs::create_dir(scratch.file("folder")).unwrap();
    let before = version(&image);
    for line in [
        "cp DIR/missing DIR/a.img:/x",
        "cp DIR/folder DIR/a.img:/x",
        "cp DIR/F DIR/a.img:/none/x",
        "cp DIR/a.img:/none DIR/a.img:/x",
        "cp -r DIR/a.img:/d DIR/a.img:/d",
        "rm DIR/a.img /none",
        "rm DIR/a.img /d",
        "mv DIR/a.img /none /x",
        "ln DIR/a.img /none /x",
        "mkdir DIR/a.img /d",
        "mkdir DIR/a.img /none/d",
        "chmod DIR/a.img 700 /none",
        "touch DIR/a.img /none/x",
        "write DIR/a.img /d",
        "clone DIR/a.img /none /x",
        "xattr rm DIR/a.img /d user.none",
        "mount DIR/a.img DIR/none",
        "mount DIR/a.img DIR/F",
    ] {
        let (code, message) = run(line, &scratch);
        assert!(code != 0, "{line}: {message}");
        assert_eq!(version(&image), before, "{line} replayed the journal");
    }
    // One of several operands succeeds.
    let (code, message) = run("mkdir DIR/a.img /none/x /made", &scratch);
    assert!(code == 1 && message.matches("/none/x").count() == 1, "{message}");
    assert!(ok("ls IMAGE", &image).contains("made"));
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// Owner and permissions of fstab, the owner of its directory, and whether fstab has each attribute: `selinux`,
/// `capability`, `source`.
type OfFstab = ((u32, u32, u32), u32, bool, bool, bool);

/// What the kernel finds, and the owner of the new file.
fn look_at_fstab(image: &Path) -> Option<(OfFstab, Option<u32>)> {
    let kernel = kernel_mount(image)?;
    let ids = |name: &str| {
        let data = fs::metadata(kernel.path().join(name)).unwrap();
        (data.uid(), data.gid(), data.mode() & 0o7777)
    };
    let fstab = kernel.path().join("etc/fstab");
    assert_eq!(fs::read_to_string(&fstab).unwrap(), "fixed");
    let has = |name: &str| rustix::fs::getxattr(&fstab, name, &mut [0; 100][..]).is_ok();
    let found =
        (ids("etc/fstab"), ids("etc").0, has("security.selinux"), has("security.capability"), has("user.source"));
    let new = kernel.path().join("etc/new").exists().then(|| ids("etc/new").0);
    kernel.unmount();
    Some((found, new))
}

/// `cp` replaces only contents, as cp(1) does: an existing file keeps its owner, permissions and attributes.
#[test]
fn a_copy_over_a_file_replaces_its_contents_alone() {
    if !common::trees::is_root() {
        return;
    }
    let scratch = scratch();
    let image = image(&scratch);
    let tree = scratch.file("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("fstab"), "fixed").unwrap();
    fs::write(tree.join("new"), "new").unwrap();
    for path in [tree.join("fstab"), tree.join("new"), tree.clone()] {
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
        rustix::fs::setxattr(&path, "user.source", b"yes", rustix::fs::XattrFlags::empty()).unwrap();
    }
    let prepare = || {
        ok("rm IMAGE -rf /etc", &image);
        ok("mkdir IMAGE -m 750 /etc", &image);
        ok("chown IMAGE 3:4 /etc", &image);
        ok("touch IMAGE -m 640 /etc/fstab", &image);
        ok("chown IMAGE 12:34 /etc/fstab", &image);
        ok("xattr set IMAGE /etc/fstab security.selinux label", &image);
        ok("xattr set IMAGE /etc/fstab security.capability 0x0100000200000000000000000000000000000000", &image);
    };
    let kept = ((12, 34, 0o640), 3, true, false, false);
    for (line, expected) in [
        ("cp DIR/tree/fstab DIR/a.img:/etc/fstab", (kept, None)),
        ("cp DIR/tree/fstab DIR/a.img:/etc", (kept, None)),
        ("cp -r DIR/tree/. DIR/a.img:/etc", (kept, Some(1000))),
        ("cp -rT DIR/tree DIR/a.img:/etc", (kept, Some(1000))),
        ("cp --owner 7 DIR/tree/fstab DIR/a.img:/etc", (((7, 34, 0o640), 3, true, false, false), None)),
        ("cp -p DIR/tree/fstab DIR/a.img:/etc", (((1000, 1000, 0o644), 3, false, false, true), None)),
        ("cp -aT DIR/tree DIR/a.img:/etc", (((1000, 1000, 0o644), 1000, false, false, true), Some(1000))),
    ] {
        prepare();
        succeeds(line, &scratch);
        let Some(found) = look_at_fstab(&image) else { return };
        assert_eq!(found, expected, "{line}");
    }
    // The same in the direction of the host.
    prepare();
    ok("rm IMAGE /etc/fstab", &image);
    assert!(common::with_input("write IMAGE /etc/fstab", &image, b"other").status.success());
    for (line, uid, dir_uid) in [
        ("cp DIR/a.img:/etc/fstab DIR/tree/fstab", 1000, 1000),
        ("cp -rT DIR/a.img:/etc DIR/tree", 1000, 1000),
        ("cp -aT DIR/a.img:/etc DIR/tree", 0, 3),
    ] {
        fs::write(tree.join("fstab"), "before").unwrap();
        succeeds(line, &scratch);
        let fstab = tree.join("fstab");
        assert_eq!(fs::read_to_string(&fstab).unwrap(), "other", "{line}");
        assert_eq!((fs::metadata(&fstab).unwrap().uid(), fs::metadata(&tree).unwrap().uid()), (uid, dir_uid), "{line}");
        let has_source = rustix::fs::getxattr(&fstab, "user.source", &mut [0; 100][..]).is_ok();
        assert_eq!(has_source, uid == 1000, "{line}");
    }
}

/// `-` is not a file of that name.
#[test]
fn errors_name_the_path_and_a_dash_is_standard_output() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /dir", &image);
    for (line, part) in [
        ("readlink IMAGE /dir", "/dir:"),
        ("ln IMAGE /dir /name", "/dir: it is a directory"),
        ("ln -f IMAGE /dir /name", "/dir: it is a directory"),
    ] {
        let (code, message) = common::fails(line, &image);
        assert!(code == 1 && message.contains(part), "{line}: {code} {message}");
    }
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xfskit"));
    let output =
        command.args(common::words("export IMAGE / -o -", &image)).current_dir(scratch.path()).output().unwrap();
    assert!(output.status.success() && output.stdout.windows(5).any(|bytes| bytes == b"ustar"));
    assert!(!scratch.file("-").exists());
}

/// Numbers and words for sizes that cannot be meant, each with what helps.
#[test]
fn sizes_and_counts_that_cannot_be_meant_are_refused_with_what_can() {
    let scratch = scratch();
    image(&scratch);
    refused("mkfs --size 299M DIR/new.img", "--small", &scratch);
    refused("mkfs --size auto DIR/new.img", "only with --from", &scratch);
    refused("mount -o errortag=roll:0 DIR/a.img DIR", "from 1 on", &scratch);
    assert!(!scratch.file("new.img").exists());
}
