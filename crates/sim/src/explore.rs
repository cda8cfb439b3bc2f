//! Goes over the states in which a cut may leave a device, and judges each.

use crate::bad_place::BadPlace;
use crate::bounds::Bounds;
use crate::crash::crash;
use crate::cut::{Choice, Cut, Walk};
use crate::events::Event;
use crate::judge::{Crashed, Lie, judge, judge_lie, judge_with_bad_place};
use crate::onward::{Later, judge_later};
use crate::random::Random;
use crate::recording::Recording;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// How much of a run is explored.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// States, at most.
    pub states: u64,
    /// At a cut with fewer combinations of sectors than this, all are explored; at the others, random ones.
    pub exhaustive_below: u64,
    /// In one of this many states work goes on, and the power is cut again during recovery or after it.
    pub later_cut_one_in: usize,
    /// Times that the run is repeated on a device that fails, and times that it is repeated with an error tag.
    pub failing_runs: u64,
    /// Times that the run is repeated on a device with a bad place.
    pub bad_places: u64,
    /// States that are read from a device that lies.
    pub lies: u64,
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// States judged, those after a second cut or a third included.
    pub states: u64,
    /// States after a second or third cut; `states` counts them too.
    pub later_cuts: u64,
    /// Choices that led to a state that had been judged already.
    pub repeated: u64,
    /// Positions of cuts.
    pub cuts: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.states += more.states;
        self.later_cuts += more.later_cuts;
        self.repeated += more.repeated;
        self.cuts += more.cuts;
    }
}

/// A state that was found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The cut.
    pub cut: Cut,
    /// The cuts after it.
    pub later: Vec<Cut>,
    /// What else was wrong with the device.
    pub device: DeviceFault,
    /// What is wrong.
    pub fault: String,
}

/// What was wrong with the device besides the cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceFault {
    /// Nothing.
    #[default]
    None,
    /// From this write or flush of the run on, all failed.
    Fails(u64),
    /// The code that an error tag names failed when it was passed for the nth time.
    Tag(&'static str, u32),
    /// The state was read from a device that lied.
    Lies(Lie),
    /// One place failed.
    Bad(BadPlace),
}

impl Failure {
    /// The options that name the state to the command.
    pub fn options(&self) -> String {
        let later: String = self.later.iter().map(|cut| format!("/{cut}")).collect();
        let device = match self.device {
            DeviceFault::None => String::new(),
            DeviceFault::Fails(first) => format!(" --fail-from {first}"),
            DeviceFault::Tag(tag, nth) => format!(" --errortag {tag}:{nth}"),
            DeviceFault::Lies(lie) => format!(" --lie {lie}"),
            DeviceFault::Bad(place) => format!(" --bad-place {place}"),
        };
        format!("--state {}{later}{device}", self.cut)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.options(), self.fault)
    }
}

/// Judges one state again.
///
/// # Errors
/// The failure.
pub fn replay(recording: &Recording, cut: Cut, later: &[Cut], device: DeviceFault) -> Result<(), Failure> {
    let (state, bounds) = crash(recording, cut);
    if let DeviceFault::Lies(lie) = device {
        let fault = judge_lie(recording, &state, &bounds, lie).fault;
        return fault.map_or(Ok(()), |fault| Err(Failure { cut, later: Vec::new(), device, fault }));
    }
    if let DeviceFault::Bad(place) = device {
        let fault = judge_with_bad_place(recording, &state, &bounds, place).fault;
        return fault.map_or(Ok(()), |fault| Err(Failure { cut, later: Vec::new(), device, fault }));
    }
    if later.is_empty() {
        judge_state(recording, &state, &bounds, cut)
    } else {
        judge_later_cuts(recording, state, cut, Later::Cuts(later))
    }
}

fn judge_state(recording: &Recording, state: &Crashed, bounds: &Bounds, cut: Cut) -> Result<(), Failure> {
    let fault = judge(recording, state, bounds, true).fault;
    fault.map_or(Ok(()), |fault| Err(Failure { cut, later: Vec::new(), device: DeviceFault::None, fault }))
}

fn judge_later_cuts(recording: &Recording, state: Crashed, cut: Cut, later: Later<'_>) -> Result<(), Failure> {
    let (later, verdict) = judge_later(recording, cut, state, later);
    verdict.fault.map_or(Ok(()), |fault| Err(Failure { cut, later, device: DeviceFault::None, fault }))
}

/// Explores a run. `go_on` is called at each position with the tally so far; it returns false to end the exploration.
///
/// # Errors
/// The first failure.
pub fn explore(
    recording: &Recording,
    plan: &Plan,
    seed: u64,
    tally: &mut Tally,
    mut go_on: impl FnMut(&Tally) -> bool,
) -> Result<(), Failure> {
    let mut random = Random::new(seed ^ 0x6578_706c);
    let start = recording.events.iter().position(|event| matches!(event, Event::Prepared)).unwrap_or(0);
    let places: Vec<usize> = (start..=recording.events.len())
        .filter(|&at| {
            at == 0 || matches!(recording.events[at - 1], Event::Write(..) | Event::WriteDurable | Event::Flush)
        })
        .collect();
    // The choices at each position share the states that are allowed; positions are skipped if these are fewer.
    let choices = (plan.states / places.len().max(1) as u64).max(1);
    let skip = (places.len() as u64 / plan.states.max(1)).max(1);
    let mut walk = Walk::new(Arc::clone(&recording.base), &recording.events);
    let mut seen = HashSet::new();
    for (index, at) in places.into_iter().enumerate() {
        if tally.states >= plan.states || !go_on(tally) {
            break;
        }
        if skip > 1 && !random.next().is_multiple_of(skip) && index > 0 {
            continue;
        }
        walk.advance(at);
        tally.cuts += 1;
        let bounds = walk.bounds().clone();
        let combinations = walk.doubt().combinations(plan.exhaustive_below);
        for choice in choices_at(combinations, choices, &mut random) {
            let cut = Cut { at, choice };
            let outcome = walk.doubt().outcome(walk.durable(), choice);
            if !seen.insert((walk.settled(), outcome.fingerprint, bounds.clone())) {
                tally.repeated += 1;
                continue;
            }
            let own = outcome.pages;
            let state = Crashed { size_bytes: recording.size_bytes, base: Arc::clone(walk.durable()), own };
            tally.states += 1;
            judge_state(recording, &state, &bounds, cut)?;
            if random.one_in(plan.later_cut_one_in.max(1)) {
                tally.states += 1;
                tally.later_cuts += 1;
                judge_later_cuts(recording, state, cut, Later::Seed(random.next()))?;
            }
        }
    }
    Ok(())
}

/// The choices to try at a position.
fn choices_at(combinations: Option<u64>, count: u64, random: &mut Random) -> Vec<Choice> {
    match combinations {
        Some(combinations) => (0..combinations).map(Choice::Number).collect(),
        None => {
            let seeds = (2..count).map(|_| Choice::Seed(random.next() % 1_000_000));
            // A single choice decides every sector at random.
            if count == 1 {
                return vec![Choice::Seed(random.next() % 1_000_000)];
            }
            [Choice::All, Choice::None].into_iter().chain(seeds).collect()
        }
    }
}
