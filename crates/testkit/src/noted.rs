//! A device that notes what it is asked: whether one that wraps another passes everything on.

use std::io::Result;
use std::sync::{Mutex, PoisonError};
use xfskit_device::{BlockDevice, Hints};

const SIZE_BYTES: u64 = 1 << 20;
/// Each differs from that of a device that has nothing special. The identity is no address of a device.
const HINTS: Hints = Hints { sector_bytes: 4096, queue_depth: 7, supports_fua: true, read_only: true, identity: 1 };

/// A device that answers each method in its own way, and notes each call.
#[derive(Debug, Default)]
pub struct NotedDevice {
    calls: Mutex<Vec<&'static str>>,
}

impl NotedDevice {
    fn note(&self, method: &'static str) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(method);
    }

    /// The methods that `wrapper`, a device over this one, does not pass on, or answers itself.
    pub fn kept_by(&self, wrapper: &dyn BlockDevice) -> Vec<&'static str> {
        let mut kept = Vec::new();
        let mut expect = |method, holds: bool| kept.extend((!holds).then_some(method));
        let arrives = |method, call: &dyn Fn() -> Result<()>| {
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
            call().is_ok() && self.calls.lock().unwrap_or_else(PoisonError::into_inner).contains(&method)
        };
        let at = SIZE_BYTES / 2;
        expect("size_bytes", wrapper.size_bytes() == SIZE_BYTES);
        expect("read", arrives("read", &|| wrapper.read(at, &mut [0; 512])));
        expect("write", arrives("write", &|| wrapper.write(at, &[0; 512])));
        expect("write_fua", arrives("write_fua", &|| wrapper.write_fua(at, &[0; 512])));
        expect("flush", arrives("flush", &|| wrapper.flush()));
        expect("discard", arrives("discard", &|| wrapper.discard(at, 512)));
        expect("allocate", arrives("allocate", &|| wrapper.allocate(at, 512)));
        expect("may_hold_data", !wrapper.may_hold_data(at, 512));
        let hints = wrapper.hints();
        expect("sector_bytes", hints.sector_bytes == HINTS.sector_bytes);
        expect("queue_depth", hints.queue_depth == HINTS.queue_depth);
        expect("supports_fua", hints.supports_fua == HINTS.supports_fua);
        expect("read_only", hints.read_only == HINTS.read_only);
        expect("identity", hints.identity == HINTS.identity);
        kept
    }
}

impl BlockDevice for NotedDevice {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn hints(&self) -> Hints {
        HINTS
    }

    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
        self.note("read");
        buffer.fill(0);
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        self.note("write");
        Ok(())
    }

    fn write_fua(&self, _: u64, _: &[u8]) -> Result<()> {
        self.note("write_fua");
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.note("flush");
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<()> {
        self.note("discard");
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        self.note("allocate");
        Ok(())
    }

    fn may_hold_data(&self, _: u64, _: u64) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_shared_device_passes_everything_on() {
        let below = Arc::new(NotedDevice::default());
        assert!(below.kept_by(&Arc::clone(&below)).is_empty());
        assert_eq!(below.kept_by(&xfskit_device::MemoryDevice::new(512)).len(), 13);
    }
}
