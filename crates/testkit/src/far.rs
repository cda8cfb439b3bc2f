//! A device as one across a network: each request takes a while, and several may be in flight.

use std::io::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use xfskit_device::{BlockDevice, Fua, Hints, MemoryDevice, WrapsDevice};

const QUEUE_DEPTH: usize = 8;
const LATENCY: Duration = Duration::from_millis(1);

/// A device in memory whose requests each take a millisecond, and that notes how many were in flight.
#[derive(Debug)]
pub struct FarDevice {
    device: MemoryDevice,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl FarDevice {
    /// The device in memory, as one far away.
    pub fn new(device: MemoryDevice) -> Self {
        Self { device, now: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// The most requests that were in flight together since the last call.
    pub fn take_most_in_flight(&self) -> usize {
        self.most.swap(0, Ordering::Relaxed)
    }

    fn wait(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        std::thread::sleep(LATENCY);
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WrapsDevice for FarDevice {
    type Below = MemoryDevice;

    fn below(&self) -> &MemoryDevice {
        &self.device
    }

    fn pass_hints(&self) -> Hints {
        Hints { queue_depth: QUEUE_DEPTH, ..self.device.hints() }
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.wait();
        self.device.read(offset, buffer)
    }

    fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> Result<()> {
        self.wait();
        fua.write(&self.device, offset, data)
    }
}
