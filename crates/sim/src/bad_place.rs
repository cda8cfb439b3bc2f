//! A bad place: a range of the device that fails for good while the rest works (a sector, a header, a cluster, a
//! block).

use crate::pages::SECTOR_BYTES;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;

/// Which requests to a bad place fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailingRequests {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Both.
    Both,
}

/// What reaches the device of a write that touches a bad place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornWrite {
    /// The sectors outside the bad place: the write is torn.
    Arrives,
    /// Nothing.
    IsLost,
}

/// A bad place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// Where it begins, in bytes; a multiple of a sector.
    pub offset: u64,
    /// How long it is in bytes, in whole sectors.
    pub bytes: u64,
    /// Which requests fail.
    pub refuses: FailingRequests,
    /// What reaches the device of a write that touches it.
    pub around: TornWrite,
    /// Number of the write or flush of the run, counted from 0, from which on the place fails.
    pub from: u64,
}

impl BadPlace {
    fn touches(&self, range: &Range<u64>) -> bool {
        range.start < self.offset + self.bytes && self.offset < range.end
    }

    /// Whether a read fails after `operations` writes and flushes.
    pub fn refuses_read(&self, range: Range<u64>, operations: u64) -> bool {
        self.refuses != FailingRequests::Writes && operations >= self.from && self.touches(&range)
    }

    /// Whether write or flush `number` fails.
    pub fn refuses_write(&self, range: Range<u64>, number: u64) -> bool {
        self.refuses != FailingRequests::Reads && number >= self.from && self.touches(&range)
    }

    /// The parts of a refused write that arrive.
    pub fn parts_written(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (range.start.max(self.offset), range.end.min(self.offset + self.bytes));
        let parts = match self.around {
            TornWrite::Arrives => [range.start..start, end..range.end],
            TornWrite::IsLost => [0..0, 0..0],
        };
        parts.into_iter().filter(|part| !part.is_empty())
    }

    /// The error that the device returns.
    pub fn error(&self) -> io::Error {
        io::Error::other(format!("the simulated device has a bad place at {}", self.offset))
    }
}

impl fmt::Display for BadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refuses = match self.refuses {
            FailingRequests::Reads => "reads",
            FailingRequests::Writes => "writes",
            FailingRequests::Both => "both",
        };
        let around = match self.around {
            TornWrite::Arrives => "torn",
            TornWrite::IsLost => "whole",
        };
        write!(f, "{refuses}:{around}:{}:{}:{}", self.offset, self.bytes, self.from)
    }
}

impl FromStr for BadPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a bad place: use reads, writes or both, then torn or whole, then the offset and the \
                 length in bytes, then the first write or flush that it counts for, with colons between"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let [refuses, around, offset, bytes, from] = parts[..] else { return Err(wrong()) };
        let refuses = match refuses {
            "reads" => FailingRequests::Reads,
            "writes" => FailingRequests::Writes,
            "both" => FailingRequests::Both,
            _ => return Err(wrong()),
        };
        let around = match around {
            "torn" => TornWrite::Arrives,
            "whole" => TornWrite::IsLost,
            _ => return Err(wrong()),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        Ok(Self { offset: number(offset)?, bytes: number(bytes)?, refuses, around, from: number(from)? })
    }
}

/// What bad places have refused.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Writes of remote attribute values; `writes` counts them too.
    pub values: u64,
    /// Contents of the sectors of refused writes.
    sectors: HashSet<[u8; SECTOR_BYTES]>,
}

impl Refused {
    /// Notes a refused write.
    pub fn note_write(&mut self, data: &[u8]) {
        self.writes += 1;
        self.values += u64::from(data.starts_with(b"XARM"));
        self.sectors.extend(data.as_chunks().0);
    }

    /// Whether a sector with these contents was refused.
    pub fn has(&self, sector: &[u8; SECTOR_BYTES]) -> bool {
        self.sectors.contains(sector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_and_read_back() {
        for text in ["reads:torn:512:512:7", "writes:whole:8192:4096:0", "both:torn:1024:1536:3"] {
            assert_eq!(text.parse::<BadPlace>().unwrap().to_string(), text);
        }
        for text in ["", "reads:torn:1:2", "all:torn:1:2:3", "reads:half:1:2:3", "reads:torn:1:2:x"] {
            assert!(text.parse::<BadPlace>().is_err());
        }
    }

    #[test]
    fn the_sectors_beside_it_arrive() {
        let place: BadPlace = "writes:torn:1024:512:2".parse().unwrap();
        let parts = |range| place.parts_written(range).collect::<Vec<_>>();
        assert_eq!(parts(512..2048), [512..1024, 1536..2048]);
        assert_eq!(parts(1024..2048), vec![1536..2048]);
        assert_eq!(parts(1024..1536), []);
        assert!(place.refuses_write(512..2048, 2) && !place.refuses_write(512..2048, 1));
        assert!(!place.refuses_write(0..1024, 5) && !place.refuses_read(512..2048, 5));
    }
}
