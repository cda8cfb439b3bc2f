//! Devices and places that fail, and devices that lie.
//!
//! A device that fails: from some write or flush on, all fail. The filesystem must shut down in good order, and what it had
//! acknowledged must be there when the device works again. A device that lies: one bit of what is read is wrong, or one sector is
//! another's. Whatever is read must be right or refused.

use crate::cut::{Choice, Cut};
use crate::explore::{DeviceFault, Failure, Tally, crash};
use crate::judge::{Lie, judge, judge_lie};
use crate::random::Random;
use crate::run::{Recording, Wishes, record};
use crate::workload::Workload;
use xfskit::error_tags::TAGS;

/// Runs the workload `times` times with a place that fails, by its error tag, and judges what it leaves.
///
/// # Errors
/// The first failure.
pub fn explore_tags(workload: &'static Workload, seed: u64, times: u64, tally: &mut Tally) -> Result<(), Failure> {
    let mut random = Random::new(seed ^ 0x7461_6773);
    for _ in 0..times {
        let (tag, _) = TAGS[random.below(TAGS.len())];
        let nth = [1, 2, 3, 5, 8, 20, 60, 200][random.below(8)] + random.below(3) as u32;
        let wishes = Wishes { tag: Some((tag, nth)), ..Wishes::default() };
        judge_failed_run(workload, seed, wishes, DeviceFault::Tag(tag, nth), &mut random, tally)?;
    }
    Ok(())
}

/// Runs the workload `times` times on a device that fails at some place, and judges what it leaves.
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
        let wishes = Wishes { fail_from: Some(first), ..Wishes::default() };
        judge_failed_run(workload, seed, wishes, DeviceFault::Fails(first), &mut random, tally)?;
    }
    Ok(())
}

/// What was left by a run that was made to fail, with all, nothing and some of what was in flight.
fn judge_failed_run(
    workload: &'static Workload,
    seed: u64,
    wishes: Wishes,
    device: DeviceFault,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let failed = |cut, fault| Failure { cut, later: Vec::new(), device, fault };
    let whole = Cut { at: usize::MAX, choice: Choice::All };
    let (recording, _) = record(workload, seed, wishes).map_err(|fault| failed(whole, fault))?;
    if recording.digests.is_empty() {
        return Ok(());
    }
    for choice in [Choice::All, Choice::None, Choice::Seed(random.next() % 1_000_000)] {
        let cut = Cut { at: recording.events.len(), choice };
        let (state, bounds) = crash(&recording, cut);
        tally.states += 1;
        if let Some(fault) = judge(&recording, &state, &bounds, true).fault {
            return Err(failed(cut, fault));
        }
    }
    Ok(())
}

/// Reads `times` states with a lie each.
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
