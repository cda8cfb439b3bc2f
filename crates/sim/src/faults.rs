//! Devices and places that fail, and devices that lie.
//!
//! A bad place: a sector, or all that one write of the run wrote (a header, a cluster, a block, a run of contents),
//! fails for good from some write on. The operation that needs the place must report the error. Everything else must go
//! on, and what a sync acknowledged must stay.
//!
//! A device that fails: from some write or flush on, all fail. The filesystem must shut down in good order, and what it
//! had acknowledged must be there when the device works again. A device that lies: one bit of what is read is wrong, or
//! one sector reads as another. The filesystem must return what is right, or an error.

use crate::bad_place::{BadPlace, FailingRequests, TornWrite};
use crate::bounds::Bounds;
use crate::crash::crash;
use crate::cut::{Choice, Cut};
use crate::events::Event;
use crate::explore::{DeviceFault, Failure, Tally};
use crate::judge::{Crashed, Lie, judge, judge_lie, judge_with_bad_place};
use crate::pages::SECTOR_BYTES;
use crate::random::Random;
use crate::recording::{Recording, RunOptions, record};
use crate::workload::Workload;
use xfskit_engine::error_tags::TAGS;

/// Runs the workload `times` times, each time with an error tag, and judges what it leaves.
///
/// # Errors
/// The first failure.
pub fn explore_tags(workload: &'static Workload, seed: u64, times: u64, tally: &mut Tally) -> Result<(), Failure> {
    let mut random = Random::new(seed ^ 0x7461_6773);
    for _ in 0..times {
        let (tag, _) = TAGS[random.below(TAGS.len())];
        let nth = [1, 2, 3, 5, 8, 20, 60, 200][random.below(8)] + random.below(3) as u32;
        let run_options = RunOptions { tag: Some((tag, nth)), ..RunOptions::default() };
        judge_failed_run(workload, seed, run_options, DeviceFault::Tag(tag, nth), &mut random, tally)?;
    }
    Ok(())
}

/// Runs the workload `times` times on a device that fails from some write or flush on, and judges what it leaves.
///
/// # Errors
/// The first failure.
pub fn explore_failing(
    workload: &'static Workload,
    seed: u64,
    operations: u64,
    times: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let mut random = Random::new(seed ^ 0x6661_696c);
    for _ in 0..times {
        let first = random.next() % operations.max(1);
        let run_options = RunOptions { fail_from: Some(first), ..RunOptions::default() };
        judge_failed_run(workload, seed, run_options, DeviceFault::Fails(first), &mut random, tally)?;
    }
    Ok(())
}

/// Runs the workload `times` times on a device with a bad place, and judges what it leaves.
///
/// # Errors
/// The first failure.
pub fn explore_bad_places(
    workload: &'static Workload,
    seed: u64,
    recording: &Recording,
    times: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let mut random = Random::new(seed ^ 0x706c_6163_6573);
    for _ in 0..times {
        let Some(place) = bad_place(recording, random.next()) else { return Ok(()) };
        let run_options = RunOptions { bad_place: Some(place), ..RunOptions::default() };
        judge_failed_run(workload, seed, run_options, DeviceFault::Bad(place), &mut random, tally)?;
    }
    Ok(())
}

/// A place that the run writes to, chosen by a seed. It is seldom in the log, whose loss stops everything.
pub fn bad_place(recording: &Recording, seed: u64) -> Option<BadPlace> {
    let mut random = Random::new(seed);
    const SECTOR: u64 = SECTOR_BYTES as u64;
    let is_operation = |event: &&Event| matches!(event, Event::Write(..) | Event::Flush);
    let operations: Vec<&Event> = recording.events.iter().filter(is_operation).collect();
    let of_log = random.one_in(16);
    let places = operations.iter().enumerate().filter_map(|(number, event)| match event {
        Event::Write(offset, bytes) if recording.log.contains(offset) == of_log => {
            Some((number as u64, *offset, bytes.len() as u64))
        }
        _ => None,
    });
    let places: Vec<_> = places.collect();
    let &(number, offset, bytes) = random.pick(&places)?;
    let from = if random.one_in(2) { number } else { random.next() % (number + 1) };
    let refuses = [FailingRequests::Reads, FailingRequests::Writes, FailingRequests::Both][random.below(3)];
    let around = [TornWrite::Arrives, TornWrite::IsLost][random.below(2)];
    let whole = BadPlace { offset, bytes, refuses, around, from };
    let sector = offset + random.next() % (bytes / SECTOR) * SECTOR;
    Some(if random.one_in(2) { whole } else { BadPlace { offset: sector, bytes: SECTOR, ..whole } })
}

/// Judges what a run with a fault leaves, with all, none and some of the writes in flight.
fn judge_failed_run(
    workload: &'static Workload,
    seed: u64,
    run_options: RunOptions,
    device: DeviceFault,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let failed = |cut, fault| Failure { cut, later: Vec::new(), device, fault };
    let judge_state = |recording: &Recording, state: &Crashed, bounds: &Bounds| match device {
        DeviceFault::Bad(place) => judge_with_bad_place(recording, state, bounds, place),
        _ => judge(recording, state, bounds, true),
    };
    let whole = Cut { at: usize::MAX, choice: Choice::All };
    let (recording, _) = record(workload, seed, run_options).map_err(|fault| failed(whole, fault))?;
    if recording.digests.is_empty() {
        return Ok(());
    }
    let end = recording.events.len();
    let mut cuts = vec![(end, Choice::All), (end, Choice::None), (end, Choice::Seed(random.next() % 1_000_000))];
    if let DeviceFault::Bad(_) = device {
        // The run goes on after the first refusal, so the power may fail anywhere.
        let mut anywhere = || (random.below(end + 1), Choice::Seed(random.next() % 1_000_000));
        cuts.extend([anywhere(), anywhere(), anywhere()]);
    }
    for (at, choice) in cuts {
        let cut = Cut { at, choice };
        let (state, bounds) = crash(&recording, cut);
        tally.states += 1;
        if let Some(fault) = judge_state(&recording, &state, &bounds).fault {
            return Err(failed(cut, fault));
        }
    }
    Ok(())
}

/// Reads `times` states, each from a device with one lie.
///
/// # Errors
/// The first failure.
pub fn explore_lies(recording: &Recording, seed: u64, times: u64, tally: &mut Tally) -> Result<(), Failure> {
    let mut random = Random::new(seed ^ 0x6c69_6573);
    for _ in 0..times {
        let cut = Cut { at: random.below(recording.events.len() + 1), choice: Choice::All };
        let (state, bounds) = crash(recording, cut);
        let pages = state.pages();
        let mut sector = || {
            let page = pages[random.below(pages.len())];
            page * 8 + random.next() % 8
        };
        let lie = match sector() {
            to if to % 2 == 0 => Lie::Sector(to, sector()),
            to => Lie::Bit(to * 4096 + sector() * 31 % 4096),
        };
        tally.states += 1;
        if let Some(fault) = judge_lie(recording, &state, &bounds, lie).fault {
            return Err(Failure { cut, later: Vec::new(), device: DeviceFault::Lies(lie), fault });
        }
    }
    Ok(())
}
