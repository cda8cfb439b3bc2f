//! Commands that are killed in the middle: as the kernel sees it, each file has its old or its new contents. And
//! signals that ask for an end: the image is closed, and everything is complete.

mod common;

use common::{fails, image, ok};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, copy_image, kernel_mount, reference, scratch};

const FILES: usize = 1500;
const KILLS: u32 = 7;

/// Contents of a file, in one of two versions of different length.
fn contents(version: &str, number: usize) -> Vec<u8> {
    format!("{version} {number} ").repeat(if number.is_multiple_of(50) { 2000 } else { 3 }).into_bytes()
}

fn make_tree(root: &Path, version: &str) {
    fs::create_dir(root).unwrap();
    for number in 0..FILES {
        fs::write(root.join(number.to_string()), contents(version, number)).unwrap();
    }
}

/// Starts a command.
fn start(line: &[&str], input: Option<Vec<u8>>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(line).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::spawn(move || {
        // A reader that was killed is not a failure of the test.
        let _ = input.map(|input| stdin.write_all(&input));
    });
    child
}

/// Runs the command to its end once. Then kills it at several moments of that time, each on a new copy of the image.
/// `judge` gets the kernel's mount of the image, or a copy out of the image if the kernel cannot mount it.
fn kill_loop(image: &Path, line: &[&str], input: Option<&[u8]>, judge: impl Fn(&Path)) {
    let scratch = scratch();
    let victim = scratch.file("a.img");
    let line: Vec<String> = line.iter().map(|word| word.replace("IMAGE", victim.to_str().unwrap())).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    copy_image(image, &victim);
    let began = Instant::now();
    assert!(start(&line, input.map(<[u8]>::to_vec)).wait().unwrap().success(), "{line:?}");
    let mut whole = began.elapsed();
    let mut killed = 0;
    for moment in 1..=KILLS {
        fs::remove_file(&victim).unwrap();
        copy_image(image, &victim);
        let mut child = start(&line, input.map(<[u8]>::to_vec));
        std::thread::sleep(whole * moment / (KILLS + 1));
        child.kill().unwrap();
        if child.wait().unwrap().signal().is_some() {
            killed += 1;
        } else {
            // The command takes less time now than in the first run.
            whole = whole * 2 / 3;
        }
        let left = fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(left, 1, "{line:?} leaves files beside the image");
        look(&scratch, &victim, &judge);
    }
    println!("{line:?}: {killed} of {KILLS} kills came in time");
}

/// Shows `judge` the current contents of the image.
fn look(scratch: &Scratch, image: &Path, judge: &impl Fn(&Path)) {
    if let Some(kernel) = kernel_mount(image) {
        judge(kernel.path());
        kernel.unmount();
    } else {
        let out = scratch.file("out");
        ok(&format!("cp -r IMAGE:/ {}", out.display()).replace("IMAGE", image.to_str().unwrap()), image);
        judge(&out);
        fs::remove_dir_all(out).unwrap();
    }
}

/// Every file of the tree is complete: the old one or the new one.
fn judge_tree(root: &Path) {
    for number in 0..FILES {
        let found = fs::read(root.join("src").join(number.to_string())).unwrap();
        let is_whole = found == contents("old", number) || found == contents("a new one", number);
        assert!(
            is_whole,
            "file {number} has {} bytes: {:?}",
            found.len(),
            String::from_utf8_lossy(&found[..found.len().min(40)])
        );
    }
}

/// Makes an image with an old tree in `/src`, and the new tree on the host.
fn old_and_new(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (old, new) = (scratch.file("old"), scratch.file("new"));
    make_tree(&old, "old");
    make_tree(&new, "a new one");
    let image = scratch.file("base.img");
    ok(&format!("mkfs IMAGE --size 300M -q --from {}", scratch.path().join("old").display()), &image);
    ok("mkdir IMAGE /src", &image);
    let mut line = vec!["cp".to_owned(), "-r".into(), format!("{}/.", old.display())];
    line.push(format!("{}:/src", image.display()));
    assert!(common::xfskit(&line).status.success());
    (image, new)
}

#[test]
fn a_killed_copy_leaves_old_or_new_contents() {
    let scratch = scratch();
    let (image, new) = old_and_new(&scratch);
    kill_loop(&image, &["cp", "-r", "-T", new.to_str().unwrap(), "IMAGE:/src"], None, judge_tree);
}

#[test]
fn a_killed_write_leaves_old_or_new_contents() {
    let scratch = scratch();
    let image = image(&scratch);
    let old = b"what was there ".repeat(900_000);
    let new = b"what comes now, which is longer ".repeat(900_000);
    assert!(common::with_input("write IMAGE /file", &image, &old).status.success());
    kill_loop(&image, &["write", "IMAGE", "/file"], Some(&new), |root| {
        let found = fs::read(root.join("file")).unwrap();
        assert!(found == old || found == new, "{} bytes", found.len());
        assert_eq!(fs::read_dir(root).unwrap().count(), 1, "a temporary name stays");
    });
}

#[test]
fn a_killed_move_leaves_one_of_the_names() {
    let scratch = scratch();
    let image = image(&scratch);
    assert!(common::with_input("write IMAGE /from", &image, b"moves").status.success());
    assert!(common::with_input("write IMAGE /to", &image, b"goes").status.success());
    kill_loop(&image, &["mv", "IMAGE", "/from", "/to"], None, |root| {
        let read = |name: &str| fs::read_to_string(root.join(name)).ok();
        let found = (read("from"), read("to"));
        let expected = [(Some("moves".into()), Some("goes".into())), (None, Some("moves".into()))];
        assert!(expected.contains(&found), "{found:?}");
    });
}

#[test]
fn a_killed_restore_leaves_whole_files() {
    let scratch = scratch();
    let (image, _) = old_and_new(&scratch);
    let value = "v".repeat(2000);
    let block =
        |n: usize| format!("# file: src/{n}\nuser.first=\"{value}\"\nuser.second=\"{value}\"\nuser.third=\"3\"\n\n");
    let dump: String = (0..FILES).map(block).collect();
    kill_loop(&image, &["xattr", "restore", "IMAGE", "-"], Some(dump.as_bytes()), |root| {
        for number in 0..FILES {
            let names = rustix::fs::listxattr(root.join(format!("src/{number}")), &mut vec![0; 1000][..]).unwrap();
            assert!(names == 0 || names == b"user.first\0user.second\0user.third\0".len(), "file {number}: {names}");
        }
        judge_tree(root);
    });
}

#[test]
fn a_killed_mkfs_leaves_the_old_image_or_the_new_one() {
    let scratch = scratch();
    let (image, new) = old_and_new(&scratch);
    let line = ["mkfs", "IMAGE", "-q", "-f", "--size", "300M", "--from", new.to_str().unwrap()];
    kill_loop(&image, &line, None, |root| {
        if root.join("src").exists() {
            return judge_tree(root);
        }
        for number in 0..FILES {
            assert_eq!(fs::read(root.join(number.to_string())).unwrap(), contents("a new one", number));
        }
    });
}

fn interrupted(line: &[&str], after: Duration, signal: rustix::process::Signal) -> ExitStatus {
    let mut child = start(line, None);
    std::thread::sleep(after);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    child.wait().unwrap()
}

#[test]
fn a_signal_ends_a_copy_at_a_files_end_with_the_image_closed() {
    let scratch = scratch();
    let (image, new) = old_and_new(&scratch);
    let victim = scratch.file("a.img");
    let target = format!("{}:/src", victim.display());
    let line = ["cp", "-r", "-T", new.to_str().unwrap(), &target];
    let began = Instant::now();
    copy_image(&image, &victim);
    let copied = began.elapsed();
    assert!(start(&line, None).wait().unwrap().success());
    let whole = began.elapsed() - copied;
    let mut ended = 0;
    for (moment, signal) in [(2, rustix::process::Signal::INT), (3, rustix::process::Signal::TERM)] {
        fs::remove_file(&victim).unwrap();
        copy_image(&image, &victim);
        let status = interrupted(&line, whole * moment / 6, signal);
        ended += u32::from(status.signal() == Some(signal.as_raw()));
        assert!(status.success() || status.signal() == Some(signal.as_raw()), "{status}");
        assert!(ok("log print IMAGE", &victim).contains("clean"), "the journal is dirty");
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&victim);
        }
        assert!(!ok("ls IMAGE /src", &victim).contains(".xfskit"), "a temporary name stays");
        look(&scratch, &victim, &judge_tree);
    }
    println!("{ended} of 2 signals came in time");
    assert_eq!(fails("cat IMAGE /none", &victim).0, 1);
}

/// A pipe may stay silent for ever, and the image stays locked meanwhile.
#[test]
fn an_import_that_waits_for_its_input_ends_at_a_signal() {
    let scratch = scratch();
    let image = image(&scratch);
    for (name, number) in [("-INT", nix::libc::SIGINT), ("-TERM", nix::libc::SIGTERM)] {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_xfskit"), "import"]).arg(&image);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take();
        std::thread::sleep(Duration::from_millis(500));
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
        let end = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "it goes on waiting after {name}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        drop(input);
        ok("touch IMAGE /afterwards", &image);
    }
}
