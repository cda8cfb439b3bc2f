//! A device in memory, for tests and for work whose result is discarded.

use crate::{BlockDevice, Hints};
use parking_lot::RwLock;
use std::io;

/// A vector of bytes as a device.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// A device of `size_bytes` zeros.
    pub fn new(size_bytes: usize) -> Self {
        Self { bytes: RwLock::new(vec![0; size_bytes]) }
    }

    /// A device with the given contents.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes) }
    }

    /// A copy of the contents.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

fn range(offset: u64, length: usize, size: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok();
    let end = start.and_then(|start| start.checked_add(length));
    match (start, end) {
        (Some(start), Some(end)) if end <= size => Ok(start..end),
        _ => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("offset {offset} is past the end of the device")))
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn size_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn hints(&self) -> Hints {
        Hints::of(self)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read();
        buffer.copy_from_slice(&bytes[range(offset, buffer.len(), bytes.len())?]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let range = range(offset, data.len(), bytes.len())?;
        bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_past_the_end_is_an_error() {
        let device = MemoryDevice::new(1024);
        assert!(device.write(1000, &[1; 24]).is_ok());
        assert!(device.write(1001, &[1; 24]).is_err());
        assert!(device.read(u64::MAX, &mut [0; 4]).is_err());
    }
}
