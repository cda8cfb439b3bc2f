//! Commands on whole disks: partitions, LVM2, qcow2, a server. The disks are made by sfdisk, lvm2 and qemu-img, and
//! what the commands write is read by qemu-img, xfs_repair and the kernel.

mod chosen;
#[path = "../common/mod.rs"]
mod common;
mod formats;
mod kept;
mod metadump;
mod mounted;
mod served;
mod tables;

use common::disks::run;
use common::ok;
use common::trees::{listing, make_tree};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, kernel_mount, reference, skip};

const PROGRAMS: [&str; 3] = ["qemu-img", "sfdisk", "mkfs.ext4"];

fn operand(disk: &Path, part: &str) -> PathBuf {
    let mut text = disk.as_os_str().to_owned();
    text.push(part);
    text.into()
}

fn root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("owners, loop devices and the kernel's mount need root");
    }
    is_root
}

/// The tree without the root's own entry, which commands change.
fn below(root: &Path) -> Vec<String> {
    let lines = listing(root);
    lines.into_iter().filter(|line| !line.starts_with("/ ")).collect()
}

/// The first difference between two trees.
fn difference(ours: &[String], theirs: &[String]) -> String {
    let pair = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
    format!("{} and {} entries; {pair:?}", ours.len(), theirs.len())
}

/// What xfs_repair and the kernel say of a filesystem.
fn judge(image: &Path, expected: &[String], what: &str) {
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(image);
    }
    let Some(mount) = kernel_mount(image) else { return };
    let found = below(mount.path());
    mount.unmount();
    assert!(found == expected, "{what}: the kernel sees another tree: {}", difference(&found, expected));
}

/// Fills a part by mkfs, changes it and copies it out, and has the result judged. `extract` gets the filesystem out of
/// the disk by other programs.
fn exercise(scratch: &Scratch, name: &Path, extract: &dyn Fn() -> PathBuf) {
    let (source, copied, back) = (scratch.file("source"), scratch.file("copied"), scratch.file("back"));
    for folder in [&source, &copied, &back] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    let what = name.display().to_string();
    ok(&format!("mkfs IMAGE -f -q --small --from {}", source.display()), name);
    let expected = below(&source);
    judge(&extract(), &expected, &what);
    ok("mkdir IMAGE /new", name);
    ok("rm -r IMAGE /new /dir /big", name);
    ok(&format!("cp -a {}/. {what}:/", source.display()), name);
    assert!(ok("check IMAGE", name).ends_with("no faults\n"), "{what}");
    ok(&format!("cp -a {what}:/. {}", back.display()), name);
    let found = below(&back);
    assert!(found == expected, "{what}: the copy is another tree: {}", difference(&found, &expected));
    let tar = scratch.file("tree.tar");
    ok(&format!("export IMAGE /dir -o {}", tar.display()), name);
    fs::create_dir(&copied).unwrap();
    run("tar", &["-xf", tar.to_str().unwrap(), "-C", copied.to_str().unwrap()]);
    assert!(fs::read(copied.join("again")).unwrap() == fs::read(source.join("big")).unwrap());
    judge(&extract(), &expected, &what);
}

/// A program that serves a disk. It ends with the test.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(program: &str, arguments: &[&str], socket: &Path) -> Self {
        let _ = fs::remove_file(socket);
        let child = Command::new(program).args(arguments).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "{program} {arguments:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket: socket.into() }
    }

    fn operand(&self, part: &str) -> PathBuf {
        format!("nbd+unix:///?socket={}{part}", self.socket.display()).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
