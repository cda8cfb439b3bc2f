//! Trees whose paths are longer than Linux accepts in one call.

mod common;

use common::{ok, words};
use std::io::Write;
use std::process::{Command, Stdio};
use xfskit_testkit::scratch;

const LEVELS: usize = 5_000;

/// A tar stream of nested directories, made by Python's tarfile.
fn deep_tar(to: &std::path::Path) {
    let program = format!(
        "import tarfile
with tarfile.open('{}', 'w', format=tarfile.PAX_FORMAT) as out:
    for depth in range(1, {LEVELS} + 1, 100):
        info = tarfile.TarInfo('/'.join(['d'] * (depth + 99)))
        info.type = tarfile.DIRTYPE
        out.addfile(info)
",
        to.display()
    );
    let mut python = Command::new("python3").arg("-").stdin(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
}

#[test]
fn paths_of_any_length_are_shown_and_exported() {
    let scratch = scratch();
    let (tar, image, again) = (scratch.file("deep.tar"), scratch.file("a.img"), scratch.file("b.img"));
    deep_tar(&tar);
    ok(&format!("mkfs IMAGE -q --from {}", tar.display()), &image);
    assert!(ok("check IMAGE", &image).ends_with("no faults\n"));
    let path = "/d".repeat(LEVELS);
    assert_eq!(ok(&format!("parents IMAGE {path}"), &image), format!("{path}\n"));
    let export = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(words("export IMAGE /", &image)).output().unwrap();
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    let made = common::with_input("mkfs IMAGE -q --from -", &again, &export.stdout);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(ok(&format!("parents IMAGE {path}"), &again), format!("{path}\n"));
}
