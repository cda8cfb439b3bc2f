//! Explores every workload for a while. `XFSKIT_CRASH_SECONDS` sets how long.

use std::time::Duration;
use xfskit_sim::{Campaign, Plan, WORKLOADS};

#[test]
fn every_state_is_recovered() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let campaign = Campaign {
        workloads: WORKLOADS.iter().collect(),
        first_seed: number("XFSKIT_SEED").unwrap_or(1),
        runs: u64::MAX,
        plan: Plan { states: 400, exhaustive_below: 16, later_cut_one_in: 8, failing_runs: 4, bad_places: 8, lies: 40 },
        threads: 2,
        limit: Some(Duration::from_secs(number("XFSKIT_CRASH_SECONDS").unwrap_or(20))),
        most_states: u64::MAX,
        most_failures: 8,
    };
    let summary = campaign.run(&|_| {});
    for (workload, tally) in &summary.tallies {
        eprintln!("{workload:12} {tally:?}");
    }
    eprintln!("{} states of {} runs in {:?}", summary.states(), summary.runs, summary.elapsed);
    for finding in &summary.findings {
        eprintln!("{finding}");
    }
    assert!(summary.findings.is_empty(), "{} states are wrong", summary.findings.len());
}
