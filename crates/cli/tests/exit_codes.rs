//! The exit codes in `--help`, case by case.

mod common;

use common::mounts::SmallHost;
use common::{fails, ok, words};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xfskit_testkit::{Scratch, scratch};

/// Small images, one of them with an external journal, and truncated copies of them.
struct Images {
    scratch: Scratch,
}

impl Images {
    fn new() -> Self {
        let images = Self { scratch: scratch() };
        ok("mkfs -q --small --size 64M IMAGE", &images.at("whole.img"));
        ok(&images.line("cp PLACE/garbage PLACE/whole.img:/file"), Path::new(""));
        images
    }

    fn at(&self, name: &str) -> PathBuf {
        let path = self.scratch.file(name);
        if path.exists() {
            return path;
        }
        match name {
            "garbage" => fs::write(&path, "no tar archive, and no image. ".repeat(1000)).unwrap(),
            "cut.img" => self.cut("whole.img", &path, 34 << 20),
            "log" => File::create(&path).unwrap().set_len(16 << 20).unwrap(),
            "external.img" => {
                let log = self.at("log");
                ok(&format!("mkfs -q --small --size 64M IMAGE -l logdev={}", log.display()), &path);
            }
            "cut-log" => self.cut("log", &path, 1 << 20),
            _ => {}
        }
        path
    }

    fn cut(&self, whole: &str, path: &Path, bytes: u64) {
        fs::copy(self.at(whole), path).unwrap();
        File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }

    /// A line in which `PLACE/NAME` is one of these files.
    fn line(&self, line: &str) -> String {
        for word in line.split([' ', ':']).filter_map(|word| word.strip_prefix("PLACE/")) {
            self.at(word.split('/').next().unwrap());
        }
        line.replace("PLACE", self.scratch.path().to_str().unwrap())
    }
}

#[test]
fn each_case_has_the_documented_code() {
    let images = Images::new();
    fs::create_dir(images.at("dir")).unwrap();
    let cases = [
        ("ls PLACE/whole.img /none", 1),
        ("umount PLACE/dir", 1),
        ("stats PLACE/dir", 1),
        ("mkfs -q PLACE/whole.img", 2),
        ("ls --none", 2),
        ("ls PLACE/external.img", 2),
        ("mkdir PLACE/external.img /new", 2),
        ("log print PLACE/external.img", 2),
        ("check PLACE/external.img", 16),
        ("check --none", 16),
        ("ls PLACE/garbage", 3),
        ("ls PLACE/cut.img", 3),
        ("log print PLACE/cut.img", 3),
        ("log replay PLACE/cut.img", 3),
        ("check PLACE/cut.img", 1),
        ("ls PLACE/external.img --logdev PLACE/cut-log", 3),
        ("mkdir PLACE/external.img --logdev PLACE/cut-log /new", 3),
        ("log print PLACE/external.img --logdev PLACE/cut-log", 3),
        ("check PLACE/external.img --logdev PLACE/cut-log", 1),
        ("mkfs -q --small PLACE/new.img --from PLACE/garbage", 5),
        ("mkfs -q --small --size 64M PLACE/new.img --from PLACE/garbage", 5),
        ("ls PLACE/none.img", 6),
        ("ls PLACE/external.img --logdev PLACE/none", 6),
        ("ls PLACE/dir", 6),
        ("check PLACE/none.img", 8),
        ("mount PLACE/whole.img PLACE/none", 8),
    ];
    for (line, expected) in cases {
        let (code, message) = fails(&images.line(line), Path::new(""));
        assert_eq!(code, expected, "{line}: {message}");
        assert!(!message.is_empty() || line.starts_with("check"), "{line}");
    }
}

/// This holds for commands that write an image as for all others.
#[test]
fn no_space_on_the_host_is_a_failed_operation() {
    let images = Images::new();
    let Some(host) = SmallHost::new(images.scratch.file("host"), "20m") else { return };
    let large = images.scratch.file("large");
    let bytes: Vec<u8> = (0..30_000_000_u32).map(|n| (n % 251) as u8 + 1).collect();
    fs::write(&large, bytes).unwrap();
    ok(&images.line("cp PLACE/large PLACE/whole.img:/large"), Path::new(""));
    let tar = File::create(images.scratch.file("large.tar")).unwrap();
    let mut archive = Command::new("tar");
    assert!(archive.args(["-c", "-C"]).arg(images.scratch.path()).arg("large").stdout(tar).status().unwrap().success());
    ok("mkfs -q --small --size 64M IMAGE", &host.0.join("a.img"));
    for line in [
        "cp PLACE/large PLACE/host/a.img:/",
        "write --offset 100 PLACE/host/a.img /new",
        "mkfs -q --small --size 64M --from PLACE/large.tar PLACE/host/b.img",
        "cp PLACE/whole.img:/large PLACE/host/",
        "export PLACE/whole.img -o PLACE/host/x.tar",
    ] {
        let line = images.line(line);
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        command.args(words(&line, Path::new(""))).stdin(File::open(&large).unwrap());
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {message}");
        assert!(message.contains("No space left"), "{line}: {message}");
    }
}

/// An error of writing help must be reported.
#[test]
fn help_that_cannot_be_written_is_no_success() {
    let to_full = |line: &str| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        command.args(words(line, Path::new(""))).stdout(full).output().unwrap()
    };
    for (line, expected) in [("--help", 1), ("--version", 1), ("ls --help", 1), ("check --help", 8), ("help", 1)] {
        let output = to_full(line);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{line}: {message}");
        assert!(message.contains("No space left"), "{line}: {message}");
    }
}

/// The signals that a shell shows as 128 plus the number.
#[test]
fn signals_are_the_status_of_what_they_end() {
    let images = Images::new();
    let image = images.at("whole.img");
    let mut cat = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    let mut cat = cat.arg("cat").arg(&image).args(["/file"; 100]).stdout(Stdio::piped()).spawn().unwrap();
    drop(cat.stdout.take());
    assert_eq!(cat.wait().unwrap().signal(), Some(nix::libc::SIGPIPE));
    let lock = File::open(&image).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for (name, number) in [("-INT", nix::libc::SIGINT), ("-TERM", nix::libc::SIGTERM), ("-HUP", nix::libc::SIGHUP)] {
        // What started the tests may ignore a signal (nohup, a shell without job control), and so would the command.
        let mut waiting = Command::new("env");
        waiting.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_xfskit"), "--wait", "60", "mkdir"]);
        let mut waiting = waiting.arg(&image).arg("/new").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(Command::new("kill").args([name, &waiting.id().to_string()]).status().unwrap().success());
        assert_eq!(waiting.wait().unwrap().signal(), Some(number));
    }
    let help = ok("--help", Path::new(""));
    assert!(help.contains("130, 143, 129, 141"), "{help}");
}

/// "No space left on device" alone could refer to the image or the host.
#[test]
fn standard_output_is_named_where_it_cannot_be_written() {
    let scratch = scratch();
    let image = common::image(&scratch);
    assert!(common::with_input("write IMAGE /file", &image, b"contents").status.success());
    common::ok("xattr set IMAGE /file user.name value", &image);
    let lines = [
        "ls IMAGE",
        "ls -l --json IMAGE",
        "tree IMAGE",
        "find IMAGE",
        "stat IMAGE /file",
        "cat IMAGE /file",
        "export IMAGE",
        "info IMAGE",
        "df IMAGE",
        "du IMAGE",
        "xattr list IMAGE /file",
        "xattr get IMAGE /file user.name",
        "xattr dump IMAGE /file",
        "parents IMAGE /file",
        "log print IMAGE",
        "completions bash",
    ];
    for line in lines {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let output = command.args(common::words(line, &image)).stdout(full).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && message.contains("standard output"), "{line}: {message}");
    }
}
