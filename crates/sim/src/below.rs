//! Power cuts below the device of a run: in the file of a virtual disk, or in the disk of a server.
//!
//! ```text
//! engine ─▶ SimDevice ─▶ Lower: a format or a protocol ─▶ its storage, whose writes and flushes are recorded,
//!              │                                           with the marks of the run between them
//!              └ reads, and the record of the run's own device
//! storage + cut ─▶ what the format makes of it: the pages of the run's device ─▶ judged as every other state
//! ```
//! So the promise of a flush is tested through all that lies between the engine and the disk.

use crate::bounds::Bounds;
use crate::cut::{Choice, Cut, Walk};
use crate::events::Event;
use crate::explore::{DeviceFault, Failure, Tally};
use crate::judge::{Crashed, judge};
use crate::pages::Pages;
use crate::random::Random;
use crate::recording::Recording;
use std::collections::HashSet;
use std::sync::Arc;

/// What happened on the storage.
pub struct Below {
    /// Its size.
    pub size_bytes: u64,
    /// Its contents at the start.
    pub base: Arc<Pages>,
    /// Its writes and flushes, with the marks of the run.
    pub events: Vec<Event>,
}

/// Cuts the power of the storage at about `states` places. `recover` makes the pages of the run's device of what a cut
/// left.
///
/// # Errors
/// The first failure.
pub fn explore_below(
    recording: &Recording,
    below: &Below,
    states: u64,
    seed: u64,
    mut recover: impl FnMut(&Crashed) -> Result<Pages, String>,
) -> Result<Tally, Failure> {
    let mut random = Random::new(seed ^ 0x6265_6c6f);
    let mut tally = Tally::default();
    let start = below.events.iter().position(|event| matches!(event, Event::Prepared)).unwrap_or(0);
    let places: Vec<usize> = (start..=below.events.len())
        .filter(|&at| at == 0 || matches!(below.events[at - 1], Event::Write(..) | Event::WriteDurable | Event::Flush))
        .collect();
    let choices = (states / places.len().max(1) as u64).max(1);
    let skip = (places.len() as u64 / states.max(1)).max(1);
    // Before a flush most is in doubt: half of the states are there.
    let flushes = places.iter().filter(|&&at| matches!(below.events.get(at), Some(Event::Flush))).count() as u64;
    let skip_flushes = (flushes * 2 / states.max(1)).max(1);
    let mut walk = Walk::new(Arc::clone(&below.base), &below.events);
    let mut seen = HashSet::new();
    for at in places {
        let is_before_flush = matches!(below.events.get(at), Some(Event::Flush));
        let skip = if is_before_flush { skip_flushes } else { skip * 2 };
        if skip > 1 && !random.next().is_multiple_of(skip) {
            continue;
        }
        walk.advance(at);
        tally.cuts += 1;
        for number in 0..choices {
            let choice = match (number, choices) {
                (0, 2..) => Choice::All,
                (1, 2..) => Choice::None,
                _ => Choice::Seed(random.next() % 1_000_000),
            };
            let outcome = walk.doubt().outcome(walk.durable(), choice);
            if !seen.insert((walk.settled(), outcome.fingerprint, walk.bounds().clone())) {
                tally.repeated += 1;
                continue;
            }
            tally.states += 1;
            let state = Crashed { size_bytes: below.size_bytes, base: Arc::clone(walk.durable()), own: outcome.pages };
            let judged = recover(&state).and_then(|pages| judge_pages(recording, pages, walk.bounds()));
            let cut = Cut { at, choice };
            judged.map_err(|fault| Failure { cut, later: Vec::new(), device: DeviceFault::None, fault })?;
        }
    }
    Ok(tally)
}

/// Judges what storage that failed has left: the pages of the run's device. `marks` are those of the run that came
/// before the failure.
///
/// # Errors
/// What is wrong.
pub fn judge_lower(recording: &Recording, marks: &[Event], pages: Pages) -> Result<(), String> {
    let mut walk = Walk::new(Arc::default(), marks);
    walk.advance(marks.len());
    judge_pages(recording, pages, walk.bounds())
}

fn judge_pages(recording: &Recording, pages: Pages, bounds: &Bounds) -> Result<(), String> {
    let state = Crashed { size_bytes: recording.size_bytes, base: Arc::new(pages), own: Pages::default() };
    judge(recording, &state, bounds, true).fault.map_or(Ok(()), Err)
}
