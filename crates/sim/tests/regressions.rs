//! States in which the simulator once found something wrong, each with its story.

use xfskit_sim::{DeviceFault, Wishes, find, record, replay};

const STATES: &[(&str, u64, &str)] = &[
    // The log's end had not arrived in its first pass, and its start had in its second: recovery took it for a log in
    // its first pass, whose start has nothing before it.
    ("no-space", 4001, "27234:s837678"),
    // An exchange under the policy `always` logged the intent for its second parent pointer only when the first was
    // done.
    ("renames", 1009, "728:all"),
    // So did the changes of a batch.
    ("attributes", 1031, "685:all"),
    // Blocks had been mapped for a value when the power failed, before its intent's first link. Recovery mapped others,
    // and nobody freed these.
    ("no-space", 15001, "13831:all"),
    // A file had shared blocks, the other's reference had gone by a transaction that was not durable, and they were
    // written in place: the crash gave the other file bytes that it never had.
    ("sharing", 2, "95:s413684"),
    ("contents", 5, "321:s512845"),
    ("full-contents", 1, "280:n1"),
    // An append, and a punch, behind a truncation that was not durable: the old size came back, and one sector with the
    // old bytes and the new.
    ("contents", 6, "321:all"),
    ("contents", 1011, "156:n4"),
    ("contents", 15, "156:all"),
    // The unmount record began in the last sector of the log and ended in the first: check took the log for a dirty
    // one.
    ("no-space", 2300000, "26942:s431406"),
    // A clone freed all that the target had in the range before it shared the first extent.
    ("sharing", 14, "301:all"),
    // The kernel had stamped the sectors ahead of the head of a small log: what was looked at for torn records held
    // stamps, and recovery took them for records that had not arrived.
    ("log-wrap", 8, "20:all"),
    // xfsprogs had formatted a log of less than 4,608 sectors: the sectors that it leaves empty were within those that
    // can have been in flight, and were taken for records that had not arrived. The image could not be opened.
    ("log-wrap", 13, "0:all"),
];

#[test]
fn what_was_wrong_once_is_right() {
    for (workload, seed, cut) in STATES {
        let found = find(workload).unwrap();
        let (recording, _) = record(found, *seed, Wishes::default()).unwrap();
        let outcome = replay(&recording, cut.parse().unwrap(), &[], DeviceFault::None);
        assert!(outcome.is_ok(), "{workload} seed {seed}: {outcome:?}");
    }
}
