//! A device over an image in memory. At every request other threads may run, and the power can be cut.

use crate::below;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use xfskit_device::{BlockDevice, Hints};

const SECTOR: usize = 512;

type Watch = Box<dyn Fn(&Device, u64, &[u8]) + Send + Sync>;
type WatchFlush = Box<dyn Fn(&Device) + Send + Sync>;

/// Writes in order, over an image that stays as it is.
pub struct Device {
    base: Arc<Vec<u8>>,
    state: Mutex<State>,
    turns: AtomicU64,
    watch: OnceLock<Watch>,
    watch_flush: OnceLock<WatchFlush>,
    queue_depth: usize,
}

#[derive(Clone, Default)]
struct State {
    durable: BTreeMap<u64, [u8; SECTOR]>,
    /// Writes that no flush has covered yet: number, offset, contents.
    unflushed: VecDeque<(u64, u64, Vec<u8>)>,
    writes: u64,
}

impl State {
    fn write(sectors: &mut BTreeMap<u64, [u8; SECTOR]>, offset: u64, data: &[u8]) {
        for (index, sector) in data.chunks_exact(SECTOR).enumerate() {
            sectors.insert(offset / SECTOR as u64 + index as u64, sector.try_into().expect("a sector"));
        }
    }
}

impl Device {
    pub fn new(base: &Arc<Vec<u8>>) -> Arc<Self> {
        Self::far(base, 1)
    }

    /// A device that says that it takes so many requests at a time.
    pub fn far(base: &Arc<Vec<u8>>, queue_depth: usize) -> Arc<Self> {
        Self::with_state(base, State::default(), queue_depth)
    }

    fn with_state(base: &Arc<Vec<u8>>, state: State, queue_depth: usize) -> Arc<Self> {
        let (state, turns) = (Mutex::new(state), AtomicU64::new(0));
        let (watch, watch_flush) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { base: Arc::clone(base), state, turns, watch, watch_flush, queue_depth })
    }

    /// Shows every write to `watch` before it is done.
    pub fn watch(&self, watch: Watch) {
        assert!(self.watch.set(watch).is_ok(), "one watch for a device");
    }

    /// Calls `watch` in every flush, before anything is durable by it.
    pub fn watch_flush(&self, watch: WatchFlush) {
        assert!(self.watch_flush.set(watch).is_ok(), "one watch for a device");
    }

    /// The device after a power cut now that only one of the writes that were not flushed has not survived.
    pub fn power_cut_losing_one(&self) -> Arc<Self> {
        let mut state = self.state().clone();
        let lost = below(state.unflushed.len().max(1));
        for (index, (_, offset, data)) in std::mem::take(&mut state.unflushed).into_iter().enumerate() {
            if index != lost {
                State::write(&mut state.durable, offset, &data);
            }
        }
        Self::with_state(&self.base, state, self.queue_depth)
    }

    /// The device after a power cut now: each write that was not flushed has arrived or not. No other thread runs
    /// meanwhile.
    pub fn power_cut(&self) -> Arc<Self> {
        let mut state = self.state().clone();
        for (_, offset, data) in std::mem::take(&mut state.unflushed) {
            if below(2) == 0 {
                State::write(&mut state.durable, offset, &data);
            }
        }
        Self::with_state(&self.base, state, self.queue_depth)
    }

    /// Whether the durable part of the log, which lies in a range of offsets, contains a text. A record's sectors begin
    /// with the number of the log's cycle instead of their first four bytes, which may be any.
    pub fn has_logged(&self, log: Range<u64>, text: &[u8]) -> bool {
        let state = self.state();
        let sectors = state.durable.range(log.start / SECTOR as u64..log.end / SECTOR as u64);
        let bytes: Vec<u8> = sectors.flat_map(|(_, contents)| contents).copied().collect();
        let fits = |start: usize, window: &[u8]| {
            window.iter().zip(text).enumerate().all(|(n, (one, other))| one == other || (start + n) % SECTOR < 4)
        };
        bytes.windows(text.len()).enumerate().any(|(start, window)| fits(start, window))
    }

    pub fn contents(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        self.read_now(0, &mut bytes);
        bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it was locked")
    }

    /// Other threads may run here.
    fn turn(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) {
        let state = self.state();
        let (start, end) = (offset, offset + buffer.len() as u64);
        for (sector, contents) in state.durable.range(start / SECTOR as u64..end / SECTOR as u64) {
            buffer[(sector * SECTOR as u64 - start) as usize..][..SECTOR].copy_from_slice(contents);
        }
        for (_, at, data) in &state.unflushed {
            let (from, to) = (start.max(*at), end.min(at + data.len() as u64));
            if from < to {
                let part = &data[(from - at) as usize..(to - at) as usize];
                buffer[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
            }
        }
    }
}

impl BlockDevice for Device {
    fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    fn hints(&self) -> Hints {
        Hints { queue_depth: self.queue_depth, ..Hints::of(self) }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.turn();
        let start = offset as usize;
        buffer.copy_from_slice(self.base.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        self.read_now(offset, buffer);
        self.turn();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset as usize + data.len() <= self.base.len(), "a write past the end");
        self.turn();
        // A far device takes its time.
        if self.queue_depth > 1 && below(4) == 0 {
            (0..below(100)).for_each(|_| self.turn());
        }
        if let Some(watch) = self.watch.get() {
            watch(self, offset, data);
        }
        let mut state = self.state();
        state.writes += 1;
        let number = state.writes;
        state.unflushed.push_back((number, offset, data.to_vec()));
        drop(state);
        self.turn();
        Ok(())
    }

    /// What was discarded is as in the image before, or zeros.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.turn();
        let (end, mut state) = (offset + length, self.state());
        let sectors: Vec<u64> =
            state.durable.range(offset / SECTOR as u64..end / SECTOR as u64).map(|(sector, _)| *sector).collect();
        for sector in sectors {
            state.durable.remove(&sector);
        }
        for (_, at, data) in &mut state.unflushed {
            let (from, to) = (offset.max(*at), end.min(*at + data.len() as u64));
            if from < to {
                data[(from - *at) as usize..(to - *at) as usize].fill(0);
            }
        }
        drop(state);
        self.turn();
        Ok(())
    }

    /// What was written before the flush began is durable when it ends.
    fn flush(&self) -> io::Result<()> {
        let last = self.state().writes;
        self.turn();
        if let Some(watch) = self.watch_flush.get() {
            watch(self);
        }
        let mut state = self.state();
        while state.unflushed.front().is_some_and(|(number, ..)| *number <= last) {
            if let Some((_, offset, data)) = state.unflushed.pop_front() {
                State::write(&mut state.durable, offset, &data);
            }
        }
        drop(state);
        self.turn();
        Ok(())
    }
}
