//! Trees whose paths are longer than Linux accepts in one call.

mod common;

use common::{ok, words};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
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

/// An image of nested folders with long names, in each of which a file has two names.
fn nest(image: &std::path::Path, levels: usize) {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    let fs = Volume::open(device, MountOptions::default()).unwrap();
    let (mut dir, root) = (fs.root(), Caller::root());
    let name = [b'd'; 250];
    for _ in 0..levels {
        let file = fs.create(dir, b"file", &NewFile::file(0o644), &root).unwrap();
        fs.link(dir, b"link", file.inode, &root).unwrap();
        dir = fs.create(dir, &name, &NewFile::dir(0o755), &root).unwrap().inode;
    }
    fs.unmount().unwrap();
}

/// The lengths of all paths of such a tree add up to the square of its depth, here 1.5 GB for 1 MB of names.
#[test]
fn walks_through_a_deep_tree_take_little_memory() {
    let scratch = scratch();
    let (image, other) = (common::image(&scratch), scratch.file("b.img"));
    nest(&image, 3500);
    ok("mkfs IMAGE --size 300M -q", &other);
    let own = env!("CARGO_BIN_EXE_xfskit");
    let lines =
        ["du -s a.img", "du a.img", "--json du a.img", "find a.img -name x", "tree a.img", "cp -r a.img:/ b.img:/"];
    let remove = format!("rm -r a.img /{}", "d".repeat(250));
    for line in lines.into_iter().chain(["export a.img", "check a.img", "xattr dump -R a.img /", &remove]) {
        let script = format!("ulimit -v 1300000; exec {own} {line} >out");
        let output = Command::new("bash").args(["-c", &script]).current_dir(scratch.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {:?}: {}", output.status, &error[..error.len().min(2000)]);
        if line == "--json du a.img" {
            let text = std::fs::read(scratch.file("out")).unwrap();
            let list: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
            assert_eq!(list.len(), 3501);
        }
    }
}
