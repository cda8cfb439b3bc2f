//! A metadump of xfs_metadump, versions 1 and 2, as a device that is read: the metadata of a filesystem at the places
//! where it was, and nothing else.
//!
//! ```text
//! version 1   (header: count, addresses; count sectors) ...   a header with fewer addresses than fit is the last
//! version 2   header, (address and device, length; the sectors) ...
//! ```
//! Nothing is known of what the dump left out: contents of files, free blocks. A read of only such bytes fails; within
//! a read of something that is there they are zeros, since structures are read in larger pieces than they have.
//!
//! **Hostile input.** All places are within the file; the sectors of a dump are counted once, so that the index takes
//! at most 24 bytes for each 520 of the file.
//!
//! Source of facts: xfs_metadump(8), and the structures in xfsprogs' xfs_metadump.h.

use crate::bytes::{be_u32_at, head, u64_at};
use crate::error::DiskError;
use crate::signature::METADUMPS;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use xfskit_device::{Access, BlockDevice, FileDevice, Hints};

const SECTOR_BYTES: u64 = 512;
const HEADER_1_BYTES: usize = 8;
const HEADER_2_BYTES: u64 = 24;
const EXTENT_BYTES: u64 = 12;
/// Within the address of version 2: the sector, and the device.
const ADDRESS_BITS: u32 = 54;
const DATA_DEVICE: u64 = 0;
/// Where a superblock has its magic, the size of a block and the number of blocks.
const SUPERBLOCK: (&[u8], usize, usize) = (b"XFSB", 4, 8);
const MOST_BLOCK_BYTES: u64 = 1 << 16;

/// Whether a file that begins with these bytes is a metadump.
pub fn is_metadump(first: &[u8]) -> bool {
    METADUMPS.iter().any(|signature| first.starts_with(signature))
}

/// Sectors that the dump has: how many, and where in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    bytes: u64,
    at: u64,
}

/// A metadump that is read.
pub(crate) struct MetadumpDevice {
    file: FileDevice,
    /// By where they lie on the device.
    runs: BTreeMap<u64, Run>,
    size_bytes: u64,
}

impl MetadumpDevice {
    /// Opens a dump, whose file is opened already.
    pub(crate) fn open(path: &Path, file: FileDevice, access: Access) -> Result<Self, DiskError> {
        if access == Access::Write {
            let what = "a metadump, which is only read here".into();
            let advice = format!("make an image of it with: xfs_mdrestore {} IMAGE", path.display());
            return Err(DiskError::Refused { path: path.into(), what, advice });
        }
        file.verify_alone(path)?;
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::InvalidData => DiskError::Damaged { path: path.into(), what: format!("metadump: {source}") },
            _ => DiskError::io(path, source),
        };
        let mut index = Index { file: &file, runs: BTreeMap::new() };
        let first = head(&file, 0, HEADER_2_BYTES as usize).map_err(failed)?;
        let read = if first.starts_with(METADUMPS[0]) { index.read_1() } else { index.read_2(&first) };
        read.map_err(failed)?;
        let runs = index.runs;
        let size_bytes = size(&file, &runs).map_err(failed)?;
        Ok(Self { file, runs, size_bytes })
    }

    /// The runs that a range touches, each with the part of it.
    fn touched(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let before = self.runs.range(..range.start).next_back();
        let (start, end) = (range.start, range.end);
        before.into_iter().chain(self.runs.range(range)).filter_map(move |(place, run)| {
            let part = start.max(*place)..end.min(place + run.bytes);
            let at = run.at + part.start.saturating_sub(*place);
            (!part.is_empty()).then_some((part, at))
        })
    }
}

/// What is read of a dump before anything can be read from it.
struct Index<'f> {
    file: &'f FileDevice,
    runs: BTreeMap<u64, Run>,
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Index<'_> {
    fn read_1(&mut self) -> io::Result<()> {
        let mut at = 0;
        loop {
            let fixed = head(self.file, at, HEADER_1_BYTES)?;
            if !fixed.starts_with(METADUMPS[0]) {
                return Err(damaged("a header is not where the one before says"));
            }
            let [count, block_log] = [usize::from(fixed[4]) << 8 | usize::from(fixed[5]), fixed[6].into()];
            if !(9..=15).contains(&block_log) {
                return Err(damaged("the size of its blocks is not within 512 bytes and 32 KiB"));
            }
            let block = 1_u64 << block_log;
            let most = (block as usize - HEADER_1_BYTES) / 8;
            if count > most {
                return Err(damaged("a header has more addresses than fit"));
            }
            let header = head(self.file, at, block as usize)?;
            at += block;
            for number in 0..count {
                let address = u64_at(&header, HEADER_1_BYTES + 8 * number).swap_bytes();
                self.add(address.checked_mul(SECTOR_BYTES), block, at)?;
                at += block;
            }
            // A dump whose last header is full ends with its file.
            if count < most || at == self.file.size_bytes() {
                return Ok(());
            }
        }
    }

    fn read_2(&mut self, header: &[u8]) -> io::Result<()> {
        if be_u32_at(header, 4) != 2 || be_u32_at(header, 12) != 0 {
            return Err(damaged("its version, or a feature of it, is not known here"));
        }
        let mut at = HEADER_2_BYTES;
        while at < self.file.size_bytes() {
            let extent = head(self.file, at, EXTENT_BYTES as usize)?;
            if extent.len() < EXTENT_BYTES as usize {
                return Err(damaged("it is cut short"));
            }
            let (address, sectors) = (u64_at(&extent, 0).swap_bytes(), be_u32_at(&extent, 8));
            if sectors == 0 {
                return Err(damaged("an extent without sectors"));
            }
            at += EXTENT_BYTES;
            let bytes = u64::from(sectors) * SECTOR_BYTES;
            let (device, sector) = (address >> ADDRESS_BITS, address & ((1 << ADDRESS_BITS) - 1));
            if device == DATA_DEVICE {
                self.add(sector.checked_mul(SECTOR_BYTES), bytes, at)?;
            }
            at =
                at.checked_add(bytes).filter(|end| *end <= self.file.size_bytes()).ok_or(damaged("it is cut short"))?;
        }
        Ok(())
    }

    /// Notes bytes of the device that are at a place of the file. What is there already stays.
    fn add(&mut self, place: Option<u64>, bytes: u64, at: u64) -> io::Result<()> {
        let place = place.filter(|place| place.checked_add(bytes).is_some_and(|end| end <= i64::MAX as u64));
        let place = place.ok_or(damaged("a sector is beyond what a device can have"))?;
        if at.checked_add(bytes).is_none_or(|end| end > self.file.size_bytes()) {
            return Err(damaged("it is cut short"));
        }
        if self.runs.range(place..place + bytes).next().is_some() {
            return Err(damaged("a sector is there twice"));
        }
        if let Some((before, run)) = self.runs.range_mut(..place).next_back() {
            let end = before + run.bytes;
            if end > place {
                return Err(damaged("a sector is there twice"));
            }
            if end == place && run.at + run.bytes == at {
                run.bytes += bytes;
                return Ok(());
            }
        }
        if bytes > 0 {
            self.runs.insert(place, Run { bytes, at });
        }
        Ok(())
    }
}

/// The size of the filesystem, which its superblock says; or as far as there is anything.
fn size(file: &FileDevice, runs: &BTreeMap<u64, Run>) -> io::Result<u64> {
    let end = runs.last_key_value().map_or(0, |(place, run)| place + run.bytes);
    let Some(first) = runs.get(&0) else { return Ok(end) };
    let superblock = head(file, first.at, SECTOR_BYTES as usize)?;
    let (magic, block_bytes, blocks) = SUPERBLOCK;
    if !superblock.starts_with(magic) {
        return Ok(end);
    }
    let block_bytes = u64::from(be_u32_at(&superblock, block_bytes)).min(MOST_BLOCK_BYTES);
    let says = u64_at(&superblock, blocks).swap_bytes().saturating_mul(block_bytes);
    Ok(end.max(says.min(i64::MAX as u64)))
}

impl BlockDevice for MetadumpDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn hints(&self) -> Hints {
        Hints { read_only: true, ..Hints::of(self) }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size_bytes);
        let Some(end) = end else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a read past the end of the metadump"));
        };
        let mut there = false;
        buffer.fill(0);
        for (part, at) in self.touched(offset..end) {
            there = true;
            let within = (part.start - offset) as usize..(part.end - offset) as usize;
            self.file.read(at, &mut buffer[within])?;
        }
        if there || buffer.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(
            "the metadump does not have it: it has the metadata of a filesystem, not contents of files",
        ))
    }

    fn write(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "a metadump is only read"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        self.touched(offset..offset.saturating_add(length)).next().is_some()
    }
}
