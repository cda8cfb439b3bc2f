//! Images that are in use by the kernel, by the disk server of a virtual machine, or by a server of xfskit behind a
//! loop device. Writers are refused and get the name of the user; readers are warned.

mod common;

use common::loops::Loop;
use common::{fails, image, ok, words, xfskit};
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch, skip, tree};

const WRITERS: [&str; 6] = [
    "mkdir IMAGE /new",
    "write IMAGE /file",
    "rm -r IMAGE /dir",
    "mkfs -f -q IMAGE",
    "mkfs -f -q --size 600M IMAGE",
    "log replay IMAGE",
];

fn all_writers_are_refused(image: &Path, by: &str) {
    for line in WRITERS {
        let (code, message) = fails(line, image);
        assert!(code == 4 && message.contains("in use") && message.contains(by), "{line}: {code} {message}");
    }
}

fn warning(image: &Path) -> String {
    let output = xfskit(words("ls IMAGE", image));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip(&format!("this machine has no {program}"));
    }
    found
}

/// A writer must not replay the journal of an image that the kernel has mounted.
#[test]
fn what_the_kernel_has_mounted_is_not_written() {
    let scratch = scratch();
    let image = image(&scratch);
    let Some(kernel) = kernel_mount(&image) else { return };
    for n in 0..50 {
        fs::create_dir(kernel.path().join(n.to_string())).unwrap();
    }
    let before = tree(kernel.path());
    all_writers_are_refused(&image, kernel.path().to_str().unwrap());
    let dir = scratch.file("mount");
    fs::create_dir(&dir).unwrap();
    let (code, message) = fails(&format!("mount IMAGE {}", dir.display()), &image);
    assert!(code == 4 && message.contains("/dev/loop"), "{message}");
    // By another name, too.
    let link = scratch.file("link.img");
    fs::hard_link(&image, &link).unwrap();
    all_writers_are_refused(&link, "loop");
    let warned = warning(&image);
    assert!(warned.contains("/dev/loop") && warned.contains("warning"), "{warned}");
    assert_eq!(tree(kernel.path()), before);
    kernel.unmount();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
    assert_eq!(warning(&image), "");
    ok("mkdir IMAGE /new", &image);
}

/// The kernel detaches a loop device a moment after the unmount, but a script continues at once.
#[test]
fn an_image_is_free_as_soon_as_it_is_unmounted() {
    let scratch = scratch();
    let image = image(&scratch);
    for n in 0..5 {
        let Some(kernel) = kernel_mount(&image) else { return };
        let umount = Command::new("umount").arg(kernel.path()).status().unwrap();
        assert!(umount.success());
        ok(&format!("mkdir IMAGE /{n}"), &image);
    }
}

#[test]
fn a_loop_device_and_the_file_below_it_are_one_image() {
    let scratch = scratch();
    let (image, dir) = (image(&scratch), scratch.file("mount"));
    fs::create_dir(&dir).unwrap();
    let Some(device) = Loop::attach(&[], &image) else { return };
    all_writers_are_refused(&image, &format!("losetup -d {}", device.0.display()));
    assert!(warning(&image).contains("loop device"));
    // The loop device itself is not in use yet.
    ok("mkdir IMAGE /by-the-device", &device.0);
    assert_eq!(warning(&device.0), "");
    drop(device);
    if fs::File::open("/dev/fuse").is_err() {
        return skip("this machine has no /dev/fuse");
    }
    ok(&format!("mount IMAGE {}", dir.display()), &image);
    let Some(device) = Loop::attach(&[], &image) else { return };
    let (code, message) = fails("mkdir IMAGE /new", &device.0);
    assert!(code == 4 && message.contains("xfskit (process "), "{message}");
    assert_eq!(fails("ls IMAGE", &device.0).0, 4);
    drop(device);
    ok(&format!("umount {}", dir.display()), &image);
    // A read-only loop device cannot change the image, so readers are not warned.
    let Some(_device) = Loop::attach(&["--read-only"], &image) else { return };
    assert_eq!(warning(&image), "");
    assert_eq!(fails("mkdir IMAGE /new", &image).0, 4);
}

/// The name by which the loop device was attached may be gone.
#[test]
fn a_loop_device_is_found_without_the_name_of_its_file() {
    let scratch = scratch();
    let image = image(&scratch);
    let other = scratch.file("other.img");
    fs::hard_link(&image, &other).unwrap();
    let Some(device) = Loop::attach(&[], &other) else { return };
    fs::remove_file(&other).unwrap();
    all_writers_are_refused(&image, &format!("losetup -d {}", device.0.display()));
    assert!(warning(&image).contains("loop device"));
    // The file that has the name now is another one.
    ok("mkfs IMAGE --size 512M -q", &other);
    ok("mkdir IMAGE /new", &other);
    assert_eq!(warning(&other), "");
    ok("mkdir IMAGE /by-the-device", &device.0);
    drop(device);
    ok("mkdir IMAGE /new", &image);
}

#[test]
fn a_loop_device_is_found_whose_file_lies_in_another_mount_namespace() {
    let scratch = scratch();
    let image = image(&scratch);
    let dir = scratch.file("dir");
    fs::create_dir(&dir).unwrap();
    if !rustix::process::geteuid().is_root() {
        return skip("mount namespaces and loop devices need root");
    }
    let script = "mount --bind \"$1\" \"$2\" && exec losetup --find --show \"$2/a.img\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(scratch.path()).arg(&dir);
    let output = unshare.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let device = Loop(String::from_utf8(output.stdout).unwrap().trim().into());
    assert!(!dir.join("a.img").exists());
    all_writers_are_refused(&image, &format!("losetup -d {}", device.0.display()));
    // Both are on one file, which would be read while it is written.
    let (code, message) = fails(&format!("cp -f {} {}:/", image.display(), device.0.display()), &image);
    assert!(code != 0 && message.contains("into itself"), "{code} {message}");
}

#[test]
fn a_swap_file_is_not_made_an_image() {
    // Swap needs a filesystem with blocks.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let swap = dir.path().join("swap");
    fs::write(&swap, vec![0; 4 << 20]).unwrap();
    let run = |program: &str| Command::new(program).arg(&swap).output().is_ok_and(|output| output.status.success());
    if !rustix::process::geteuid().is_root() || !run("mkswap") || !run("swapon") {
        return skip("this machine swaps to no file");
    }
    let refused = xfskit(words("mkfs -f -q --small IMAGE", &swap));
    let large = xfskit(words("mkfs -f -q --size 400M IMAGE", &swap));
    assert!(run("swapoff"));
    assert!(!refused.status.success() && !large.status.success());
    assert_eq!(fs::metadata(&swap).unwrap().len(), 4 << 20);
}

struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn qemu_nbd(scratch: &Scratch, options: &[&str], image: &Path) -> Qemu {
    let socket = scratch.file("nbd.sock");
    let mut command = Command::new("qemu-nbd");
    command.args(options).args(["-t", "-f", "raw", "-k"]).arg(&socket).arg(image).stdin(Stdio::null());
    let server = Qemu(command.spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(20);
    // The server listens before it opens the image, and sends a greeting afterwards.
    let is_greeted = || UnixStream::connect(&socket).is_ok_and(|mut stream| stream.read_exact(&mut [0; 8]).is_ok());
    while !is_greeted() {
        assert!(Instant::now() < end, "qemu-nbd does not serve");
        std::thread::sleep(Duration::from_millis(5));
    }
    server
}

fn qemu_io(arguments: &[&str], image: &Path) -> (bool, String) {
    let output = Command::new("qemu-io").args(["-f", "raw"]).args(arguments).arg(image).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn neither_side_writes_what_a_virtual_machine_or_a_server_of_ours_has() {
    if !has("qemu-nbd") || !has("qemu-io") {
        return;
    }
    let scratch = scratch();
    let (image, dir) = (image(&scratch), scratch.file("mount"));
    let server = qemu_nbd(&scratch, &[], &image);
    all_writers_are_refused(&image, &format!("qemu-nbd (process {})", server.0.id()));
    let warned = warning(&image);
    assert!(warned.contains("qemu-nbd (process"), "{warned}");
    drop(server);
    drop(fs::remove_file(scratch.file("nbd.sock")));
    // A server that only reads does not disturb readers.
    let server = qemu_nbd(&scratch, &["-r"], &image);
    assert_eq!(warning(&image), "");
    assert_eq!(fails("mkdir IMAGE /new", &image).0, 4);
    drop(server);
    assert!(qemu_io(&["-c", "read 0 512"], &image).0);
    if fs::File::open("/dev/fuse").is_err() {
        return skip("this machine has no /dev/fuse");
    }
    fs::create_dir(&dir).unwrap();
    ok(&format!("mount IMAGE {}", dir.display()), &image);
    for arguments in [["-c", "write 0 512"], ["-c", "read 0 512"]] {
        let (done, text) = qemu_io(&arguments, &image);
        assert!(!done && text.contains("lock"), "{text}");
    }
    ok(&format!("umount {}", dir.display()), &image);
    ok(&format!("mount -o ro IMAGE {}", dir.display()), &image);
    assert!(!qemu_io(&["-c", "write 0 512"], &image).0);
    let (done, text) = qemu_io(&["-r", "-c", "read 0 512"], &image);
    assert!(done, "{text}");
    ok(&format!("umount {}", dir.display()), &image);
    assert!(qemu_io(&["-c", "write 1M 512"], &image).0);
}

/// Such a device can be opened for writing, but refuses each write, the journal's first, when the image is closed.
#[test]
fn a_read_only_block_device_is_no_place_to_write() {
    let scratch = scratch();
    let image = image(&scratch);
    let attached = Command::new("losetup").args(["-f", "--show"]).arg(&image).output().unwrap();
    if !attached.status.success() {
        return skip("this machine has no loop device left");
    }
    let device = PathBuf::from(String::from_utf8(attached.stdout).unwrap().trim());
    let run = |program: &str, option: &str| Command::new(program).arg(option).arg(&device).status().unwrap().success();
    let is_set = run("blockdev", "--setro");
    let results: Vec<_> = WRITERS.iter().map(|line| fails(line, &device)).collect();
    let shown = xfskit(words("ls IMAGE /", &device));
    // Done before anything may fail, since other tests get the same device later.
    let is_clear = run("blockdev", "--setrw");
    let written = xfskit(words("mkdir IMAGE /new", &device));
    assert!(run("losetup", "-d") && is_set && is_clear);
    assert!(written.status.success() && written.stderr.is_empty(), "{written:?}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(results.iter().all(|(code, message)| *code == 6 && message.contains("read-only")), "{results:?}");
    assert_eq!(shown, "");
}

/// Both loop devices are over the same file, but the kernel does not check that when it mounts one of them.
#[test]
fn what_the_kernel_has_by_another_loop_device_is_not_written() {
    let scratch = scratch();
    let image = image(&scratch);
    let Some(kernel) = kernel_mount(&image) else { return };
    let attached = Command::new("losetup").args(["-f", "--show"]).arg(&image).output().unwrap();
    let device = PathBuf::from(String::from_utf8(attached.stdout).unwrap().trim());
    let refused = WRITERS.map(|line| fails(line, &device));
    assert!(Command::new("losetup").arg("-d").arg(&device).status().unwrap().success());
    kernel.unmount();
    assert!(refused.iter().all(|(code, message)| *code == 4 && message.contains("in use")), "{refused:?}");
}

/// The search must follow any number of loop devices, also those over block devices.
#[test]
fn what_the_kernel_has_by_a_loop_device_over_a_block_device_is_not_written() {
    let scratch = scratch();
    let (image, dir) = (image(&scratch), scratch.file("mount"));
    fs::create_dir(&dir).unwrap();
    let Some(lowest) = Loop::attach(&[], &image) else { return };
    let Some(middle) = Loop::attach(&[], &lowest.0) else { return };
    let Some(highest) = Loop::attach(&[], &middle.0) else { return };
    // Loop devices that are not in use do not lock out writers.
    for device in [&lowest, &middle, &highest] {
        ok("touch IMAGE /early", &device.0);
    }
    for (mounted, others) in
        [(&highest, [&lowest, &middle]), (&middle, [&lowest, &highest]), (&lowest, [&middle, &highest])]
    {
        let mount = Command::new("mount").args(["-i", "-t", "xfs"]).arg(&mounted.0).arg(&dir).status().unwrap();
        if !mount.success() {
            return skip("this kernel mounts no XFS");
        }
        let source = scratch.file("source.img");
        drop(fs::remove_file(&source));
        ok("mkfs IMAGE --size 512M -q", &source);
        let mut wrong = Vec::new();
        for other in others.map(|other| &other.0) {
            let lines = WRITERS.map(str::to_owned).into_iter();
            let export = format!("export {} -f -o IMAGE", source.display());
            for line in lines.chain(["touch IMAGE /z".into(), export]) {
                let (code, message) = fails(&line, other);
                if code != 4 || !message.contains("in use") || !message.contains(dir.to_str().unwrap()) {
                    wrong.push((line, code, message));
                }
            }
        }
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Their exit code must not be the one of a refusal that -f would override.
#[test]
fn a_target_in_use_has_the_exit_code_of_an_image_in_use() {
    let scratch = scratch();
    let (target, source, dir) = (image(&scratch), scratch.file("source.img"), scratch.file("mount"));
    fs::create_dir(&dir).unwrap();
    ok("mkfs IMAGE --size 512M -q", &source);
    assert!(common::with_input("write IMAGE /file", &source, b"contents").status.success());
    let lines = [
        format!("export {} / -f -o {}", source.display(), target.display()),
        format!("cp -f -T {}:/file {}", source.display(), target.display()),
    ];
    let all_refused = |by: &[&str]| {
        for line in &lines {
            let (code, message) = fails(line, &target);
            assert!(code == 4 && by.iter().all(|by| message.contains(by)), "{line}: {code} {message}");
        }
    };
    if let Some(kernel) = kernel_mount(&target) {
        all_refused(&["in use", kernel.path().to_str().unwrap()]);
        kernel.unmount();
    }
    if has("qemu-nbd") {
        let server = qemu_nbd(&scratch, &[], &target);
        all_refused(&["in use", &format!("qemu-nbd (process {})", server.0.id())]);
    }
    if fs::File::open("/dev/fuse").is_err() {
        return skip("this machine has no /dev/fuse");
    }
    ok(&format!("mount IMAGE {}", dir.display()), &target);
    all_refused(&["in use by xfskit (process ", &format!("mounted on {}", dir.display()), "xfskit umount"]);
    ok(&format!("umount {}", dir.display()), &target);
}

/// A command that prints nothing of an image must not warn about it before it is refused.
#[test]
fn only_what_shows_something_warns_of_those_who_may_change_it() {
    let scratch = scratch();
    let image = image(&scratch);
    let Some(kernel) = kernel_mount(&image) else { return };
    assert!(warning(&image).contains("what is shown here may be wrong"));
    let from = scratch.file("file");
    fs::write(&from, "contents").unwrap();
    let copy = format!("cp {} {}:/", from.display(), image.display());
    for line in WRITERS.into_iter().chain([copy.as_str(), "touch IMAGE /new"]) {
        let (code, message) = fails(line, &image);
        assert!(code == 4 && !message.contains("warning"), "{line}: {message}");
    }
    kernel.unmount();
    // A copy from a truncated image prints its warning once.
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(500 << 20).unwrap();
    let copy = format!("cp -r {}:/ {}", image.display(), scratch.file("out").display());
    let output = xfskit(words(&copy, &image));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.matches("warning").count(), 1, "{message}");
}
