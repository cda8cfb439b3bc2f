//! A device over an image in memory that notes what is written, and that can fail after a number of writes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use xfskit_device::{BlockDevice, Hints};

pub const SECTOR: usize = 512;

/// Sectors that were written, over an image that stays as it is.
pub struct Device {
    base: Arc<Vec<u8>>,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
pub struct State {
    pub sectors: BTreeMap<u64, [u8; SECTOR]>,
    /// Writes until the device fails; the failing one arrives up to its middle.
    pub writes_left: Option<usize>,
    pub writes: usize,
    /// What was written before the first flush.
    pub before_flush: Option<BTreeMap<u64, [u8; SECTOR]>>,
}

impl Device {
    pub fn new(base: &Arc<Vec<u8>>, state: State) -> Arc<Self> {
        Arc::new(Self { base: Arc::clone(base), state: Mutex::new(state) })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it was locked")
    }

    pub fn contents(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        for (sector, contents) in &self.state().sectors {
            bytes[*sector as usize * SECTOR..][..SECTOR].copy_from_slice(contents);
        }
        bytes
    }
}

impl BlockDevice for Device {
    fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    fn hints(&self) -> Hints {
        Hints::of(self)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = offset as usize;
        buffer.copy_from_slice(self.base.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        let first = offset / SECTOR as u64;
        let state = self.state();
        for (sector, contents) in state.sectors.range(first..first + (buffer.len() / SECTOR) as u64) {
            buffer[(sector - first) as usize * SECTOR..][..SECTOR].copy_from_slice(contents);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset as usize + data.len() <= self.base.len(), "a write past the end");
        let mut state = self.state();
        let fails = state.writes_left == Some(0);
        state.writes += 1;
        state.writes_left = state.writes_left.map(|left| left.saturating_sub(1));
        let arrives = if fails { data.len() / 2 / SECTOR } else { data.len() / SECTOR };
        for (index, sector) in data.chunks_exact(SECTOR).enumerate().take(arrives) {
            let contents = sector.try_into().expect("a sector");
            state.sectors.insert(offset / SECTOR as u64 + index as u64, contents);
        }
        if fails { Err(io::Error::other("the power failed")) } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.before_flush.is_none() {
            state.before_flush = Some(state.sectors.clone());
        }
        Ok(())
    }
}
