//! Every fuzz target for a few seconds; `XFSKIT_FUZZ_SECONDS` says how many.

use std::time::Duration;
use xfskit_fuzz_harness::fuzz::{run, seconds};
use xfskit_fuzz_harness::targets::TARGETS;

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let runs = run(target, Duration::from_secs(seconds()));
    println!("{name}: {runs} runs");
    assert!(runs > 0);
}

#[test]
fn superblock() {
    fuzz("superblock");
}

#[test]
fn inode() {
    fuzz("inode");
}

#[test]
fn directory() {
    fuzz("directory");
}

#[test]
fn attribute() {
    fuzz("attribute");
}

#[test]
fn log() {
    fuzz("log");
}

#[test]
fn log_recovery() {
    fuzz("log_recovery");
}
