//! The clock by which the kernel stamps what it caches.
//!
//! The kernel stamps an inode after each change that it has asked for, and sends that time. If the filesystem reads the
//! same clock, the inode mostly has it already. That clock is the coarse one, which advances with each tick (4 ms), but
//! never less than the latest fine time that a filesystem has given out (multigrain timestamps, Linux 6.13). No call
//! returns that floor. A file of tmpfs shows it, if its times are changed in a tick in which they were not looked at
//! before:
//!
//! ```text
//! once in half a millisecond  write to a file of tmpfs and look: a time beyond the coarse clock shows that programs
//!                             of this machine are given fine ones
//! for a minute after that     write and look each time: two system calls
//! otherwise                   the coarse clock: no system call
//! ```
//! So what is made after a write that the kernel has stamped is not older than the write, but for what is made within
//! one tick of the first fine time in a while.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::pwrite;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, Ordering};
use xfskit_vfs::{Environment, SystemEnvironment, Timestamp};

/// How long each time is looked up after a fine one was seen.
const KEEPS_LOOKING_NANOSECONDS: i64 = 60 * SECOND_NANOSECONDS;
const SECOND_NANOSECONDS: i64 = 1_000_000_000;
/// How often is looked otherwise, and how many times in a tick at the most: each time at a file of its own, for a
/// second look at one makes the kernel give out a fine time.
const LOOKS_EACH_NANOSECONDS: i64 = 500_000;
const FILES: usize = 8;

/// The environment of a filesystem that is mounted.
#[derive(Debug)]
pub struct KernelClock {
    system: SystemEnvironment,
    floor: Option<Floor>,
}

/// The latest fine time that was given out, as far as files of tmpfs show it. Times are in nanoseconds.
#[derive(Debug)]
struct Floor {
    files: [OwnedFd; FILES],
    /// When somebody has looked last: the tick, and how many half milliseconds of it had passed.
    looked: AtomicI64,
    /// Until then each time is looked up.
    looks_until: AtomicI64,
}

impl Default for KernelClock {
    /// The clock of a process that may make a file in memory. Where it may not, times are those of the coarse clock.
    fn default() -> Self {
        Self { system: SystemEnvironment, floor: Floor::new() }
    }
}

impl Floor {
    fn new() -> Option<Self> {
        let file = || memfd_create("xfskit-clock", MemfdFlags::CLOEXEC);
        let files = std::iter::repeat_with(file).take(FILES).collect::<Result<Vec<_>, _>>().ok()?;
        let (looked, looks_until) = (AtomicI64::new(0), AtomicI64::new(i64::MIN));
        Some(Self { files: files.try_into().ok()?, looked, looks_until })
    }

    /// The time by which the kernel would stamp a change now; `tick` is what the coarse clock says.
    fn now(&self, tick: i64) -> i64 {
        if tick < self.looks_until.load(Ordering::Relaxed) {
            return self.stamp(0).map_or(tick, |stamp| stamp.max(tick));
        }
        // A tick is longer than there are files for on a kernel with 100 ticks a second.
        let part = ((fine() - tick) / LOOKS_EACH_NANOSECONDS).clamp(0, FILES as i64 - 1);
        let look = tick + part;
        if self.looked.load(Ordering::Relaxed) == look || self.looked.swap(look, Ordering::Relaxed) == look {
            return tick;
        }
        match self.stamp(part as usize) {
            // The coarse clock may have advanced meanwhile, which is no fine time.
            Some(stamp) if stamp > coarse() => {
                self.looks_until.store(tick.saturating_add(KEEPS_LOOKING_NANOSECONDS), Ordering::Relaxed);
                stamp
            }
            _ => tick,
        }
    }

    fn stamp(&self, file: usize) -> Option<i64> {
        pwrite(&self.files[file], b"x", 0).ok()?;
        let stat = fstat(&self.files[file]).ok()?;
        Some(nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64))
    }
}

fn fine() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

fn coarse() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(SECOND_NANOSECONDS).saturating_add(nanoseconds)
}

fn timestamp(nanoseconds: i64) -> Timestamp {
    let (seconds, nanoseconds) =
        (nanoseconds.div_euclid(SECOND_NANOSECONDS), nanoseconds.rem_euclid(SECOND_NANOSECONDS));
    Timestamp { seconds, nanoseconds: nanoseconds as u32 }
}

impl Environment for KernelClock {
    fn now(&self) -> Timestamp {
        let tick = coarse();
        let now = self.floor.as_ref().map_or(tick, |floor| floor.now(tick));
        timestamp(now)
    }

    fn random(&self) -> u64 {
        self.system.random()
    }
}
