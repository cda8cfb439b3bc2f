//! The clock by which the kernel stamps what it caches.

use rustix::time::{ClockId, clock_gettime};
use xfskit::ondisk::Timestamp;
use xfskit::volume::{Environment, SystemEnvironment};

/// The environment of a filesystem that is mounted. Its time of day is that of the kernel's coarse clock: the kernel
/// stamps an inode after each change that it has asked for, and sends that time. If the engine reads the same clock,
/// the inode mostly has it already.
#[derive(Debug, Default)]
pub struct KernelClock {
    system: SystemEnvironment,
}

impl Environment for KernelClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
    }

    fn random(&self) -> u64 {
        self.system.random()
    }
}
