//! The FUSE server under requests in any order, compared with a model; xfs_repair judges some of the images.

use xfskit_fuzz_harness::Random;
use xfskit_fuzz_harness::fuse::{fuse, run};
use xfskit_fuzz_harness::fuzz::{self, Target};
use xfskit_testkit::{reference, scratch};

const LENGTH: usize = 700;

fn random_input(random: &mut Random) -> Vec<u8> {
    (0..LENGTH).map(|_| random.bits() as u8).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(3);
    (0..8).map(|_| random_input(&mut random)).collect()
}

#[test]
fn fuzz_fuse() {
    fuzz::run(&Target { name: "fuse", seeds, run: fuse });
}

#[test]
fn xfs_repair_finds_nothing_after_any_requests() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let mut random = Random::new(u64::from(std::process::id()));
    for number in 0..4 {
        let input = random_input(&mut random);
        let path = scratch.file(&format!("{number}.img"));
        std::fs::write(&path, run(&input).image.to_bytes()).unwrap();
        reference.repair_finds_nothing(&path);
    }
}
