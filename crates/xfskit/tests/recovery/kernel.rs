//! The kernel makes the crash image; we recover one copy, the kernel another, and both must show the same tree.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::{Filesystem, MountOptions};

fn shell(script: &str) {
    let output = Command::new("bash").args(["-e", "-c", script]).output().expect("bash");
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Recovers and unmounts.
fn recover(image: &Path) -> xfskit::journal::RecoveryReport {
    let device = Arc::new(FileDevice::open(image, Access::Write).expect("an image"));
    let fs = Filesystem::open(device, MountOptions::default()).expect("a recovery");
    let report = fs.mount().recovery.clone().expect("a dirty log");
    fs.unmount().expect("a clean end");
    report
}

#[test]
fn a_simple_log_of_the_kernel_is_replayed() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 400 << 20);
    reference.tool_output("mkfs.xfs", ["-q".as_ref(), image.as_os_str()]);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
    let dir = kernel.path().display().to_string();
    shell(&format!(
        "cd {dir}; mkdir a; for n in $(seq 300); do echo $n >a/file-with-a-name-$n; done; ln -s a b; mv a/file-with-a-name-7 c
         for n in $(seq 1 3 300); do rm a/file-with-a-name-$n || true; done; sync -f c"
    ));
    reference.shut_down(kernel.path(), true);
    kernel.unmount();
    let (ours, theirs) = (scratch.file("ours.img"), scratch.file("theirs.img"));
    std::fs::copy(&image, &ours).expect("a copy");
    std::fs::copy(&image, &theirs).expect("a copy");
    println!("{}", recover(&ours));
    reference.repair_finds_nothing(&ours);
    let trees = [&ours, &theirs].map(|image| {
        let kernel = xfskit_testkit::kernel_mount(image).expect("a mount");
        let tree = xfskit_testkit::tree(kernel.path());
        kernel.unmount();
        tree
    });
    assert!(trees[0] == trees[1], "two trees");
    println!("{} files", trees[0].len());
}
