//! What the tests of disks share: the programs that make and judge them.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice};
use xfskit_disk::{DiskError, Disks, Operand, Unnamed};

/// Whether a program is installed; if it is not, says that the test is skipped.
pub fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        xfskit_testkit::skip(&format!("no {program}"));
    }
    found
}

/// Whether this is root, who may use loop devices; if not, says that the test is skipped.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        xfskit_testkit::skip("loop devices need root");
    }
    is_root
}

/// Runs a program with `input`, and returns what it prints.
pub fn run_with(program: &str, args: &[&str], input: &str) -> String {
    use std::io::Write;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs a program, and returns what it prints.
pub fn run(program: &str, args: &[&str]) -> String {
    run_with(program, args, "")
}

/// A sparse file.
pub fn file(path: &Path, size_bytes: u64) {
    std::fs::File::create(path).unwrap().set_len(size_bytes).unwrap();
}

/// Opens an operand of existing files.
pub fn open(operand: &str, access: Access) -> Result<Disks, DiskError> {
    Disks::open(&Operand::decode(operand.as_ref(), Path::exists)?, access)
}

/// The device that an operand names.
pub fn choose(operand: &str, access: Access) -> Result<Arc<dyn BlockDevice>, DiskError> {
    open(operand, access)?.choose(Unnamed::OnlyXfs)
}

/// Makes a loop device of a file, which is detached when this is dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn new(path: &Path, sector_bytes: u32) -> Self {
        let (path, sector) = (path.to_str().unwrap(), sector_bytes.to_string());
        Self(run("losetup", &["-f", "--show", "-b", &sector, path]).trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// The first bytes of an XFS filesystem with a label and a UUID.
pub fn superblock(label: &str, uuid: u8) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..4].copy_from_slice(b"XFSB");
    bytes[32..48].fill(uuid);
    bytes[108..108 + label.len()].copy_from_slice(label.as_bytes());
    bytes
}

/// Writes into a file.
pub fn put(path: &Path, offset: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}
