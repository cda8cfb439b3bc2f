//! Ioctls about the whole filesystem, as on the kernel's mount of the same image.

mod common;

use common::mounts::prepared_for_root;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use xfskit_testkit::{kernel_mount, skip};

/// Asks an ioctl of a path and prints the answer in hexadecimal, or the error: `PATH NUMBER DATA USER`.
const ASK: &str = r#"
import fcntl, os, sys
data = bytearray.fromhex(sys.argv[3])
file, user = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[4])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
try:
    fcntl.ioctl(file, int(sys.argv[2], 16), data, True)
    print(data.hex())
except OSError as error:
    print("error", error.errno)
"#;

const GET_LABEL: &str = "81009431";
const SET_LABEL: &str = "41009432";
const FITRIM: &str = "c0185879";

fn ask(path: &Path, number: &str, data: &str, user: u32) -> String {
    let mut command = Command::new("python3");
    let output = command.args(["-c", ASK]).arg(path).args([number, data, &user.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn zeros(bytes: usize) -> String {
    "00".repeat(bytes)
}

fn padded(label: &str) -> String {
    let hex: String = label.bytes().map(|byte| format!("{byte:02x}")).collect();
    hex + &zeros(256 - label.len())
}

/// Start, length and least length of a trim.
fn range(start: u64, length: u64, least: u64) -> String {
    [start, length, least].iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn programs_learn_what_they_learn_from_the_kernels_mount() {
    let Some(prepared) = prepared_for_root() else { return };
    if Command::new("python3").arg("-V").output().is_err() {
        return skip("this machine has no python3");
    }
    let questions = [("8100587e", 256), ("8070587c", 112), ("80705864", 112), (GET_LABEL, 256), ("80087601", 8)];
    let asked = |dir: &Path| questions.map(|(number, bytes)| ask(dir, number, &zeros(bytes), 0));
    let Some(kernel) = kernel_mount(&prepared.image) else { return };
    let expected = asked(kernel.path());
    kernel.unmount();
    prepared.line("mount -o allow_other IMAGE DIR");
    let found = asked(&prepared.dir);
    for ((question, expected), found) in questions.iter().zip(expected).zip(found) {
        assert_eq!(found, expected, "{question:?}");
    }
    let counts = ask(&prepared.dir, "80205871", &zeros(32), 0);
    assert_ne!(counts, zeros(32));
    // The label, by whom it may be set.
    std::os::unix::fs::chown(&prepared.dir, Some(0), Some(0)).unwrap();
    assert_eq!(ask(&prepared.dir, SET_LABEL, &padded("stranger"), 65_534), "error 1");
    assert_eq!(ask(&prepared.dir, SET_LABEL, &padded("much too long"), 0), "error 22");
    assert_eq!(ask(&prepared.dir, SET_LABEL, &padded("root"), 0), padded("root"));
    assert_eq!(ask(&prepared.dir, GET_LABEL, &zeros(256), 65_534), padded("root"));
    prepared.line("umount DIR");
    let Some(kernel) = kernel_mount(&prepared.image) else { return };
    assert_eq!(ask(kernel.path(), GET_LABEL, &zeros(256), 0), padded("root"));
    kernel.unmount();
}

#[test]
fn fstrim_gives_space_back_and_xfs_io_sets_the_label() {
    let Some(prepared) = prepared_for_root() else { return };
    if Command::new("python3").arg("-V").output().is_err() {
        return skip("this machine has no python3");
    }
    let taken = || prepared.image.metadata().unwrap().blocks() * 512;
    prepared.line("mount -o allow_other IMAGE DIR");
    let contents: Vec<u8> = (0..40_000_000u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(prepared.dir.join("big"), contents).unwrap();
    std::fs::File::open(prepared.dir.join("big")).unwrap().sync_all().unwrap();
    std::fs::remove_file(prepared.dir.join("big")).unwrap();
    let before = taken();
    assert_eq!(ask(&prepared.dir, FITRIM, &range(0, u64::MAX, 0), 65_534), "error 1");
    assert_eq!(ask(&prepared.dir, FITRIM, &range(1 << 40, u64::MAX, 0), 0), "error 22");
    let answer = ask(&prepared.dir, FITRIM, &range(0, 64 << 20, 0), 0);
    let bytes = u64::from_str_radix(&answer[16..32], 16).unwrap().swap_bytes();
    assert!(bytes > 0 && bytes <= 64 << 20, "{bytes}");
    let Ok(fstrim) = Command::new("fstrim").arg("-v").arg(&prepared.dir).output() else {
        return skip("this machine has no fstrim");
    };
    let said = succeeds(&fstrim);
    assert!(said.contains("trimmed") && taken() + (30 << 20) < before, "{said}: {before}, now {}", taken());
    let label = Command::new("xfs_io").args(["-c", "label -s trimmed", "-c", "label"]).arg(&prepared.dir).output();
    prepared.line("umount DIR");
    let Ok(label) = label else { return skip("this machine has no xfs_io") };
    assert!(succeeds(&label).contains("trimmed"));
}
