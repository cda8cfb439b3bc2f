//! A device that notes what it is asked: whether one that wraps another passes everything on.

use std::io::Result;
use std::sync::{Mutex, PoisonError};
use xfskit_device::BlockDevice;

const SIZE_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: usize = 4096;
const REQUESTS: usize = 7;
/// No address of a device.
const IDENTITY: usize = 1;

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
        expect("sector_bytes", wrapper.sector_bytes() == SECTOR_BYTES);
        expect("read", arrives("read", &|| wrapper.read(at, &mut [0; 512])));
        expect("write", arrives("write", &|| wrapper.write(at, &[0; 512])));
        expect("writes_durably", wrapper.writes_durably());
        expect("write_durably", arrives("write_durably", &|| wrapper.write_durably(at, &[0; 512])));
        expect("flush", arrives("flush", &|| wrapper.flush()));
        expect("discard", arrives("discard", &|| wrapper.discard(at, 512)));
        expect("allocate", arrives("allocate", &|| wrapper.allocate(at, 512)));
        expect("may_hold_data", !wrapper.may_hold_data(at, 512));
        expect("requests_at_once", wrapper.requests_at_once() == REQUESTS);
        expect("identity", wrapper.identity() == IDENTITY);
        expect("is_read_only", wrapper.is_read_only());
        kept
    }
}

impl BlockDevice for NotedDevice {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn sector_bytes(&self) -> usize {
        SECTOR_BYTES
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

    fn writes_durably(&self) -> bool {
        true
    }

    fn write_durably(&self, _: u64, _: &[u8]) -> Result<()> {
        self.note("write_durably");
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

    fn requests_at_once(&self) -> usize {
        REQUESTS
    }

    fn identity(&self) -> usize {
        IDENTITY
    }

    fn is_read_only(&self) -> bool {
        true
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
