//! The fuzz targets of the format and of whole disks, each for its share of the time that `XFSKIT_FUZZ_SECONDS` says.

use xfskit_fuzz_harness::fuzz::run;
use xfskit_fuzz_harness::{disk, targets};

fn fuzz(name: &str) {
    let mut all = targets::TARGETS.iter().chain(&disk::TARGETS);
    run(all.find(|target| target.name == name).expect("a target"));
}

#[test]
fn fuzz_superblock() {
    fuzz("superblock");
}

#[test]
fn fuzz_inode() {
    fuzz("inode");
}

#[test]
fn fuzz_directory() {
    fuzz("directory");
}

#[test]
fn fuzz_attribute() {
    fuzz("attribute");
}

#[test]
fn fuzz_log() {
    fuzz("log");
}

#[test]
fn fuzz_log_recovery() {
    fuzz("log_recovery");
}

#[test]
fn fuzz_table() {
    fuzz("table");
}

#[test]
fn fuzz_lvm() {
    fuzz("lvm");
}

#[test]
fn fuzz_qcow2() {
    fuzz("qcow2");
}
