//! What a second thread can gain at most on this machine.
//!
//! Virtual processors may share a core, or be lent to other work. Then two threads are less than twice as fast as one,
//! although neither waits for the other. Processors with caches of their own still share the path to memory. So the
//! report gives the gains of two loops beside that of an engine: one loop computes in registers; the other copies
//! pieces of memory that no cache contains, as an engine does with inodes and their log vectors. Neither takes locks or
//! makes system calls. The gains are those of the moment: on a machine with other load they change.

use crate::names::mix;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How long a loop runs: many time slices of the scheduler.
const SPAN: Duration = Duration::from_millis(150);
const ROUNDS: usize = 3;
/// Steps between two readings of the clock.
const STRIDE: u32 = 4096;
/// Independent chains of a thread. One alone would wait for its own multiplications and leave half of a core to another
/// thread.
const CHAINS: usize = 4;

/// Memory of a thread that copies: more than its share of any cache.
const COPIED_BYTES: usize = 64 << 20;
/// Bytes of one copy: an inode, or its log vector.
const PIECE_BYTES: usize = 512;

/// The rate of two threads that share nothing, divided by the rate of one.
pub(crate) struct Gains {
    pub(crate) computing: f64,
    pub(crate) copying: f64,
}

/// Measures both gains, each from the best rates of three rounds.
pub(crate) fn gains_of_two_threads() -> Gains {
    Gains { computing: gain(compute), copying: gain(copy) }
}

fn gain(work: fn(&Barrier) -> f64) -> f64 {
    let (mut one, mut two) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        one = rate(1, work).max(one);
        two = rate(2, work).max(two);
    }
    two / one
}

/// Steps per second of `threads` threads together.
fn rate(threads: usize, work: fn(&Barrier) -> f64) -> f64 {
    let ready = Barrier::new(threads);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&ready))).collect();
        let rates = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        rates.map(|rate| rate.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    })
}

fn compute(ready: &Barrier) -> f64 {
    let mut chains: [u64; CHAINS] = black_box(std::array::from_fn(|chain| chain as u64));
    ready.wait();
    steps_per_second(|| {
        chains = chains.map(mix);
        // The result is not used, but the compiler must not see that.
        chains = black_box(chains);
    })
}

fn copy(ready: &Barrier) -> f64 {
    let mut memory = vec![1u8; COPIED_BYTES];
    let mut place = 0;
    ready.wait();
    steps_per_second(|| {
        place = mix(place);
        let start = |number: u64| number as usize % (COPIED_BYTES / PIECE_BYTES) * PIECE_BYTES;
        let (from, to) = (start(place), start(place >> 32));
        black_box(&mut memory).copy_within(from..from + PIECE_BYTES, to);
    })
}

fn steps_per_second(mut step: impl FnMut()) -> f64 {
    let (start, mut steps) = (Instant::now(), 0u64);
    loop {
        (0..STRIDE).for_each(|_| step());
        steps += u64::from(STRIDE);
        let elapsed = start.elapsed();
        if elapsed >= SPAN {
            return steps as f64 / elapsed.as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_gain_something() {
        let Gains { computing, copying } = gains_of_two_threads();
        assert!(computing.is_finite() && computing > 0.0, "{computing}");
        assert!(copying.is_finite() && copying > 0.0, "{copying}");
    }
}
