//! Which writes survive a power cut: all before the last flush, and of those after it any subset of sectors, in any
//! order.
//!
//! A cut is a position in the record. A choice says what became of each sector that was written since the last flush
//! before the cut. A sector that was written several times may hold any of its versions, or none.

use crate::bounds::Bounds;
use crate::events::Event;
use crate::pages::{Pages, SECTOR_BYTES, write_pages};
use crate::random::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// What became of the writes that no flush had made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// All arrived.
    All,
    /// None arrived.
    None,
    /// A random part of them arrived, chosen by this seed.
    Seed(u64),
    /// Combination number n of all that are possible, for cuts with few sectors.
    Number(u64),
}

/// A cut and what it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Events of the record that happened.
    pub at: usize,
    /// What became of the writes after the last flush.
    pub choice: Choice,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            Choice::All => write!(f, "{}:all", self.at),
            Choice::None => write!(f, "{}:none", self.at),
            Choice::Seed(seed) => write!(f, "{}:s{seed}", self.at),
            Choice::Number(number) => write!(f, "{}:n{number}", self.at),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a cut: use PLACE:all, PLACE:none, PLACE:sSEED or PLACE:nNUMBER");
        let (at, choice) = text.split_once(':').ok_or_else(wrong)?;
        let number = |digits: &str| digits.parse().map_err(|_| wrong());
        let choice = match choice {
            "all" => Choice::All,
            "none" => Choice::None,
            _ => match choice.split_at_checked(1) {
                Some(("s", seed)) => Choice::Seed(number(seed)?),
                Some(("n", combination)) => Choice::Number(number(combination)?),
                _ => return Err(wrong()),
            },
        };
        Ok(Self { at: at.parse().map_err(|_| wrong())?, choice })
    }
}

/// A write of one sector that no flush has made durable: which event, and which sector of it.
type Version = (usize, usize);

/// The sectors that are in doubt at a position of the record, with all their versions in the order of writing.
pub struct Doubt<'a> {
    events: &'a [Event],
    sectors: BTreeMap<u64, Vec<Version>>,
}

/// What a choice left.
pub struct CutPages {
    /// The pages that are not as they were.
    pub pages: Pages,
    /// Differs between the outcomes of one doubt, and of later doubts up to the next flush.
    pub fingerprint: u64,
}

impl<'a> Doubt<'a> {
    fn new(events: &'a [Event]) -> Self {
        Self { events, sectors: BTreeMap::new() }
    }

    /// Adds an event that is not a flush.
    fn add(&mut self, index: usize) {
        let Event::Write(offset, bytes) = &self.events[index] else { return };
        let first = offset / SECTOR_BYTES as u64;
        for part in 0..bytes.len().div_ceil(SECTOR_BYTES) {
            self.sectors.entry(first + part as u64).or_default().push((index, part));
        }
    }

    fn bytes(&self, (index, part): Version) -> &'a [u8] {
        match &self.events[index] {
            Event::Write(_, bytes) => bytes.chunks(SECTOR_BYTES).nth(part).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Number of different outcomes, if it is less than `limit`.
    pub fn combinations(&self, limit: u64) -> Option<u64> {
        let mut product = 1u64;
        for versions in self.sectors.values() {
            product = product.checked_mul(versions.len() as u64 + 1).filter(|product| *product < limit)?;
        }
        Some(product)
    }

    /// The pages that differ from `base` after a choice.
    pub fn outcome(&self, base: &Pages, choice: Choice) -> CutPages {
        let mut outcome = CutPages { pages: Pages::default(), fingerprint: 0 };
        let mut picker = Picker::new(choice);
        for (sector, versions) in &self.sectors {
            if let Some(version) = picker.pick(versions.len()) {
                let (index, part) = versions[version];
                write_pages(&mut outcome.pages, Some(base), sector * SECTOR_BYTES as u64, self.bytes((index, part)));
                outcome.fingerprint ^= Random::new(((index as u64) << 32) ^ part as u64).next();
            }
        }
        outcome
    }
}

/// The pages after some of the `pending` writes arrived, in order: any sectors of a write to the log, and all or
/// nothing of any other write. The kernel's recovery takes the LSN in a block's first sector for that of the whole
/// block, so it cannot repair a torn block; ours can.
pub fn outcome_for_kernel(pending: &[Event], base: &Pages, log: &Range<u64>, seed: u64) -> Pages {
    let mut random = Random::new(seed);
    let mut pages = Pages::default();
    for event in pending {
        let Event::Write(offset, bytes) = event else { continue };
        let unit = if log.contains(offset) { SECTOR_BYTES } else { bytes.len() };
        for (index, part) in bytes.chunks(unit.max(1)).enumerate() {
            if random.one_in(2) {
                write_pages(&mut pages, Some(base), offset + (index * unit) as u64, part);
            }
        }
    }
    pages
}

/// Decides sector by sector.
enum Picker {
    All,
    None,
    Number(u64),
    /// With `mostly`, all sectors arrive but one in `rare`; otherwise only one in `rare` arrives.
    Random {
        random: Random,
        rare: u64,
        mostly: bool,
    },
}

impl Picker {
    fn new(choice: Choice) -> Self {
        match choice {
            Choice::All => Self::All,
            Choice::None => Self::None,
            Choice::Number(number) => Self::Number(number),
            Choice::Seed(seed) => {
                let mut random = Random::new(seed);
                let rare = [2, 2, 4, 16, 64][random.below(5)];
                let mostly = random.one_in(2);
                Self::Random { random, rare, mostly }
            }
        }
    }

    /// Which of a sector's `versions` arrived last, if any did.
    fn pick(&mut self, versions: usize) -> Option<usize> {
        match self {
            Self::All => versions.checked_sub(1),
            Self::None => None,
            Self::Number(number) => {
                let outcomes = versions as u64 + 1;
                let outcome = *number % outcomes;
                *number /= outcomes;
                outcome.checked_sub(1).map(|version| version as usize)
            }
            Self::Random { random, rare, mostly } => {
                let is_rare = random.next().is_multiple_of(*rare);
                if is_rare == *mostly {
                    return None;
                }
                // Mostly the newest; an older one now and then.
                let oldest = if random.one_in(4) { 0 } else { versions - 1 };
                Some(oldest + random.below(versions - oldest))
            }
        }
    }
}

/// Walks over a record and tracks what is durable, and what is in doubt, at each position.
pub struct Walk<'a> {
    events: &'a [Event],
    durable: Arc<Pages>,
    doubt: Doubt<'a>,
    /// Number of events up to the last flush, which is included.
    settled: usize,
    /// Events seen.
    at: usize,
    bounds: Bounds,
}

impl<'a> Walk<'a> {
    /// Starts before the first event.
    pub fn new(base: Arc<Pages>, events: &'a [Event]) -> Self {
        Self { events, durable: base, doubt: Doubt::new(events), settled: 0, at: 0, bounds: Bounds::default() }
    }

    /// Goes forward to the position after `at` events.
    pub fn advance(&mut self, at: usize) {
        for index in self.at..at {
            match &self.events[index] {
                Event::Write(..) => self.doubt.add(index),
                Event::WriteDurable => self.settle_one(index - 1),
                Event::Flush => self.settle(index),
                Event::Began(operation) => self.bounds.begun = *operation,
                Event::Acknowledged(operation) => self.bounds.acknowledged = *operation,
                Event::FileDurable(node, operation, kept) => self.bounds.keep(*node, *operation, *kept),
                Event::Prepared => {}
            }
        }
        self.at = at;
    }

    /// Makes everything before a flush durable.
    fn settle(&mut self, flush: usize) {
        let durable = Arc::make_mut(&mut self.durable);
        for event in &self.events[self.settled..flush] {
            if let Event::Write(offset, bytes) = event {
                write_pages(durable, None, *offset, bytes);
            }
        }
        self.doubt.sectors.clear();
        self.settled = flush + 1;
    }

    /// Makes one write durable: its sectors hold it, or what is written to them later.
    fn settle_one(&mut self, index: usize) {
        let Event::Write(offset, bytes) = &self.events[index] else { return };
        write_pages(Arc::make_mut(&mut self.durable), None, *offset, bytes);
        let first = offset / SECTOR_BYTES as u64;
        for sector in first..first + bytes.len().div_ceil(SECTOR_BYTES) as u64 {
            self.doubt.sectors.remove(&sector);
        }
    }

    /// What is durable here.
    pub fn durable(&self) -> &Arc<Pages> {
        &self.durable
    }

    /// The position right after the last flush.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// The events that no flush covers.
    pub fn pending(&self) -> &'a [Event] {
        &self.events[self.settled..self.at]
    }

    /// What is in doubt here.
    pub fn doubt(&self) -> &Doubt<'a> {
        &self.doubt
    }

    /// The operations that must have happened here, and those that may have.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, byte: u8, sectors: usize) -> Event {
        Event::Write(sector * 512, vec![byte; sectors * 512].into())
    }

    #[test]
    fn every_combination_of_versions_comes_up_once() {
        let events = [write(0, 1, 2), write(1, 2, 1)];
        let mut walk = Walk::new(Arc::default(), &events);
        walk.advance(2);
        let doubt = walk.doubt();
        assert_eq!(doubt.combinations(100), Some(6));
        assert_eq!(doubt.combinations(6), None);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..6 {
            let pages = doubt.outcome(&Pages::default(), Choice::Number(number)).pages;
            let byte =
                |offset: usize| pages.get(&0).map_or(0, |page| if page[offset] == 0xdb { 0 } else { page[offset] });
            seen.insert((byte(0), byte(512)));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn a_walk_knows_what_is_durable_and_what_was_acknowledged() {
        let events =
            [Event::Began(1), write(0, 1, 1), Event::Flush, Event::Acknowledged(1), Event::Began(2), write(8, 2, 1)];
        let mut walk = Walk::new(Arc::default(), &events);
        walk.advance(2);
        assert!(walk.durable().is_empty());
        assert_eq!((walk.bounds().acknowledged, walk.bounds().begun), (0, 1));
        walk.advance(6);
        assert_eq!(walk.durable()[&0][0], 1);
        assert_eq!((walk.bounds().acknowledged, walk.bounds().begun), (1, 2));
        assert_eq!(walk.doubt().combinations(9), Some(2));
    }

    #[test]
    fn cuts_are_written_and_read() {
        for text in ["7:all", "0:none", "12:s99", "3:n4"] {
            assert_eq!(text.parse::<Cut>().unwrap().to_string(), text);
        }
        assert!("7".parse::<Cut>().is_err());
        assert!("7:x1".parse::<Cut>().is_err());
    }
}
