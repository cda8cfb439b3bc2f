//! Runs on devices whose requests take long, so that the engine has several of them on their way.

use xfskit_sim::{Distance, Event, Plan, RunOptions, Tally, Together, WORKLOADS, explore, find, record};

/// A seed whose device is far for every workload.
const SEED: u64 = 9;

/// What a run consists of, in a form that can be compared.
fn history(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| format!("{event:?}")).collect()
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for workload in WORKLOADS {
        let [one, other] = [(); 2].map(|()| record(workload, SEED, RunOptions::default()).unwrap().0);
        assert_eq!(one.distance, Distance::Far);
        assert!(history(&one.events) == history(&other.events), "{}", workload.name);
    }
}

/// A cut leaves any of the records, blocks and contents that were on their way together.
#[test]
fn every_state_of_a_far_device_is_recovered() {
    let plan = Plan { states: 250, exhaustive_below: 16, later_cut_one_in: 8, failing_runs: 0, bad_places: 0, lies: 0 };
    let (mut tally, mut together) = (Tally::default(), Together::new());
    for seed in 1..13 {
        let (recording, _) = record(find("many-files").unwrap(), seed, RunOptions::default()).unwrap();
        for (name, pieces) in &recording.together {
            let most = together.entry(name.clone()).or_default();
            *most = (*pieces).max(*most);
        }
        let mut explored = Tally::default();
        let found = explore(&recording, &plan, seed, &mut explored, |_| true);
        tally += explored;
        assert!(found.is_ok(), "many-files seed {seed}: {}", found.unwrap_err());
    }
    println!("{tally:?}, {together:?}");
    // Records of a checkpoint up to the most between two flushes.
    for (name, least) in [("log", 8), ("write-back", 8), ("write-out", 8)] {
        assert!(together.get(name).is_some_and(|pieces| *pieces >= least), "{name}: {together:?}");
    }
    // So many records may be torn for recovery, the kernel's too; one of them may lie around the end of the log.
    assert!(together["log"] <= 9, "{together:?}");
}
