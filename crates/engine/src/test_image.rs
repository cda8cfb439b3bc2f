//! Images for unit tests: made in memory, worked on by the engine, judged by xfs_repair where it is installed.

use crate::env::SeededEnvironment;
use crate::error::Result;
use crate::mount::{BlockPool, Mount, MountOptions};
use crate::trans::{Reservation, Transaction};
use std::sync::Arc;
use xfskit_device::MemoryDevice;
use xfskit_mkfs::{Options, make};

/// Log space that every transaction of these tests takes.
const LOG_BYTES: u32 = 400_000;

/// An image in memory.
pub(crate) struct TestImage {
    pub device: Arc<MemoryDevice>,
}

impl TestImage {
    /// Makes an image of `mib` MiB, with the options of mkfs.xfs in the form `("b", "size=1024")`.
    pub fn new(mib: usize, arguments: &[(char, &str)]) -> Self {
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let mut options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
        for (letter, value) in arguments {
            options.apply(*letter, value).expect("an option of mkfs.xfs");
        }
        make(&*device, None, &options, xfskit_ondisk::Timestamp::default()).expect("an image");
        Self { device }
    }

    /// Opens it.
    pub fn mount(&self) -> Arc<Mount> {
        let device = Arc::clone(&self.device) as _;
        Mount::open_in(device, None, MountOptions::default(), Arc::new(SeededEnvironment::new(1))).expect("a mount")
    }

    /// Asserts that xfs_repair finds nothing wrong. The image must have been unmounted.
    pub fn assert_sound(&self) {
        let Some(reference) = xfskit_testkit::reference() else { return };
        let scratch = xfskit_testkit::scratch();
        let path = scratch.file("image");
        std::fs::write(&path, self.device.to_bytes()).expect("room for the image");
        reference.repair_finds_nothing(&path);
    }
}

/// Runs one transaction that may allocate `blocks` blocks.
pub(crate) fn transact<T>(
    mount: &Arc<Mount>,
    blocks: u64,
    work: impl FnOnce(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let reservation = Reservation { log_bytes: LOG_BYTES, log_count: 1, blocks, pool: BlockPool::Removal };
    let mut tx = mount.transaction(reservation)?;
    let result = work(&mut tx);
    tx.finish(result)
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::env::mix(self.0) % limit
    }
}
