//! Drives a fuzz target without a fuzzing engine: seeds, changed at random, for a while.

use crate::targets::Target;
use crate::{Random, Watchdog};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Seconds for each target: what `XFSKIT_FUZZ_SECONDS` says, or 3.
pub fn seconds() -> u64 {
    std::env::var("XFSKIT_FUZZ_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

/// Runs `target` on its seeds and then on changed ones until the time is over. Returns how often it ran.
///
/// # Panics
/// When the target does; what it was given is kept in a file that the message names.
pub fn run(target: &Target, time: Duration) -> u64 {
    let seeds = (target.seeds)();
    let watchdog = Watchdog::new();
    let end = Instant::now() + time;
    let mut random = Random::new(u64::from(std::process::id()) << 32 | u64::from(end.elapsed().subsec_nanos()));
    let mut runs = 0;
    for seed in &seeds {
        attempt(target, seed, &watchdog);
        runs += 1;
    }
    while Instant::now() < end {
        let mut input = random.pick(&seeds).cloned().unwrap_or_default();
        for _ in 0..1 + random.below(6) {
            change(&mut input, &seeds, &mut random);
        }
        attempt(target, &input, &watchdog);
        runs += 1;
    }
    runs
}

fn attempt(target: &Target, input: &[u8], watchdog: &Watchdog) {
    watchdog.step(target.name);
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok() {
        return;
    }
    let path = std::env::temp_dir().join(format!("xfskit-fuzz-{}-{}", target.name, std::process::id()));
    let kept = std::fs::write(&path, input);
    panic!("target {} panicked; its input is in {} ({kept:?})", target.name, path.display());
}

/// One change at random.
fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    if input.is_empty() {
        input.push(0);
    }
    // Headers are hit more often than the rest.
    let span = if random.below(2) == 0 { input.len().min(256) } else { input.len() };
    let at = random.below(span);
    match random.below(9) {
        0 => input[at] = random.bits() as u8,
        1 => input[at] ^= 1 << random.below(8),
        2 => input[at] = input[at].wrapping_add(1),
        3 => input[at] = input[at].wrapping_sub(1),
        4 => fill(input, at, 1 << random.below(4), [0, 0xff, 0x7f, 0x80][random.below(4)]),
        5 => {
            let length = 1 + random.below(16);
            let from = random.below(input.len());
            let piece = input[from..input.len().min(from + length)].to_vec();
            put(input, at, &piece);
        }
        6 => {
            let Some(other) = random.pick(seeds).filter(|other| !other.is_empty()) else { return };
            let from = random.below(other.len());
            let piece = other[from..other.len().min(from + (4 << random.below(6)))].to_vec();
            put(input, at & !3, &piece);
        }
        7 => {
            let value = (random.below(64) as u64).wrapping_sub(random.below(3) as u64 * 32);
            put(input, at & !3, &(value as u32).to_be_bytes());
        }
        _ if random.below(8) == 0 => input.truncate(at),
        _ => input[at] = 0,
    }
}

fn fill(input: &mut [u8], at: usize, length: usize, value: u8) {
    let end = input.len().min(at + length);
    input[at..end].fill(value);
}

fn put(input: &mut [u8], at: usize, piece: &[u8]) {
    for (slot, byte) in input.iter_mut().skip(at).zip(piece) {
        *slot = *byte;
    }
}
