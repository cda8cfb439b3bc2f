//! The expected contents of files, and what a crash may leave of them.
//!
//! ```text
//! operation   write ──── fsync ──── write ──── punch ──── cut
//! version     1          a_f = 1    2          3          each sector is that of 1, 2 or 3; zeros where one has none
//! ```
//! `a_f` is the last version that was acknowledged to be durable. A version is the whole file after an operation that
//! changed it; versions share the sectors in which they agree. A sector may read as zeros where the crash left the map
//! or the size of another version, so only where one of the versions has a hole. Nothing else is allowed: the bytes
//! that a workload writes identify their operation and their offset.

use crate::bounds::Bounds;
use crate::node::NodeId;
use crate::pages::SECTOR_BYTES;
use crate::random::Random;
use crate::times::{Change, Times, TimesHistory};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use xfskit_engine::{Error, Volume};
use xfskit_ondisk::InodeNumber;

/// No file of a workload is larger than this. A larger size is wrong, and such a file is not read.
const MAX_BYTES: u64 = 4 << 20;

type Sector = [u8; SECTOR_BYTES];

/// The bytes that a write writes. Each aligned group of eight depends on `seed` and on its offset, so it differs from
/// all others.
pub fn bytes(seed: u64, offset: u64, length: usize) -> Vec<u8> {
    let first = offset / 8;
    let words = (offset + length as u64).div_ceil(8) - first;
    let mut bytes = Vec::with_capacity(words as usize * 8);
    for word in first..first + words {
        // The lowest bit of each byte is set, so no byte is like a hole's.
        let word = Random::new(seed << 32 ^ word).next() | 0x0101_0101_0101_0101;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    let skip = (offset % 8) as usize;
    bytes[skip..skip + length].to_vec()
}

/// A file's contents. In the last sector, the bytes after the end are zero.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    size: u64,
    /// Sectors with data; `None` is a hole.
    sectors: Vec<Option<Arc<Sector>>>,
}

impl Contents {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads a file of a filesystem. Of a file that is too large, only the size is returned.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn read(fs: &Volume, inode: InodeNumber) -> Result<Self, Error> {
        let size = fs.stat(inode)?.size;
        if size > MAX_BYTES {
            return Ok(Self { size, sectors: Vec::new() });
        }
        let mut buffer = vec![0; size as usize];
        let count = fs.read_at(inode, 0, &mut buffer)?;
        let mut contents = Self { size, sectors: Vec::new() };
        contents.write(0, &buffer[..count]);
        contents.size = size;
        Ok(contents)
    }

    /// Its sectors with data; the last is filled up with zeros.
    pub fn sectors(&self) -> impl Iterator<Item = &[u8; SECTOR_BYTES]> {
        self.sectors.iter().flatten().map(AsRef::as_ref)
    }

    fn sector(&self, index: usize) -> Option<&Arc<Sector>> {
        self.sectors.get(index).and_then(Option::as_ref)
    }

    fn sector_mut(&mut self, index: usize) -> &mut Sector {
        if self.sectors.len() <= index {
            self.sectors.resize(index + 1, None);
        }
        Arc::make_mut(self.sectors[index].get_or_insert_with(|| Arc::new([0; SECTOR_BYTES])))
    }

    /// Writes bytes; a shorter file grows to their end.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset as usize + done;
            let within = at % SECTOR_BYTES;
            let count = (SECTOR_BYTES - within).min(data.len() - done);
            let sector = self.sector_mut(at / SECTOR_BYTES);
            sector[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// Returns bytes of the file. The range must lie within it.
    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            let at = offset as usize + done;
            let within = at % SECTOR_BYTES;
            let count = (SECTOR_BYTES - within).min(length - done);
            if let Some(sector) = self.sector(at / SECTOR_BYTES) {
                bytes[done..done + count].copy_from_slice(&sector[within..within + count]);
            }
            done += count;
        }
        bytes
    }

    /// Makes a range within the file read as zeros.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let mut at = offset as usize;
        let end = (offset + length).min((self.sectors.len() * SECTOR_BYTES) as u64) as usize;
        while at < end {
            let within = at % SECTOR_BYTES;
            let count = (SECTOR_BYTES - within).min(end - at);
            let sector = &mut self.sectors[at / SECTOR_BYTES];
            if count == SECTOR_BYTES {
                *sector = None;
            } else if let Some(sector) = sector {
                Arc::make_mut(sector)[within..within + count].fill(0);
            }
            at += count;
        }
    }

    /// Sets the size.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
            self.sectors.truncate(size.div_ceil(SECTOR_BYTES as u64) as usize);
        }
        self.size = size;
    }

    /// Removes whole sectors; what follows moves down.
    pub fn collapse(&mut self, offset: u64, length: u64) {
        let start = (offset as usize / SECTOR_BYTES).min(self.sectors.len());
        let end = ((offset + length) as usize / SECTOR_BYTES).min(self.sectors.len());
        self.sectors.drain(start..end);
        self.size -= length;
    }

    /// Inserts a hole of whole sectors.
    pub fn insert(&mut self, offset: u64, length: u64) {
        let start = offset as usize / SECTOR_BYTES;
        if start < self.sectors.len() {
            self.sectors.splice(start..start, std::iter::repeat_n(None, length as usize / SECTOR_BYTES));
        }
        self.size += length;
    }
}

/// A file after an operation.
#[derive(Debug)]
struct FileVersion {
    operation: usize,
    contents: Contents,
    /// The operation moved parts of the file, one extent after another.
    moved: bool,
}

/// What all files of a run contained after each operation.
#[derive(Debug, Default)]
pub struct Histories {
    /// For each inode number, the nodes that had it, with the operations that made them.
    made: HashMap<InodeNumber, Vec<(usize, NodeId)>>,
    versions: HashMap<NodeId, Vec<FileVersion>>,
    /// Operations by which a file took another's name, with the file.
    replacements: Vec<(usize, NodeId)>,
    /// The times of the inodes.
    pub times: TimesHistory,
}

impl Histories {
    /// Notes that an operation made a node.
    pub fn make(&mut self, number: InodeNumber, operation: usize, node: NodeId, contents: Contents, times: Times) {
        self.times.note(node, operation, times, Change::OfTheTree);
        self.made.entry(number).or_default().push((operation, node));
        self.change(node, operation, contents, false);
    }

    /// Notes that an operation changed a file, or may have.
    pub fn change(&mut self, node: NodeId, operation: usize, contents: Contents, moved: bool) {
        self.versions.entry(node).or_default().push(FileVersion { operation, contents, moved });
    }

    /// Notes that an operation gave a file the name of another one. A tree that shows the operation must show what the
    /// file contained before it.
    pub fn replace(&mut self, operation: usize, node: NodeId) {
        self.replacements.push((operation, node));
    }

    /// The last operation not after `operation` that gave a file the name of another one.
    fn replaced(&self, node: NodeId, operation: usize) -> usize {
        let of_node = self.replacements.iter().filter(|(at, other)| *other == node && *at <= operation);
        of_node.map(|(at, _)| *at).max().unwrap_or(0)
    }

    /// Returns what is wrong with an inode, if anything, in a tree that one of the operations `after` left.
    pub fn judge(
        &self,
        number: InodeNumber,
        (found, times): (&Contents, Times),
        after: &[usize],
        bounds: &Bounds,
    ) -> Option<String> {
        let begun = bounds.begun;
        let made = self.made.get(&number).map_or(&[][..], Vec::as_slice);
        let mut nodes: Vec<NodeId> = Vec::new();
        for operation in after {
            if let Some((_, node)) = made.iter().rev().find(|(made, _)| made <= operation)
                && !nodes.contains(node)
            {
                nodes.push(*node);
            }
        }
        // A node that was being made when the run ended has the number 0 here.
        let unnumbered = self.made.get(&InodeNumber(0)).and_then(|made| made.last());
        nodes.extend(unnumbered.filter(|(made, _)| *made == begun && after.contains(made)).map(|(_, node)| *node));
        if nodes.is_empty() {
            // The operation that made the inode had not returned.
            return (found.size > 0).then(|| format!("inode {number} is new and has {} bytes", found.size));
        }
        let mut fault = None;
        let least = after.first().copied().unwrap_or(0);
        for node in nodes {
            let first = bounds.kept(node).max(self.replaced(node, least));
            let wrong_times = || self.times.judge(node, times, after, bounds.kept_times(node), begun);
            let what = self.judge_node(node, found, first..=begun).or_else(wrong_times);
            fault = what.map(|what| format!("inode {number}, {node}: {what}"));
            if fault.is_none() {
                break;
            }
        }
        fault
    }

    /// As [`Self::judge`], for the versions between two operations.
    pub fn judge_node(&self, node: NodeId, found: &Contents, between: RangeInclusive<usize>) -> Option<String> {
        let all = self.versions.get(&node).map_or(&[][..], Vec::as_slice);
        let first = all.partition_point(|version| version.operation <= *between.start()).saturating_sub(1);
        let end = all.partition_point(|version| version.operation <= *between.end());
        judge(found, all.get(first..end).unwrap_or_default())
    }
}

fn judge(found: &Contents, versions: &[FileVersion]) -> Option<String> {
    let sizes: Vec<u64> = versions.iter().map(|version| version.contents.size).collect();
    let cut_off = sizes.windows(2).any(|pair| pair[0] < found.size && found.size < pair[1]);
    if !sizes.contains(&found.size) && !cut_off {
        return Some(format!("its size is {}, and should be one of {sizes:?}", found.size));
    }
    let mut anywhere = None;
    for index in 0..found.size.div_ceil(SECTOR_BYTES as u64) as usize {
        let zeros = [0; SECTOR_BYTES];
        let sector = found.sector(index).map_or(&zeros, AsRef::as_ref);
        let length = (found.size - (index * SECTOR_BYTES) as u64).min(SECTOR_BYTES as u64) as usize;
        let fits = |version: &FileVersion| match version.contents.sector(index) {
            Some(expected) => expected[..length] == sector[..length],
            None => sector[..length] == zeros[..length],
        };
        if versions.iter().rev().any(fits) {
            continue;
        }
        if versions.iter().skip(1).any(|version| version.moved) {
            let all = anywhere.get_or_insert_with(|| every_sector(versions));
            let is_there = all.contains(sector)
                || length < SECTOR_BYTES && all.iter().any(|other| other[..length] == sector[..length]);
            if is_there || sector[..length] == zeros[..length] {
                continue;
            }
        }
        return Some(describe(index, sector, versions));
    }
    None
}

fn every_sector(versions: &[FileVersion]) -> HashSet<Sector> {
    versions.iter().flat_map(|version| version.contents.sectors.iter().flatten()).map(|sector| **sector).collect()
}

fn describe(index: usize, sector: &Sector, versions: &[FileVersion]) -> String {
    let mut text = format!("sector {index} is {:02x?}", &sector[..8]);
    for version in versions {
        text += &format!("\nafter {} (size {}): ", version.operation, version.contents.size);
        match version.contents.sector(index) {
            Some(expected) => {
                let differs = (0..SECTOR_BYTES).find(|&at| expected[at] != sector[at]).unwrap_or(SECTOR_BYTES);
                text += &format!("{:02x?}, the same up to byte {differs}", &expected[..8]);
            }
            None => text += "no data",
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sectors: &[u8]) -> Contents {
        let mut contents = Contents::default();
        for (index, byte) in sectors.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            contents.write((index * SECTOR_BYTES) as u64, &[*byte; SECTOR_BYTES]);
        }
        contents.truncate((sectors.len() * SECTOR_BYTES) as u64);
        contents
    }

    fn is_right(versions: &[&[u8]], moved: bool, found: &[u8]) -> bool {
        let version = |(operation, sectors): (usize, &&[u8])| FileVersion { operation, contents: file(sectors), moved };
        judge(&file(found), &versions.iter().enumerate().map(version).collect::<Vec<_>>()).is_none()
    }

    #[test]
    fn sectors_are_of_any_version_or_zeros_where_one_has_none() {
        assert!(is_right(&[&[1, 2], &[3, 4]], false, &[1, 4]));
        assert!(!is_right(&[&[1, 2], &[3, 4]], false, &[2, 4]));
        assert!(!is_right(&[&[1, 2], &[3, 4]], false, &[0, 4]));
        assert!(is_right(&[&[1, 2], &[0, 4]], false, &[0, 2]));
        assert!(!is_right(&[&[1, 2]], false, &[1]));
        // A growing write that was cut off.
        assert!(is_right(&[&[1], &[1, 2, 3, 4]], false, &[1, 2, 0]));
        assert!(!is_right(&[&[1], &[1, 2, 3, 4]], false, &[1, 9, 0]));
        assert!(!is_right(&[&[1, 2, 3, 4], &[1]], false, &[1, 2]));
        assert!(is_right(&[&[1, 2, 3], &[1, 3]], true, &[1, 3, 3]));
        assert!(!is_right(&[&[1, 2, 3], &[1, 3]], false, &[3, 3, 3]));
    }

    #[test]
    fn contents_change_as_a_file_does() {
        let mut contents = Contents::default();
        contents.write(300, &[7; 1000]);
        contents.truncate(600);
        contents.truncate(900);
        let expected: Vec<u8> = (0..900).map(|at| if (300..600).contains(&at) { 7 } else { 0 }).collect();
        assert_eq!(contents.bytes(0, 900), expected);
        contents.write(512, &[5; 512]);
        contents.collapse(0, 512);
        assert_eq!(contents.bytes(0, 512), [5; 512]);
        contents.insert(0, 1024);
        assert_eq!((contents.size(), contents.bytes(1024, 512)), (1536, vec![5; 512]));
    }
}
