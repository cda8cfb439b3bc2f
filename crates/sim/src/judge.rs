//! Recovers what a cut left, and compares the tree with the model.

use crate::bad_place::BadPlace;
use crate::bounds::Bounds;
use crate::contents::Contents;
use crate::device::{Fault, SimDevice};
use crate::events::Event;
use crate::far::by_seed;
use crate::observed::Observed;
use crate::pages::{PAGE_BYTES, Pages, SECTOR_BYTES, is_shared_zero, page_of};
use crate::recording::Recording;
use crate::times::Times;
use crate::tree::{describe, digest};
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use xfskit_check::{CheckOptions, LogCondition, Quiet};
use xfskit_engine::env::SeededEnvironment;
use xfskit_engine::{Error, MountOptions, Volume};
use xfskit_ondisk::InodeNumber;

/// The result of a judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The tree as recovery left it.
    pub digest: u64,
    /// What is wrong; `None` if the state is right.
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

    /// The numbers of the pages that were written, in order, without those that share the page of zeros.
    pub fn pages(&self) -> Vec<u64> {
        let used = self.base.iter().chain(&self.own).filter(|(_, page)| !is_shared_zero(page));
        let mut pages: Vec<u64> = used.map(|(number, _)| *number).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// All pages that are not zero, with their offsets, for other programs to judge.
    pub fn contents(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (0..self.size_bytes / PAGE_BYTES as u64).filter_map(|page| {
            let bytes = page_of(&self.own, &self.base, page);
            bytes.iter().any(|byte| *byte != 0).then_some((page * PAGE_BYTES as u64, bytes.as_slice()))
        })
    }
}

/// Opens what a cut left, which recovers it, with the options of the run, but without `wsync`.
fn reopen(recording: &Recording, device: &Arc<SimDevice>) -> Result<Volume, Error> {
    device.want_requests(recording.distance.queue_depth());
    let options = MountOptions { wsync: false, ..recording.options.clone() };
    Volume::open_in(Arc::clone(device) as _, None, options, Arc::new(SeededEnvironment::new(1)))
}

/// Recovers a state and reads the tree; then unmounts the image and, with `check`, checks it. The tree must be the
/// model's after one of the operations within `bounds`, and every file must be as its versions allow.
pub fn judge(recording: &Recording, state: &Crashed, bounds: &Bounds, check: bool) -> Verdict {
    let device = state.device();
    match in_order(|| recover(recording, &device, check)) {
        Err(fault) => Verdict { digest: 0, fault: Some(fault) },
        Ok(Recovered { lines, inodes, notes }) => {
            let found = digest(&lines);
            let after = operations_with(recording, found, bounds);
            let fault = match after.first() {
                None => Some(describe_difference(recording, &lines, bounds)),
                // Blocks for a value that was never set may stay if an operation was cut off, and only then.
                Some(first) if *first == bounds.begun && !notes.is_empty() => {
                    Some(format!("no operation was cut off, but check notes:\n{}", notes.join("\n")))
                }
                Some(_) => inodes.iter().find_map(|(number, contents, times)| {
                    recording.histories.judge(*number, (contents, *times), &after, bounds)
                }),
            };
            Verdict { digest: found, fault }
        }
    }
}

/// The operations within `bounds` after which the tree had the digest `found`.
fn operations_with(recording: &Recording, found: u64, bounds: &Bounds) -> Vec<usize> {
    (bounds.acknowledged..=bounds.begun).filter(|operation| recording.digests[*operation] == found).collect()
}

/// As [`without_panic`], in the order in which work on a far device is always done.
fn in_order<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    without_panic(|| by_seed(1, work).0)
}

/// Does `work`; a panic becomes an error.
pub fn without_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("panic: {text}"))
    })
}

/// What a device returns wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A bit, counted from the start of the device, reads as its opposite.
    Bit(u64),
    /// A sector reads as another.
    Sector(u64, u64),
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bit(bit) => write!(f, "bit:{bit}"),
            Self::Sector(wanted, got) => write!(f, "sector:{wanted}:{got}"),
        }
    }
}

impl FromStr for Lie {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a lie: use bit:NUMBER or sector:WANTED:GOT");
        let numbers =
            |text: &str| text.split(':').map(|n| n.parse().map_err(|_| wrong())).collect::<Result<Vec<_>, _>>();
        match text.split_once(':').ok_or_else(wrong)? {
            ("bit", rest) => match numbers(rest)?.as_slice() {
                [bit] => Ok(Self::Bit(*bit)),
                _ => Err(wrong()),
            },
            ("sector", rest) => match numbers(rest)?.as_slice() {
                [wanted, got] => Ok(Self::Sector(*wanted, *got)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

/// As [`judge`], while the device lies. An error is right. A tree must be one of the model's, unless the lie is in the
/// log, which then ends early, or in a block that recovery writes.
pub fn judge_lie(recording: &Recording, state: &Crashed, bounds: &Bounds, lie: Lie) -> Verdict {
    let device = state.device();
    let (fault, offset) = match lie {
        Lie::Bit(bit) => (Fault::FlipBit(bit), bit / 8),
        Lie::Sector(wanted, got) => (Fault::Misdirect(wanted, got), wanted * SECTOR_BYTES as u64),
    };
    device.set_fault(Some(fault));
    match in_order(|| Ok(read_lying(recording, &device))) {
        Err(panic) => Verdict { digest: 0, fault: Some(panic) },
        Ok(None) => Verdict::default(),
        Ok(Some(lines)) => {
            let found = digest(&lines);
            // Recovery may write a block with a lie outside of the bytes that it changes; the new checksum then covers
            // the lie.
            let known = !operations_with(recording, found, bounds).is_empty()
                || recording.log.contains(&offset)
                || is_recovered(recording, state, offset);
            let fault = (!known).then(|| describe_difference(recording, &lines, bounds));
            Verdict { digest: found, fault }
        }
    }
}

/// As [`judge`], after a recovery on a device with a bad place. That recovery may fail, but it must not show a tree
/// that the model never had. Then the device works again, and all rules of [`judge`] hold.
pub fn judge_with_bad_place(recording: &Recording, state: &Crashed, bounds: &Bounds, place: BadPlace) -> Verdict {
    let device = state.device();
    device.set_fault(Some(Fault::BadPlace(BadPlace { from: 0, ..place })));
    match in_order(|| Ok(read_lying(recording, &device))) {
        Err(panic) => return Verdict { digest: 0, fault: Some(panic) },
        Ok(Some(lines)) if operations_with(recording, digest(&lines), bounds).is_empty() => {
            let fault = format!("with the bad place, {}", describe_difference(recording, &lines, bounds));
            return Verdict { digest: digest(&lines), fault: Some(fault) };
        }
        Ok(_) => {}
    }
    let (own, base) = device.parts();
    judge(recording, &Crashed { size_bytes: state.size_bytes, base, own }, bounds, true)
}

/// Whether recovery writes to the block around `offset`.
fn is_recovered(recording: &Recording, state: &Crashed, offset: u64) -> bool {
    let device = state.device();
    device.start_record();
    drop(by_seed(1, || reopen(recording, &device)));
    device.take_record().iter().any(|event| match event {
        Event::Write(start, bytes) => (*start..*start + bytes.len() as u64).contains(&offset),
        _ => false,
    })
}

/// The tree; `None` if the filesystem met an error.
fn read_lying(recording: &Recording, device: &Arc<SimDevice>) -> Option<Vec<String>> {
    let fs = reopen(recording, device).ok()?;
    describe(&Observed::new(&fs)).ok()
}

/// In words: which other operation the tree would fit, or the lines in which it differs from the closest one.
fn describe_difference(recording: &Recording, found: &[String], bounds: &Bounds) -> String {
    let elsewhere = recording.digests.iter().position(|other| *other == digest(found));
    let mut text = format!("the tree must be one between operations {} and {}", bounds.acknowledged, bounds.begun);
    if let Some(operation) = elsewhere {
        return text + &format!(": it is the tree after operation {operation}");
    }
    let differing = |lines: &[String], others: &[String]| -> Vec<String> {
        let others: HashSet<_> = others.iter().collect();
        lines.iter().filter(|line| !others.contains(line)).cloned().collect()
    };
    let candidates = recording.trees.get(bounds.acknowledged..=bounds.begun).unwrap_or_default().iter().enumerate();
    if let Some((index, tree)) = candidates.min_by_key(|(_, tree)| differing(tree, found).len()) {
        text += &format!("; it is nearest to that after {}", bounds.acknowledged + index);
        differing(tree, found).iter().for_each(|line| text += &format!("\n- {line}"));
        differing(found, tree).iter().for_each(|line| text += &format!("\n+ {line}"));
    }
    text
}

/// A state after recovery.
struct Recovered {
    /// The tree.
    lines: Vec<String>,
    /// Its inodes.
    inodes: Vec<(InodeNumber, Contents, Times)>,
    /// What the check noted.
    notes: Vec<String>,
}

/// Opens, which recovers; reads everything; closes; checks.
fn recover(recording: &Recording, device: &Arc<SimDevice>, check: bool) -> Result<Recovered, String> {
    let fs = reopen(recording, device).map_err(|error| format!("recovery: {error}"))?;
    let observed = Observed::new(&fs);
    let lines = describe(&observed).map_err(|error| format!("reading the recovered tree: {error}"))?;
    let inodes = observed.contents().map_err(|error| format!("reading the recovered files: {error}"))?;
    fs.unmount().map_err(|error| format!("closing the recovered image: {error}"))?;
    let notes = if check { check_image(device)? } else { Vec::new() };
    Ok(Recovered { lines, inodes, notes })
}

/// Checks an image that was unmounted cleanly; returns what the check noted.
fn check_image(device: &Arc<SimDevice>) -> Result<Vec<String>, String> {
    // The check has threads of its own for a far device.
    device.want_requests(1);
    let options = CheckOptions { threads: 1, most_faults: 20 };
    let report =
        xfskit_check::check(Arc::clone(device) as _, None, &options, &Quiet).map_err(|e| format!("check: {e}"))?;
    let is_forgotten = report.summary.unlinked > 0 && report.log == LogCondition::Clean;
    if is_forgotten {
        return Err(format!("check: {} inodes without a name under a clean log", report.summary.unlinked));
    }
    if report.is_clean() {
        return Ok(report.notes);
    }
    let faults: Vec<_> = report.faults.iter().map(ToString::to_string).collect();
    Err(format!("check found {} faults:\n{}", faults.len(), faults.join("\n")))
}
