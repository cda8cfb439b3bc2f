//! The fuzz targets of the format, each for its share of the time that `XFSKIT_FUZZ_SECONDS` says.

use xfskit_fuzz_harness::fuzz::run;
use xfskit_fuzz_harness::targets::TARGETS;

fn fuzz(name: &str) {
    run(TARGETS.iter().find(|target| target.name == name).expect("a target"));
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
