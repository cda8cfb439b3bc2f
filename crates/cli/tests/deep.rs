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

/// A tar stream with one file in this many directories.
fn tar_of_one(levels: usize, name: &str) -> Vec<u8> {
    let program = format!(
        "import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=tarfile.PAX_FORMAT) as out:
    out.addfile(tarfile.TarInfo('/'.join(['{name}'] * {levels})))
"
    );
    let output = Command::new("python3").arg("-c").arg(program).output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn a_path_that_is_too_long_is_refused_by_name_and_others_take_no_stack() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    for line in ["mkfs IMAGE -q --size 64M --small --from -", "mkfs IMAGE -q --from -"] {
        let made = common::with_input(line, &image, &tar_of_one(8_000, "d"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::remove_file(&image).unwrap();
        for (levels, name) in [(50_000, "d".to_owned()), (5_000, "n".repeat(200))] {
            let refused = common::with_input(line, &image, &tar_of_one(levels, &name));
            let message = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(5), "{message}");
            assert!(message.contains("...: a path of "), "{message}");
            assert!(!image.exists());
        }
    }
    let (folder, manifest) = (scratch.file("empty"), scratch.file("manifest"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&manifest, format!("#mtree\n.{} type=dir\n", "/d".repeat(50_000))).unwrap();
    let line = format!("mkfs IMAGE -q --from {} --manifest {}", folder.display(), manifest.display());
    let (code, message) = common::fails(&line, &image);
    assert!(code == 5 && message.contains("line 2") && message.contains("a path of "), "{message}");
}
