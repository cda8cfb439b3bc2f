//! Work after a cut: a state is recovered, work goes on, and the power fails again, during recovery or after it.
//!
//! ```text
//! state ─▶ recover ─▶ model of the tree found ─▶ some operations ─▶ record ─▶ cut ─▶ state ─▶ ...
//!          └──────────────── recorded ────────────────────────┘
//! ```
//! What follows a cut is a function of the run and the cut, so a list of cuts names a state.

use crate::clock::{Clock, World};
use crate::contents::Contents;
use crate::crash::crash;
use crate::cut::{Choice, Cut};
use crate::events::Event;
use crate::far::{Together, by_seed};
use crate::judge::{Crashed, Verdict, judge, without_panic};
use crate::model::Model;
use crate::observed::Observed;
use crate::pages::Pages;
use crate::random::Random;
use crate::recording::Recording;
use crate::run::{ResumeOptions, Run};
use crate::stop::Stop;
use crate::workload::go_on;
use std::sync::Arc;
use xfskit_engine::{Error, Volume};

/// The cuts that follow the first.
#[derive(Clone, Copy, Debug)]
pub enum Later<'a> {
    /// These.
    Cuts(&'a [Cut]),
    /// Random ones by a seed: one, and in a third of the cases a second.
    Seed(u64),
}

/// Goes on after a cut, and cuts the power again as often as `later` says; judges what the last recovery leaves.
/// Returns the later cuts with the verdict.
pub fn judge_later(recording: &Recording, first: Cut, state: Crashed, later: Later<'_>) -> (Vec<Cut>, Verdict) {
    let mut random = Random::new(if let Later::Seed(seed) = later { seed } else { 0 });
    let count = match later {
        Later::Cuts(cuts) => cuts.len(),
        Later::Seed(_) => 1 + usize::from(random.one_in(3)),
    };
    let (mut state, mut before, mut cuts, mut history) = (state, None, vec![first], String::new());
    loop {
        let last = cuts[cuts.len() - 1];
        let go_on = || live_on(before.as_ref().unwrap_or(recording), &state, last);
        let after = match without_panic(|| by_seed(seed_of(last), go_on).0) {
            Ok((after, transcript)) => {
                transcript.iter().for_each(|line| history += &format!("\nafter {last}, {line}"));
                after
            }
            Err(fault) => return (cuts.split_off(1), Verdict { digest: 0, fault: Some(fault) }),
        };
        let cut = match later {
            Later::Cuts(later) => later[cuts.len() - 1],
            Later::Seed(_) => any_cut(&after, &mut random),
        };
        cuts.push(cut);
        let (next, bounds) = crash(&after, cut);
        if cuts.len() > count {
            let mut verdict = judge(&after, &next, &bounds, true);
            verdict.fault = verdict.fault.map(|fault| fault + &history);
            return (cuts.split_off(1), verdict);
        }
        (state, before) = (next, Some(after));
    }
}

/// A cut: as often during recovery as after it.
fn any_cut(recording: &Recording, random: &mut Random) -> Cut {
    let all = recording.events.len();
    let recovered = recording.events.iter().position(|event| matches!(event, Event::Prepared)).unwrap_or(all);
    let at = if random.one_in(2) { random.below(recovered + 1) } else { recovered + random.below(all - recovered + 1) };
    let choice = match random.below(4) {
        0 => Choice::All,
        1 => Choice::None,
        _ => Choice::Seed(random.next() % 1_000_000),
    };
    Cut { at, choice }
}

/// The seed of the work after a cut.
fn seed_of(cut: Cut) -> u64 {
    let choice = match cut.choice {
        Choice::All => 0,
        Choice::None => 1,
        Choice::Seed(seed) => seed << 2 | 2,
        Choice::Number(number) => number << 2 | 3,
    };
    Random::new((cut.at as u64) << 32 ^ choice).next()
}

/// Recovers a state and works on it. Returns the recording, and the operations in words if `recording` has its trees in
/// words.
fn live_on(recording: &Recording, state: &Crashed, cut: Cut) -> Result<(Recording, Vec<String>), String> {
    let device = state.device();
    device.want_requests(recording.distance.queue_depth());
    device.start_record();
    let seed = seed_of(cut);
    let (options, clock) = (recording.options.clone(), Arc::new(Clock::new()));
    let world = Arc::new(World::new(seed, &clock));
    let fs = Volume::open_in(Arc::clone(&device) as _, None, options.clone(), world);
    let fs = fs.map_err(|error| format!("recovery: {error}"))?;
    let model = read_model(&fs).map_err(|error| format!("reading the recovered tree: {error}"))?;
    clock.advance(model.latest_change());
    let wanted = ResumeOptions { in_words: !recording.trees.is_empty(), sets_attributes: true };
    let mut run = Run::resume(fs, &device, options, model, (seed, clock), wanted);
    run.prepared();
    go_on(&mut run).map_err(|stop| match stop {
        Stop::Device => "after recovery the device failed although nothing asked it to".to_owned(),
        Stop::Wrong(what) => format!("after recovery: {what}"),
    })?;
    let history = run.into_history();
    let mut whole = Pages::clone(&state.base);
    whole.extend(state.own.iter().map(|(page, bytes)| (*page, Arc::clone(bytes))));
    let recording = Recording {
        size_bytes: recording.size_bytes,
        base: Arc::new(whole),
        events: device.take_record(),
        digests: history.digests,
        trees: history.trees,
        histories: history.histories,
        options: recording.options.clone(),
        log: recording.log.clone(),
        distance: recording.distance,
        together: Together::new(),
    };
    Ok((recording, history.transcript))
}

/// Reads the tree of a filesystem, with the contents of its files.
fn read_model(fs: &Volume) -> Result<Model, Error> {
    let mut model = Model::of(&Observed::new(fs))?;
    for node in model.files() {
        *model.contents_mut(node) = Contents::read(fs, model.number(node))?;
    }
    Ok(model)
}
