//! A standard error that cannot be written, since its disk is full or its reader is gone: messages are lost, and
//! nothing else changes.

mod common;

use common::mounts::{prepared, signal};
use common::{image, ok, words};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_testkit::scratch;

/// A full device, and a pipe without a reader.
fn takes_nothing() -> [Stdio; 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    [File::options().write(true).open("/dev/full").unwrap().into(), writer.into()]
}

/// Makes the journal of an image dirty: opens it, changes it, syncs it and does not close it.
fn crash(image: &Path) {
    let device = FileDevice::open(image, Access::Write).unwrap();
    let filesystem = Volume::open(Arc::new(device), MountOptions::default()).unwrap();
    for number in 0..20 {
        let new = NewFile::file(0o644);
        filesystem.create(filesystem.root(), format!("{number}").as_bytes(), &new, &Caller::root()).unwrap();
    }
    filesystem.sync().unwrap();
}

/// A message that cannot be printed must not cause a panic.
#[test]
fn commands_keep_their_exit_codes() {
    let scratch = scratch();
    let image = image(&scratch);
    crash(&image);
    let lines = [
        ("ls IMAGE /", 0),
        ("ls IMAGE /none", 1),
        ("--nonsense", 2),
        ("rm IMAGE /", 2),
        ("ls /no-such-image /", 6),
        ("rm IMAGE /none /none.either", 1),
        ("mkdir IMAGE /new", 0),
    ];
    for (line, code) in lines {
        for stderr in takes_nothing() {
            let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
            let status = command.args(words(line, &image)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
            assert_eq!(status.status().unwrap().code(), Some(code), "{line}");
            if line.starts_with("mkdir") {
                ok("rm -r IMAGE /new", &image);
                crash_again(&image);
            }
        }
    }
}

/// Makes the journal dirty for the next command.
fn crash_again(image: &Path) {
    for number in 0..20 {
        ok(&format!("rm IMAGE /{number}"), image);
    }
    crash(image);
}

/// A message or a log entry that cannot be written must not end the server.
#[test]
fn a_server_in_the_foreground_goes_on() {
    for stderr in takes_nothing() {
        let Some(at) = prepared() else { return };
        let value = "a-value-that-lies-in-a-block-of-its-own.".repeat(20);
        ok("touch IMAGE /damaged", &at.image);
        ok(&format!("xattr set IMAGE /damaged user.name {value}"), &at.image);
        let mut bytes = fs::read(&at.image).unwrap();
        let found: Vec<_> = memfind(&bytes, value.as_bytes());
        found.iter().for_each(|&at| bytes[at] ^= 1);
        assert!(!found.is_empty());
        fs::write(&at.image, bytes).unwrap();
        crash(&at.image);
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let command = command.args(["mount", "-f"]).arg(&at.image).arg(&at.dir);
        let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !at.dir.join("1").exists() {
            assert!(server.try_wait().unwrap().is_none(), "the server ended");
            assert!(Instant::now() < end, "the mount does not appear");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(rustix::fs::getxattr(at.dir.join("damaged"), "user.name", &mut [0_u8; 4096]).is_err());
        fs::write(at.dir.join("new"), "written").unwrap();
        signal(server.id() as i32, "-TERM");
        assert_eq!(server.wait().unwrap().code(), Some(0));
        assert_eq!(ok("cat IMAGE /new", &at.image), "written");
    }
}

/// The offsets at which the bytes are found.
fn memfind(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let first = |at: &usize| bytes[*at] == wanted[0];
    (0..bytes.len() - wanted.len()).filter(first).filter(|at| bytes[*at..].starts_with(wanted)).collect()
}
