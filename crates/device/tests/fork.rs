//! A forked process shares its parent's open files: what it drops must not release the parent's locks. The test runs
//! without a harness, since a process with threads must not fork.
#![allow(unsafe_code)]

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use xfskit_device::{Access, FileDevice, OpenError};

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.img");
    let device = FileDevice::create(&path, 1 << 20).expect("an image");
    // SAFETY: this process has one thread.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            drop(device);
            // Without returning from `main`, which would remove the folder.
            std::process::exit(0);
        }
        ForkResult::Parent { child } => drop(waitpid(child, None).expect("an end")),
    }
    assert!(
        matches!(FileDevice::open(&path, Access::Write), Err(OpenError::Busy(_))),
        "the fork has unlocked the image"
    );
    drop(device);
    FileDevice::open(&path, Access::Write).expect("no other holds the image any more");
    println!("test a_fork_leaves_the_lock_alone ... ok");
}
