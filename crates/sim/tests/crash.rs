//! Explores every workload for a while. `XFSKIT_CRASH_STATES` sets how many states each sees.

use xfskit_sim::{Plan, WORKLOADS, Wishes, explore, record};

#[test]
fn every_state_is_recovered() {
    let states = std::env::var("XFSKIT_CRASH_STATES").ok().and_then(|states| states.parse().ok()).unwrap_or(300);
    let seed: u64 = std::env::var("XFSKIT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for workload in WORKLOADS {
        let start = std::time::Instant::now();
        let (recording, _) = record(workload, seed, Wishes::default()).unwrap_or_else(|e| panic!("{}: {e}", workload.name));
        let recorded = start.elapsed();
        let plan = Plan { states, exhaustive_below: 16, second_cut_one_in: 8 };
        match explore(&recording, &plan, seed, |_| true) {
            Ok(tally) => eprintln!(
                "{}: {} operations, {} events in {recorded:?}; {tally:?} in {:?}",
                workload.name,
                recording.digests.len(),
                recording.events.len(),
                start.elapsed()
            ),
            Err((tally, failure)) => panic!("{} seed {seed}: {failure} after {tally:?}", workload.name),
        }
    }
}
