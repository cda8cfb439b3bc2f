//! States that are easy to recover or to check wrongly, each with the mistake to avoid.

use xfskit_sim::{DeviceFault, RunOptions, find, record, replay};

const STATES: &[(&str, u64, &str)] = &[
    // The end of the log was lost in its first pass, and the start of its second pass arrived. Recovery must not take
    // this for a log in its first pass, whose start has nothing before it.
    ("no-space", 4001, "27234:s837678"),
    // An exchange under the policy `always` must log the intents for both parent pointers before it does the first.
    ("renames", 1009, "728:all"),
    // A batch must log the intents for all its changes before it does the first.
    ("attributes", 1031, "685:all"),
    // The power fails after blocks were mapped for a value, and before the first link of its intent. Recovery maps
    // other blocks, and must free these.
    ("no-space", 15001, "13831:all"),
    // Two files share blocks, and a transaction that is not durable removes one file's reference. The other file must
    // not write them in place yet: after a crash the first file would have bytes that were never written to it.
    ("sharing", 2, "95:s413684"),
    ("contents", 5, "321:s512845"),
    ("full-contents", 1, "280:n1"),
    // An append, and a punch, after a truncation that is not durable: a crash must not give the file its old size with
    // a sector that mixes old and new bytes.
    ("contents", 6, "321:all"),
    ("contents", 1011, "156:n4"),
    ("contents", 15, "156:all"),
    // The unmount record begins in the last sector of the log and ends in the first. Check must take the log for clean.
    ("no-space", 2300000, "26942:s431406"),
    // A clone must not free everything that the target has in the range before it shares the first extent.
    ("sharing", 14, "301:all"),
    // The kernel has stamped the sectors ahead of the head of a small log. Recovery looks for torn records there, and
    // must not take the stamps for records that did not arrive.
    ("log-wrap", 8, "20:all"),
    // xfsprogs has formatted a log of less than 4,608 sectors. The sectors that it leaves empty are among those that
    // can have been in flight. Recovery must not take them for records that did not arrive, and must open the image.
    ("log-wrap", 13, "0:all"),
];

#[test]
fn what_was_wrong_once_is_right() {
    for (workload, seed, cut) in STATES {
        let found = find(workload).unwrap();
        let (recording, _) = record(found, *seed, RunOptions::default()).unwrap();
        let outcome = replay(&recording, cut.parse().unwrap(), &[], DeviceFault::None);
        assert!(outcome.is_ok(), "{workload} seed {seed}: {outcome:?}");
    }
}
