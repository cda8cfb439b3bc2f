//! Two commands, or a command and a mount, that use one image at the same time.

mod common;

use common::{fails, image, ok, with_input, words};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{kernel_mount, scratch};

fn start(line: &str, image: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(words(line, image)).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a process has a file open whose name ends in `end`.
fn wait_for_open(child: &Child, end: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    let is_it = |path: PathBuf| fs::read_link(path).is_ok_and(|name| name.to_string_lossy().ends_with(end));
    loop {
        let files = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        if files.map(|file| file.path()).any(is_it) {
            return;
        }
        assert!(Instant::now() < until, "{end} is never opened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn archive(dir: &Path) -> Vec<u8> {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("first"), "contents").unwrap();
    Command::new("tar").arg("-c").arg("-C").arg(dir).arg(".").output().unwrap().stdout
}

fn finish(mut child: Child, input: &[u8]) -> (Option<i32>, String) {
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_image_that_is_being_filled_is_refused_to_others() {
    let scratch = scratch();
    let (image, dir) = (image(&scratch), scratch.file("mount"));
    let archive = archive(&scratch.file("source"));
    fs::create_dir(&dir).unwrap();
    let first = start("mkfs -f -q --size 400M --from - IMAGE", &image);
    wait_for_open(&first, "a.img");
    wait_for_open(&first, "(deleted)");
    let mount = format!("mount IMAGE {}", dir.display());
    for line in ["mkfs -f -q IMAGE", "mkfs -f -q --size 400M IMAGE", "mkdir IMAGE /new", "ls IMAGE", &mount] {
        let (code, message) = fails(line, &image);
        assert!(code == 4 && message.contains("in use"), "{line}: {code} {message}");
    }
    assert_eq!(finish(first, &archive).0, Some(0));
    assert_eq!(ok("ls IMAGE", &image), "first\n");
    assert!(ok("check IMAGE", &image).contains("no faults"));
}

#[test]
fn an_image_that_was_made_meanwhile_is_not_replaced() {
    let scratch = scratch();
    let (image, archive) = (scratch.file("a.img"), archive(&scratch.file("source")));
    let first = start("mkfs -f -q --size 400M --from - IMAGE", &image);
    wait_for_open(&first, "(deleted)");
    ok("mkfs -q --size 300M IMAGE", &image);
    ok("mkdir IMAGE /second", &image);
    let (code, message) = finish(first, &archive);
    assert!(code != Some(0) && message.contains("exists"), "{code:?} {message}");
    assert_eq!(ok("ls IMAGE", &image), "second\n");
}

/// The kernel takes no lock, so commands check for it again before they rename the new file.
#[test]
fn an_image_that_the_kernel_mounts_meanwhile_is_not_replaced() {
    let scratch = scratch();
    let (source, target) = (image(&scratch), scratch.file("target.img"));
    ok("mkfs -q --size 300M IMAGE", &target);
    let archive = archive(&scratch.file("source"));
    let first = start("mkfs -f -q --size 400M --from - IMAGE", &target);
    wait_for_open(&first, "(deleted)");
    let Some(kernel) = kernel_mount(&target) else { return drop(finish(first, &archive)) };
    let (code, message) = finish(first, &archive);
    assert!(code == Some(4) && message.contains("mounted on"), "{code:?} {message}");
    let export = begin_export(&source, &target);
    assert_eq!(goes_on(export).0, Some(4));
    fs::write(kernel.path().join("file"), "of the mount").unwrap();
    kernel.unmount();
    assert_eq!(ok("cat IMAGE /file", &target), "of the mount");
}

/// Starts an export, and stops the process while it writes.
fn begin_export(source: &Path, target: &Path) -> Child {
    let _ = with_input("write IMAGE /large", source, &vec![7; 200 << 20]);
    let child = start(&format!("export -f IMAGE -o {}", target.display()), source);
    let stopped = Instant::now() + Duration::from_secs(20);
    // If the target is refused, the export ends before it can be stopped.
    while child_file(&child).is_none_or(|length| length == 0) && is_alive(&child) {
        assert!(Instant::now() < stopped, "the export does not begin");
    }
    let _ = kill_process(Pid::from_child(&child), Signal::STOP);
    child
}

fn is_alive(child: &Child) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The current size of the file without a name.
fn child_file(child: &Child) -> Option<u64> {
    let files = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
    let mut unnamed = files
        .map(|file| file.path())
        .filter(|path| fs::read_link(path).is_ok_and(|name| name.to_string_lossy().ends_with("(deleted)")));
    fs::metadata(unnamed.next()?).ok().map(|data| data.len())
}

fn goes_on(child: Child) -> (Option<i32>, String) {
    let _ = kill_process(Pid::from_child(&child), Signal::CONT);
    finish_quietly(child)
}

fn finish_quietly(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The target must be locked, so that no server mounts it and then writes to a file without a name.
#[test]
fn the_target_of_an_export_is_not_mounted_meanwhile() {
    let scratch = scratch();
    let (source, target, dir) = (image(&scratch), scratch.file("target.img"), scratch.file("mount"));
    fs::create_dir(&dir).unwrap();
    ok("mkfs -q --size 300M IMAGE", &target);
    let export = begin_export(&source, &target);
    assert!(is_alive(&export));
    for line in [&format!("mount IMAGE {}", dir.display()), "mkdir IMAGE /new", "mkfs -f -q IMAGE"] {
        let (code, message) = fails(line, &target);
        assert!(code == 4 && message.contains("in use"), "{line}: {code} {message}");
    }
    let (code, message) = goes_on(export);
    assert_eq!(code, Some(0), "{message}");
    let listed = Command::new("tar").arg("-tf").arg(&target).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("large"), "{listed:?}");
}
