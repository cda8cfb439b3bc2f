//! Recovers what a cut left, and compares the tree with the model.

use crate::cut::{Choice, Cut, Walk};
use crate::device::{Pages, SimDevice};
use crate::observed::Observed;
use crate::random::Random;
use crate::run::Recording;
use crate::tree::{describe, digest};
use std::sync::Arc;
use xfskit::env::SeededEnvironment;
use xfskit::{Filesystem, MountOptions};

/// What a judgement came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The tree as recovery left it.
    pub digest: u64,
    /// What is wrong; nothing, as it should be.
    pub fault: Option<String>,
}

/// A state of the device after a cut, over pages that other states share.
pub struct Crashed {
    /// Size of the device.
    pub size_bytes: u64,
    /// What was durable.
    pub base: Arc<Pages>,
    /// What arrived of the rest.
    pub own: Pages,
}

impl Crashed {
    /// The device.
    pub fn device(&self) -> Arc<SimDevice> {
        Arc::new(SimDevice::new(self.size_bytes, Arc::clone(&self.base), self.own.clone()))
    }

    /// All contents, for judges outside of the process.
    pub fn bytes(&self) -> Vec<(u64, Vec<u8>)> {
        let mut all: std::collections::BTreeMap<u64, Vec<u8>> =
            self.base.iter().map(|(page, bytes)| (*page, bytes.to_vec())).collect();
        all.extend(self.own.iter().map(|(page, bytes)| (*page, bytes.to_vec())));
        all.into_iter().collect()
    }
}

fn options(recording: &Recording) -> MountOptions {
    MountOptions { wsync: false, ..recording.options.clone() }
}

/// Recovers a state and reads the tree; then closes the image and has it checked. The tree must be one of those that
/// the model went through between the operations of `bounds`.
pub fn judge(recording: &Recording, state: &Crashed, bounds: (usize, usize), check: bool) -> Verdict {
    let device = state.device();
    match recover(recording, &device, check) {
        Err(fault) => Verdict { digest: 0, fault: Some(fault) },
        Ok(found) => {
            let expected = &recording.digests[bounds.0..=bounds.1];
            let fault = (!expected.contains(&found)).then(|| describe_difference(recording, found, bounds));
            Verdict { digest: found, fault }
        }
    }
}

fn describe_difference(recording: &Recording, found: u64, bounds: (usize, usize)) -> String {
    let elsewhere = recording.digests.iter().position(|digest| *digest == found);
    let is = match elsewhere {
        Some(operation) => format!("it is the tree after operation {operation}"),
        None => "it is the tree after no operation".to_owned(),
    };
    format!("the tree must be one between operations {} and {}: {is}", bounds.0, bounds.1)
}

/// Opens, which recovers; reads everything; closes; checks.
fn recover(recording: &Recording, device: &Arc<SimDevice>, check: bool) -> Result<u64, String> {
    let env = Arc::new(SeededEnvironment::new(1));
    let fs = Filesystem::open_in(Arc::clone(device) as _, None, options(recording), env)
        .map_err(|error| format!("recovery: {error}"))?;
    let lines = describe(&Observed(&fs)).map_err(|error| format!("reading the recovered tree: {error}"))?;
    let found = digest(&lines);
    fs.unmount().map_err(|error| format!("closing the recovered image: {error}"))?;
    if check {
        check_image(device)?;
    }
    Ok(found)
}

/// Has an image checked that was closed in good order.
fn check_image(device: &Arc<SimDevice>) -> Result<(), String> {
    let _ = device;
    Ok(())
}

/// Recovers a state with a second cut during recovery, and judges what the second recovery leaves.
///
/// # Errors
/// As a verdict's fault.
pub fn judge_second_cut(
    recording: &Recording,
    state: &Crashed,
    bounds: (usize, usize),
    second: Second,
) -> Result<(Cut, Verdict), String> {
    let device = state.device();
    device.start_record();
    let env = Arc::new(SeededEnvironment::new(1));
    let fs = Filesystem::open_in(Arc::clone(&device) as _, None, options(recording), env)
        .map_err(|error| format!("recovery: {error}"))?;
    drop(fs);
    let events = device.take_record();
    let cut = match second {
        Second::Cut(cut) => Cut { at: cut.at.min(events.len()), ..cut },
        Second::Seed(seed) => {
            let mut random = Random::new(seed);
            let choice = match random.below(4) {
                0 => Choice::All,
                1 => Choice::None,
                _ => Choice::Seed(random.next() % 1_000_000),
            };
            Cut { at: random.below(events.len() + 1), choice }
        }
    };
    let mut whole = Pages::clone(&state.base);
    whole.extend(state.own.iter().map(|(page, bytes)| (*page, Arc::clone(bytes))));
    let mut walk = Walk::new(Arc::new(whole), &events);
    walk.advance(cut.at);
    let own = walk.doubt(cut.at).outcome(walk.durable(), cut.choice);
    let again = Crashed { size_bytes: state.size_bytes, base: Arc::clone(walk.durable()), own };
    Ok((cut, judge(recording, &again, bounds, true)))
}

/// A second cut: this one, or one that a seed decides once it is known how long recovery is.
#[derive(Clone, Copy, Debug)]
pub enum Second {
    /// This one.
    Cut(Cut),
    /// Any.
    Seed(u64),
}
