//! A run from its image to its record: what can be cut, and what each cut is compared with.

use crate::bad_place::BadPlace;
use crate::clock::{Clock, World};
use crate::contents::Histories;
use crate::device::{Fault, SimDevice};
use crate::events::Event;
use crate::far::{Distance, Together, by_seed};
use crate::image::{has_past, make_image};
use crate::lower::Lower;
use crate::model::Model;
use crate::observed::Observed;
use crate::pages::Pages;
use crate::random::Random;
use crate::run::{ResumeOptions, Run, RunHistory, log_of};
use crate::stop::Stop;
use crate::tree::Tree;
use crate::workload::Workload;
use std::ops::Range;
use std::sync::Arc;
use xfskit_engine::{AttrLogging, AttrPath, Discard, Error, MountOptions, Volume};

/// A recorded run.
pub struct Recording {
    /// Size of the device.
    pub size_bytes: u64,
    /// The image as it was made.
    pub base: Arc<Pages>,
    /// What happened.
    pub events: Vec<Event>,
    /// What the tree looked like after each operation; first, before any.
    pub digests: Vec<u64>,
    /// The same in words; empty unless a transcript was asked for.
    pub trees: Vec<Vec<String>>,
    /// What the files contained.
    pub histories: Histories,
    /// How the filesystem was opened.
    pub options: MountOptions,
    /// Where the log lies on the device.
    pub log: Range<u64>,
    /// How far the device is.
    pub distance: Distance,
    /// What was done at the same time.
    pub together: Together,
}

/// Seeds, modulo 16, whose runs give freed space back. They are none of those whose states `tests/regressions.rs`
/// names, so that these stay the same.
const SEEDS_THAT_DISCARD: [u64; 2] = [4, 11];

/// The options with which a run opens the filesystem: the seed turns each mechanism on or off.
pub fn options_of(seed: u64) -> MountOptions {
    let mut random = Random::new(seed ^ 0x6f70_7469_6f6e_7300);
    MountOptions {
        attr_logging: [AttrLogging::Always, AttrLogging::Never][random.below(2)],
        attr_path: [AttrPath::Fast, AttrPath::Fast, AttrPath::General, AttrPath::Intents][random.below(4)],
        whiteouts: !random.one_in(4),
        known_absent: !random.one_in(4),
        wsync: random.one_in(8),
        discard: if SEEDS_THAT_DISCARD.contains(&(seed % 16)) { Discard::Freed } else { Discard::Nothing },
        ..MountOptions::default()
    }
}

/// The faults of a run, and whether it keeps a transcript.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The device fails from this write or flush on.
    pub fail_from: Option<u64>,
    /// The code that an error tag names fails when it is passed for the nth time.
    pub tag: Option<(&'static str, u32)>,
    /// The device has a bad place.
    pub bad_place: Option<BadPlace>,
    /// Keep the operations and the trees in words.
    pub transcript: bool,
}

/// Runs a workload with a seed. A device failure ends the run in good order.
///
/// # Errors
/// Something that must not happen, with the transcript if it was asked for.
pub fn record(workload: &Workload, seed: u64, run_options: RunOptions) -> Result<(Recording, Vec<String>), String> {
    record_on(workload, seed, run_options, None)
}

/// Makes the storage below a run's device, of the size and with the contents that are given.
pub type MakeLower<'a> = &'a dyn Fn(u64, &Pages) -> Arc<dyn Lower>;

/// As [`record`], on a device that lies on other storage. A failure of that is one of the device.
///
/// # Errors
/// As [`record`].
pub fn record_on(
    workload: &Workload,
    seed: u64,
    run_options: RunOptions,
    lower: Option<MakeLower<'_>>,
) -> Result<(Recording, Vec<String>), String> {
    let (recorded, together) = by_seed(seed, || record_in_order(workload, seed, run_options, lower));
    let (recording, transcript) = recorded?;
    Ok((Recording { together, ..recording }, transcript))
}

/// Begins the record of a device, with what is to go wrong on it.
fn prepare(device: &SimDevice, seed: u64, run_options: &RunOptions, lower: Option<Arc<dyn Lower>>) {
    if Random::new(seed ^ 0x0066_7561).one_in(2) {
        device.write_fua_from_here();
    }
    device.start_record();
    if let Some(lower) = lower {
        device.lie_on(lower);
    }
    if let Some(first) = run_options.fail_from {
        device.set_fault(Some(Fault::FailFrom(first)));
    }
    if let Some(place) = run_options.bad_place {
        device.set_fault(Some(Fault::BadPlace(place)));
    }
}

fn record_in_order(
    workload: &Workload,
    seed: u64,
    run_options: RunOptions,
    lower: Option<MakeLower<'_>>,
) -> Result<(Recording, Vec<String>), String> {
    let mut random = Random::new(seed);
    let shape = (workload.shape)(&mut random);
    let text = |stop| match stop {
        Stop::Device => "the device failed although nothing asked it to".to_owned(),
        Stop::Wrong(what) => what,
    };
    let (size_bytes, pages) = make_image(&shape, seed).map_err(text)?;
    let base = Arc::new(pages);
    let distance = (workload.distance)(seed);
    let device = Arc::new(SimDevice::new(size_bytes, Arc::clone(&base), Pages::default()));
    device.want_requests(distance.queue_depth());
    prepare(&device, seed, &run_options, lower.map(|make| make(size_bytes, &base)));
    let mut options = options_of(seed);
    options.error_tags.extend(run_options.tag);
    let is_faulty = run_options.fail_from.is_some() || run_options.tag.is_some() || run_options.bad_place.is_some();
    let may_fail = is_faulty || lower.is_some();
    let recording = |device: &SimDevice, history: RunHistory, log| Recording {
        size_bytes,
        base: Arc::clone(&base),
        events: device.take_record(),
        digests: history.digests,
        trees: history.trees,
        histories: history.histories,
        options: MountOptions { error_tags: Vec::new(), ..options.clone() },
        log,
        distance,
        together: Together::new(),
    };
    let clock = Arc::new(Clock::new());
    let env = Arc::new(World::new(seed, &clock));
    let fs = match Volume::open_in(Arc::clone(&device) as _, None, options.clone(), env) {
        Ok(fs) => fs,
        Err(Error::Io { .. } | Error::Shutdown(_)) if may_fail => {
            return Ok((recording(&device, RunHistory::default(), 0..0), Vec::new()));
        }
        Err(error) => return Err(format!("the new image cannot be opened: {error}")),
    };
    let log = log_of(fs.mount());
    let root = match Observed::new(&fs).node(fs.root().0) {
        Ok(root) => root,
        Err(Error::Io { .. } | Error::Shutdown(_)) if may_fail => {
            drop(fs);
            return Ok((recording(&device, RunHistory::default(), log), Vec::new()));
        }
        Err(error) => return Err(format!("the root: {error}")),
    };
    let model = Model::new(fs.root(), &root);
    let wanted = ResumeOptions { in_words: run_options.transcript, sets_attributes: has_past(seed) };
    let mut run = Run::resume(fs, &device, options.clone(), model, (seed, clock), wanted);
    run.random = random;
    let outcome = (workload.run)(&mut run).and_then(|()| run.remount());
    let mut history = run.into_history();
    let transcript = std::mem::take(&mut history.transcript);
    match outcome {
        Ok(()) => {}
        Err(Stop::Device) if may_fail => {}
        Err(stop) => return Err(format!("{}\n{}", text(stop), transcript.join("\n"))),
    }
    Ok((recording(&device, history, log), transcript))
}
