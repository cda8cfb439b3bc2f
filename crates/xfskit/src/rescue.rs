//! Images that lost their first superblock or their end: what is left of them can be read.
//!
//! ```text
//! AG 0                 AG 1                 AG 2                       end of the file
//! | superblock: gone   | copy               | copy                     ·
//!                        └── where it lies is a multiple of the AG size that it names
//! ```
//! A copy is believed if its checksum is right, if it lies where its own geometry puts a copy, and if no other one
//! contradicts it: an image may hold files that are images. The counters of a copy are those of the day when the image
//! was made or grown, and only some copies name the root directory; one of those is taken if there is any.
//!
//! What results is a device that cannot be written: it shows the copy in place of the first superblock, and a range
//! that the file does not have fails when it is read.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Superblocks"; where mkfs.xfs writes the root inode.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use xfskit_device::{BlockDevice, Fua, Hints, WrapsDevice, data_pieces};
use xfskit_engine::{Error, Result};
#[doc(inline)]
pub use xfskit_ondisk::AgNumber;
use xfskit_ondisk::superblock::{SUPERBLOCK_CRC_OFFSET, SUPERBLOCK_MAGIC, SuperblockError, Unsupported};
use xfskit_ondisk::{Geometry, RawSuperblock, Superblock, checksum_matches, set_checksum};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes that are read at once while copies are looked for.
const STEP_BYTES: usize = 1 << 20;
/// Of the likely places: so much at the start, so much before and behind each other one, and so many of them.
const START_BYTES: u64 = 64 << 20;
const AROUND_BYTES: u64 = 1 << 20;
const MAX_AGS: u64 = 64;
/// Sectors start at multiples of this.
const SECTOR_BYTES: usize = 512;
/// Largest sector that a superblock may fill.
const MAX_SECTOR_BYTES: usize = 32 << 10;
/// A copy that does not name the root inode has this in its place.
const NO_INODE: u64 = u64::MAX;

/// What an image lost, and what stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The first superblock cannot be used; this AG's copy stands for it.
    FirstSuperblock {
        /// The AG.
        copy: AgNumber,
    },
    /// The file ends before the filesystem.
    End {
        /// Bytes that the file has.
        has: u64,
        /// Bytes that the filesystem needs.
        needs: u64,
    },
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FirstSuperblock { copy } => {
                write!(f, "the first superblock is damaged or gone; the copy in AG {copy} is used in its place")
            }
            Self::End { has, needs } => {
                write!(
                    f,
                    "the image was cut short: {has} bytes of {needs} are there; what lay behind them cannot be read"
                )
            }
        }
    }
}

/// An image that can be read in spite of what it lost.
#[non_exhaustive]
pub struct Rescued {
    /// The image, to be read only.
    pub device: Arc<dyn BlockDevice>,
    /// What it lost.
    pub losses: Vec<Loss>,
}

/// Where copies of a superblock are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Wherever the device may hold data: of one whose size is that of what is there.
    Whole,
    /// As [`Self::LikelyPlaces`], and then wherever the device may hold data, until so much was read and asked: of one
    /// whose size, or whose data, is only what someone says.
    Within {
        /// Bytes that are read.
        most_bytes: u64,
        /// Questions about holes.
        most_questions: u64,
    },
    /// Near the start, and where an AG starts if the device is divided into equal ones, up to 64: at most 200 MiB are
    /// read. For what is most likely no image, such as a disk with a partition table.
    LikelyPlaces,
}

/// Makes a damaged image one that can be read. `None` where neither its first superblock nor its end is missing,
/// or where no copy of the superblock can be found.
///
/// # Errors
/// `Io`.
pub fn rescue(device: Arc<dyn BlockDevice>, search: Search) -> Result<Option<Rescued>> {
    let mut losses = Vec::new();
    let mut first = vec![0; MAX_SECTOR_BYTES.min(device.size_bytes() as usize)];
    read(&*device, 0, &mut first)?;
    let superblock = match Superblock::decode(&first) {
        Ok(superblock) => superblock,
        // An older version has no checksum that would be wrong, but no copies of version 5 either.
        Err(SuperblockError::Unsupported(Unsupported::Version(_))) => {
            let Some((copy, superblock)) = copy_of_same_shape(&*device, &first)? else { return Ok(None) };
            losses.push(Loss::FirstSuperblock { copy });
            superblock
        }
        // The superblock is right; that it has features which xfskit does not know is no damage.
        Err(SuperblockError::Unsupported(_)) => return Ok(None),
        Err(_) => {
            let Some((copy, superblock)) = find_copy(&*device, search)? else { return Ok(None) };
            losses.push(Loss::FirstSuperblock { copy });
            superblock
        }
    };
    let geometry = Geometry::new(&superblock);
    let (has, needs) = (device.size_bytes(), geometry.data_blocks << geometry.block_log);
    if has < needs {
        losses.push(Loss::End { has, needs });
    }
    if losses.is_empty() {
        return Ok(None);
    }
    let sector = encode(superblock.raw(), geometry.sector_bytes());
    let device = Arc::new(RescuedDevice { below: device, sector, size_bytes: has.max(needs) });
    Ok(Some(Rescued { device, losses }))
}

fn read(device: &dyn BlockDevice, offset: u64, bytes: &mut [u8]) -> Result<()> {
    device.read(offset, bytes).map_err(|source| Error::Io { offset, source })
}

/// The superblock as the first sector.
fn encode(superblock: &RawSuperblock, sector_bytes: usize) -> Vec<u8> {
    let mut sector = vec![0; sector_bytes];
    let raw = superblock.as_bytes();
    sector[..raw.len()].copy_from_slice(raw);
    set_checksum(&mut sector, SUPERBLOCK_CRC_OFFSET);
    sector
}

/// The best copy: one that names the root inode, if there is one.
fn find_copy(device: &dyn BlockDevice, search: Search) -> Result<Option<(AgNumber, Superblock)>> {
    match find_any_copy(device, search)? {
        Some(found) => best_copy(device, &found),
        None => Ok(None),
    }
}

/// The best copy of a first superblock that is right but for its version.
fn copy_of_same_shape(device: &dyn BlockDevice, first: &[u8]) -> Result<Option<(AgNumber, Superblock)>> {
    let Ok((first, _)) = RawSuperblock::read_from_prefix(first) else { return Ok(None) };
    let offset = u64::from(first.ag_blocks.get()) * u64::from(first.block_size.get());
    match copy_at(device, offset)?.filter(|copy| shape(copy.raw()) == shape(&first)) {
        Some(found) => best_copy(device, &found),
        None => Ok(None),
    }
}

/// The best of the copies of the filesystem that a copy is of.
fn best_copy(device: &dyn BlockDevice, found: &Superblock) -> Result<Option<(AgNumber, Superblock)>> {
    let geometry = Geometry::new(found);
    let mut best: Option<(AgNumber, Superblock)> = None;
    for ag in (1..geometry.ag_count).map(AgNumber) {
        let Some(copy) = copy_at(device, geometry.ag_header(ag, 0).bytes())? else { continue };
        if shape(copy.raw()) != shape(found.raw()) {
            continue;
        }
        if copy.raw().root_inode.get() != NO_INODE {
            return Ok(Some((ag, copy)));
        }
        best.get_or_insert((ag, copy));
    }
    Ok(best)
}

/// What is the same in all copies of one filesystem.
fn shape(raw: &RawSuperblock) -> impl PartialEq + use<> {
    (raw.uuid, raw.data_blocks, raw.ag_blocks, raw.block_size, raw.log_start)
}

/// The first copy that lies where its geometry puts one.
fn find_any_copy(device: &dyn BlockDevice, search: Search) -> Result<Option<Superblock>> {
    let size = device.size_bytes();
    let everywhere = |most_bytes, most_questions| find_copy_in(device, 0..size, most_bytes, most_questions);
    if search == Search::Whole || size <= START_BYTES + 2 * MAX_AGS * AROUND_BYTES {
        return everywhere(u64::MAX, u64::MAX);
    }
    // An AG's size is rounded to blocks, or to the stripes of an array.
    let ag_starts = (2..=MAX_AGS).map(|count| (size / count).saturating_sub(AROUND_BYTES) & !(STEP_BYTES as u64 - 1));
    let windows = ag_starts.map(|start| (start, start + 2 * AROUND_BYTES));
    for (start, end) in std::iter::once((0, START_BYTES)).chain(windows) {
        if let Some(copy) = find_copy_in(device, start..end.min(size), u64::MAX, u64::MAX)? {
            return Ok(Some(copy));
        }
    }
    match search {
        Search::Within { most_bytes, most_questions } => everywhere(most_bytes, most_questions),
        Search::LikelyPlaces | Search::Whole => Ok(None),
    }
}

/// The first copy within a range, of whose data so much is read, and so many questions asked.
fn find_copy_in(
    device: &dyn BlockDevice,
    range: Range<u64>,
    most_bytes: u64,
    most_questions: u64,
) -> Result<Option<Superblock>> {
    let mut chunk = vec![0; STEP_BYTES];
    let mut left_bytes = most_bytes;
    for piece in data_pieces(device, range, STEP_BYTES as u64, most_questions) {
        let count = (piece.end - piece.start) as usize;
        let Some(left) = left_bytes.checked_sub(count as u64) else { break };
        left_bytes = left;
        read(device, piece.start, &mut chunk[..count])?;
        for at in (0..count).step_by(SECTOR_BYTES) {
            let place = piece.start + at as u64;
            let is_magic = chunk[at..count].starts_with(&SUPERBLOCK_MAGIC.to_be_bytes());
            if is_magic
                && place > 0
                && let Some(copy) = copy_at(device, place)?
            {
                return Ok(Some(copy));
            }
        }
    }
    Ok(None)
}

/// The copy at a place, if there is one that belongs there.
fn copy_at(device: &dyn BlockDevice, place: u64) -> Result<Option<Superblock>> {
    let Some(left) = device.size_bytes().checked_sub(place).filter(|left| *left > 0) else { return Ok(None) };
    let mut sector = vec![0; (MAX_SECTOR_BYTES as u64).min(left) as usize];
    read(device, place, &mut sector)?;
    let Ok((raw, _)) = RawSuperblock::read_from_prefix(&sector) else { return Ok(None) };
    let ag_bytes = u64::from(raw.ag_blocks.get()).saturating_mul(raw.block_size.get().into());
    let belongs = ag_bytes != 0 && place.is_multiple_of(ag_bytes) && place / ag_bytes < raw.ag_count.get().into();
    let sector_bytes = usize::from(raw.sector_size.get());
    let is_whole = (SECTOR_BYTES..=sector.len()).contains(&sector_bytes);
    if !belongs || !is_whole || !checksum_matches(&sector[..sector_bytes], SUPERBLOCK_CRC_OFFSET) {
        return Ok(None);
    }
    // mkfs.xfs takes the mark of its work from the first superblock alone.
    let finished = encode(&RawSuperblock { in_progress: 0, ..raw }, sector_bytes);
    Ok(Superblock::decode(&finished).ok())
}

/// The image as it is shown.
struct RescuedDevice {
    below: Arc<dyn BlockDevice>,
    /// What stands for the first superblock.
    sector: Vec<u8>,
    size_bytes: u64,
}

fn not_written() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "a damaged image is not written")
}

impl WrapsDevice for RescuedDevice {
    type Below = dyn BlockDevice;

    fn below(&self) -> &Self::Below {
        &*self.below
    }

    fn pass_size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn pass_hints(&self) -> Hints {
        Hints { read_only: true, ..self.below.hints() }
    }

    fn pass_read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below.read(offset, buffer)?;
        if let Some(sector) = self.sector.get(offset.try_into().unwrap_or(usize::MAX)..) {
            let count = sector.len().min(buffer.len());
            buffer[..count].copy_from_slice(&sector[..count]);
        }
        Ok(())
    }

    fn pass_write(&self, _: u64, _: &[u8], _: Fua) -> io::Result<()> {
        Err(not_written())
    }

    fn pass_flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn pass_discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(not_written())
    }

    fn pass_allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(not_written())
    }

    fn pass_may_hold_data(&self, offset: u64, length: u64) -> bool {
        // The sector that stands for the first superblock may lie over a hole.
        offset < self.sector.len() as u64 || self.below.may_hold_data(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xfskit_testkit::NotedDevice;

    #[test]
    fn the_sector_that_is_shown_is_data_and_the_rest_is_asked_below() {
        let below = Arc::new(NotedDevice::default());
        let rescued = RescuedDevice { below: below.clone(), sector: vec![7; 512], size_bytes: below.size_bytes() };
        assert!(rescued.may_hold_data(0, 4096) && rescued.may_hold_data(511, 1));
        // Nothing is written to it.
        let of_writing = ["write", "write_fua", "flush", "discard", "allocate"];
        assert_eq!(below.kept_by(&rescued), of_writing);
    }
}
