//! Functions that run the command.
#![allow(dead_code)] // Each test uses a part.

pub mod disks;
pub mod layers;
pub mod loops;
pub mod mount_helper;
pub mod mounts;
pub mod pages;
pub mod trace;
pub mod trees;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use xfskit_testkit::Scratch;

/// The command with arguments.
pub fn xfskit<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(arguments).env("TZ", "UTC").stdin(Stdio::null()).output().unwrap()
}

/// The words of a line as arguments; `IMAGE` stands for the image.
pub fn words<'a>(line: &'a str, image: &'a Path) -> Vec<&'a OsStr> {
    line.split(' ').map(|word| if word == "IMAGE" { image.as_os_str() } else { OsStr::new(word) }).collect()
}

/// Runs a line that must succeed; returns its output.
pub fn ok(line: &str, image: &Path) -> String {
    let output = xfskit(words(line, image));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "xfskit {line}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a line that must fail; returns its exit code and its message.
pub fn fails(line: &str, image: &Path) -> (i32, String) {
    let output = xfskit(words(line, image));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains("panicked"), "{error}");
    (output.status.code().unwrap(), error)
}

/// Runs a line with input.
pub fn with_input(line: &str, image: &Path, input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(words(line, image)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// A new image of 512 MB.
pub fn image(scratch: &Scratch) -> PathBuf {
    let image = scratch.file("a.img");
    ok("mkfs IMAGE --size 512M -q", &image);
    image
}

/// The commands, and those of `xattr`, `log` and `admin`, as they are given.
pub fn commands() -> Vec<String> {
    let listed = |command: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(command.split_whitespace()).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        // The list of all commands is in groups.
        let (_, rest) = help.split_once("\nCommands:\n").or_else(|| help.split_once("\nImages:\n")).unwrap();
        let is_list = |line: &&str| !line.starts_with("Options");
        let names = rest.lines().take_while(is_list).filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (groups, mut found): (Vec<_>, Vec<_>) =
        listed("--help").into_iter().partition(|name| ["xattr", "log", "admin"].contains(&name.as_str()));
    for group in groups {
        found.extend(listed(&format!("{group} --help")).into_iter().map(|name| format!("{group} {name}")));
    }
    found.retain(|name| name.split(' ').next_back() != Some("help"));
    found
}
