//! What a second thread can gain on this machine, whatever it does.
//!
//! Virtual processors may share a core, or be lent to other work: then two threads gain less than 2 although they wait for nothing
//! of each other. So beside the gain of an engine stands that of a loop that only computes, in registers: no memory, no locks, no
//! system calls. It is not exact for other work: threads that wait for memory share a core better than such a loop. And it holds
//! for its own moment: on a machine that is not quiet it changes.

use crate::names::mix;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How long a loop runs: many turns of the scheduler.
const SPAN: Duration = Duration::from_millis(150);
const ROUNDS: usize = 3;
/// Steps between two looks at the clock.
const STRIDE: u32 = 4096;
/// One chain alone waits for its own multiplications and would leave half of a core to a neighbour.
const CHAINS: usize = 4;

/// How many times as much two threads that share nothing do as one; each measured three times in turns, of which the best counts.
pub(crate) fn gain_of_two_threads() -> f64 {
    let (mut one, mut two) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        one = rate(1).max(one);
        two = rate(2).max(two);
    }
    two / one
}

/// Steps per second of so many threads together.
fn rate(threads: usize) -> f64 {
    let ready = Barrier::new(threads);
    let run = || {
        ready.wait();
        steps_per_second()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let rates = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        rates.map(|rate| rate.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    })
}

fn steps_per_second() -> f64 {
    let mut chains: [u64; CHAINS] = black_box(std::array::from_fn(|chain| chain as u64));
    let (start, mut steps) = (Instant::now(), 0u64);
    loop {
        for _ in 0..STRIDE {
            chains = chains.map(mix);
        }
        // Nobody wants to know, but the compiler must not see that.
        chains = black_box(chains);
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
        let gain = gain_of_two_threads();
        assert!(gain.is_finite() && gain > 0.0, "{gain}");
    }
}
