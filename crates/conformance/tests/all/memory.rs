//! The filesystem in memory passes all cases. A crash takes nothing from it, for it is there as long as the process.

use std::sync::Arc;
use xfskit_conformance::{Medium, check};
use xfskit_vfs::{MemoryVolume, SeededEnvironment, Volume};

struct Memory(MemoryVolume);

impl Medium for Memory {
    fn open(&self) -> Box<dyn Volume> {
        Box::new(self.0.clone())
    }

    fn after_crash(&self) -> Box<dyn Medium> {
        Box::new(Self(self.0.clone()))
    }
}

#[test]
fn the_filesystem_in_memory_passes() {
    check(&|| Box::new(Memory(MemoryVolume::new(64 << 20))), &[]);
}

#[test]
fn a_seed_decides_all_that_it_answers() {
    let seeded = || MemoryVolume::with_environment(64 << 20, Arc::new(SeededEnvironment::new(7)));
    check(&|| Box::new(Memory(seeded())), &[]);
}
