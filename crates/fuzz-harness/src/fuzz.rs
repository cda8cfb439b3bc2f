//! Drives a fuzz target without a fuzzing engine: runs the seeds and the stored corpus, then inputs made from them by
//! random changes, for a while. An input whose behaviour is new is changed further.
//!
//! ```text
//! XFSKIT_FUZZ_SECONDS   for all targets together; 60 if it is not set
//! XFSKIT_FUZZ_SEED      the same changes again
//! XFSKIT_FUZZ_KEEP=1    stores inputs with new behaviour in fuzz/corpus, as small as possible
//! ```

use crate::behaviour::Behaviour;
use crate::report::{self, Count, target_folder};
use crate::{Random, Watchdog};
use std::collections::HashSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// All targets that share the time.
pub const TARGET_NAMES: [&str; 18] = [
    "superblock",
    "inode",
    "directory",
    "attribute",
    "log",
    "log_recovery",
    "fuse",
    "tar",
    "dump",
    "command_line",
    "table",
    "lvm",
    "qcow2",
    "contexts",
    "manifest",
    "proto",
    "unpack",
    "layout",
];
const USUAL_SECONDS: u64 = 60;
/// Maximum number of inputs to change further.
const MAX_KEPT: usize = 4096;
/// Maximum bytes of an input in the stored corpus, and maximum number of inputs of a target there.
const MAX_STORED_BYTES: usize = 4096;
const MAX_STORED: usize = 40;
/// Maximum number of trials to make an input smaller.
const MAX_TRIALS: usize = 400;
/// An input up to this size is written to a file before it runs, because the run may end the process.
const MAX_NOTED_BYTES: usize = 64 << 10;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Runs it.
    pub run: fn(&[u8]) -> Behaviour,
}

/// How long a target runs.
pub fn share() -> Duration {
    let seconds = std::env::var("XFSKIT_FUZZ_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(USUAL_SECONDS);
    Duration::from_secs(seconds) / TARGET_NAMES.len() as u32
}

/// The folder of a target's stored inputs.
pub fn corpus_folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

/// The stored inputs of a target.
///
/// # Panics
/// If one cannot be read.
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
    let Ok(listing) = fs::read_dir(corpus_folder(name)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = listing.map(|entry| entry.expect("a stored input").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a stored input")).collect()
}

/// Runs `target` on its seeds and the stored corpus, then on changed inputs until its share of the time is over; adds
/// the counts to the report.
///
/// # Panics
/// If the target panics. The message names a file with the input.
pub fn run(target: &Target) {
    assert!(TARGET_NAMES.contains(&target.name), "{} has no share of the time", target.name);
    let start = Instant::now();
    let time = share();
    let seed = std::env::var("XFSKIT_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(std::process::id()) << 32 | u64::from(start.elapsed().subsec_nanos()));
    println!("{}: XFSKIT_FUZZ_SEED={seed}", target.name);
    let mut random = Random::new(seed);
    let mut runner = Runner { target, watchdog: Watchdog::new(), runs: 0, known: HashSet::new() };
    let stored = corpus(target.name);
    let mut pool = (target.seeds)();
    let seed_count = pool.len();
    pool.extend(stored.iter().cloned());
    for input in &pool {
        let behaviour = runner.attempt(input);
        runner.known.extend(behaviour.beyond(&runner.known));
    }
    let mut found = Vec::new();
    while start.elapsed() < time {
        let newest = &pool[seed_count.min(pool.len() - 1)..];
        let from = if random.below(2) == 0 { newest } else { &pool[..] };
        let mut input = random.pick(from).cloned().unwrap_or_default();
        for _ in 0..1 + random.below(6) {
            change(&mut input, &pool, &mut random);
        }
        let new = runner.attempt(&input).beyond(&runner.known);
        if !new.is_empty() && pool.len() < MAX_KEPT {
            runner.known.extend(&new);
            pool.push(input.clone());
            found.push((input, new));
        }
    }
    report::add(&Count {
        name: target.name,
        runs: runner.runs,
        time: start.elapsed(),
        corpus: stored.len(),
        found: found.len(),
    });
    if std::env::var("XFSKIT_FUZZ_KEEP").as_deref() == Ok("1") {
        runner.store(found, stored.len());
    }
}

struct Runner<'a> {
    target: &'a Target,
    watchdog: Watchdog,
    runs: u64,
    /// All traits seen so far.
    known: HashSet<u64>,
}

impl Runner<'_> {
    fn attempt(&mut self, input: &[u8]) -> Behaviour {
        let name = self.target.name;
        let path = target_folder().join(format!("fuzz-input-{name}"));
        if input.len() <= MAX_NOTED_BYTES {
            fs::write(&path, input).expect("a file for the input");
        }
        self.watchdog.step(format!("{name}; the input is in {}", path.display()));
        self.runs += 1;
        if let Ok(behaviour) = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input))) {
            return behaviour;
        }
        let path = target_folder().join(format!("fuzz-failure-{name}-{}", std::process::id()));
        let kept = fs::write(&path, input);
        panic!("target {name} panicked; its input is in {} ({kept:?})", path.display());
    }

    /// Stores inputs with new traits in the corpus, as small as possible.
    fn store(&mut self, found: Vec<(Vec<u8>, HashSet<u64>)>, stored: usize) {
        let folder = corpus_folder(self.target.name);
        fs::create_dir_all(&folder).expect("a folder for the corpus");
        let mut seen = HashSet::new();
        let mut count = stored;
        for (input, traits) in found {
            let missing: HashSet<u64> = traits.difference(&seen).copied().collect();
            if missing.is_empty() || count >= MAX_STORED {
                continue;
            }
            let small = self.smaller(input, &missing);
            if small.len() <= MAX_STORED_BYTES {
                seen.extend(missing);
                count += 1;
                let mut behaviour = Behaviour::new();
                behaviour.note(&small);
                let name = behaviour.beyond(&HashSet::new()).into_iter().next().unwrap_or_default();
                fs::write(folder.join(format!("{name:016x}")), &small).expect("a stored input");
            }
        }
    }

    /// Removes pieces that the traits do not need: of half the input, of a quarter, and so on.
    fn smaller(&mut self, mut input: Vec<u8>, traits: &HashSet<u64>) -> Vec<u8> {
        let mut trials = 0;
        let mut piece = input.len() / 2;
        while piece > 0 && trials < MAX_TRIALS {
            let mut at = 0;
            while at < input.len() && trials < MAX_TRIALS {
                let mut shorter = input.clone();
                shorter.drain(at..(at + piece).min(input.len()));
                trials += 1;
                if self.attempt(&shorter).covers(traits) {
                    input = shorter;
                } else {
                    at += piece;
                }
            }
            piece /= 2;
        }
        input
    }
}

/// Makes one random change.
pub fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    if input.is_empty() {
        input.push(0);
    }
    // Headers are hit more often than the rest.
    let span = if random.below(2) == 0 { input.len().min(256) } else { input.len() };
    let at = random.below(span);
    match random.below(10) {
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
        8 => splice(input, at, seeds, random),
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

/// Removes a piece, or inserts one of another input; the bytes after it move.
fn splice(input: &mut Vec<u8>, at: usize, seeds: &[Vec<u8>], random: &mut Random) {
    let length = 1 + random.below(48);
    if random.below(2) == 0 {
        input.drain(at..input.len().min(at + length));
    } else if let Some(other) = random.pick(seeds).filter(|other| !other.is_empty()) {
        let from = random.below(other.len());
        let piece = &other[from..other.len().min(from + length)];
        input.splice(at..at, piece.iter().copied());
    }
}
