//! The blocks that recovery changes: each is read once, changed in memory, and written once, in the order of the
//! device, when all is replayed or when memory runs short.
//!
//! Invariants
//! - The block on disk decides whether an item is replayed: by its LSN, if its checksum and all other checks find it a
//!   whole block of this filesystem. Items are replayed onto a torn block whatever its LSN is.
//! - A block is verified, carries the LSN of its newest change and has its checksum before it is written.
//! - Blocks are written between two items. A transaction has one item for each block. If a crafted log has more, the
//!   later ones find a block that is not newer than they are, and are replayed.
//! - Memory contains at most `MAX_BYTES` of blocks and what one item changes. Blocks that may be pieces of directory
//!   blocks are written unstamped when they are too many; a few words about each are kept until its block can be
//!   stamped.
//!
//! Crash behaviour: the log is not touched, so the next recovery starts from the same place. By their LSNs it skips the
//! items that the written blocks contain already, and replays the rest.

use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::inode::stamp_inode;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{
    BASIC_BLOCK_BYTES, Corruption, DiskAddress, Geometry, InodeCore, InodeNumber, Lsn, Verdict, checksum_matches,
};

/// Bytes of blocks in memory at which they are written.
pub(super) const MAX_BYTES: usize = 256 << 20;
/// Bytes of blocks that may be pieces of directory blocks at which they are written unstamped.
const MAX_PIECES_BYTES: usize = 64 << 20;
/// Most bytes in one write.
const RUN_BYTES: usize = 1 << 20;

/// Finds the kind of a metadata block by its contents.
pub type KindOf = fn(&[u8]) -> Option<&'static BufferKind>;

/// What is known of an inode of a cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Slot {
    /// It was not changed since it was read.
    #[default]
    OnDevice,
    /// It is torn on the device. Only the link of its unlinked list was replayed; a later item must replay the rest.
    Torn,
    /// It was changed; its checksum must be set.
    Changed,
}

/// A block in memory.
pub(super) struct Block {
    pub bytes: Vec<u8>,
    /// The LSN of the block on the device; `None` when it does not count.
    pub device_lsn: Option<Lsn>,
    /// The type in the newest item; `None` for a block that was not changed.
    pub log_type: Option<u16>,
    /// The newest change.
    pub lsn: Lsn,
    /// For a cluster of inodes.
    pub slots: Vec<Slot>,
}

/// The blocks in memory.
pub(super) struct Blocks {
    device: Arc<dyn BlockDevice>,
    pub geometry: Arc<Geometry>,
    kind_of: KindOf,
    /// Bytes of the data device that the log takes: nothing is replayed there.
    log: Range<u64>,
    blocks: BTreeMap<u64, Block>,
    bytes: usize,
    pub written: u64,
    /// Inodes that were torn on the device when their link was replayed, and were not replayed since, by cluster and
    /// index in it.
    torn: BTreeSet<(DiskAddress, usize)>,
    /// Blocks that may be pieces of directory blocks and were written unstamped.
    unstamped: BTreeMap<u64, Unstamped>,
}

/// A changed block that was written in place without its LSN and checksum.
#[derive(Clone, Copy)]
pub(super) struct Unstamped {
    pub bytes: usize,
    pub log_type: u16,
    pub lsn: Lsn,
}

impl Blocks {
    pub(super) fn new(device: Arc<dyn BlockDevice>, geometry: Arc<Geometry>, kind_of: KindOf, log: Range<u64>) -> Self {
        Self {
            device,
            geometry,
            kind_of,
            log,
            blocks: BTreeMap::new(),
            bytes: 0,
            written: 0,
            torn: BTreeSet::new(),
            unstamped: BTreeMap::new(),
        }
    }

    /// Bytes of the blocks in memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes whether inode `index` of a cluster is torn.
    pub(super) fn set_torn(&mut self, cluster: DiskAddress, index: usize, is_torn: bool) {
        if is_torn {
            self.torn.insert((cluster, index));
        } else {
            self.torn.remove(&(cluster, index));
        }
    }

    /// Checks that the log replaced every inode that was found torn.
    pub(super) fn expect_mended(&self) -> Verdict {
        let Some((cluster, index)) = self.torn.first() else { return Ok(()) };
        Err(Corruption::new("inode", "checksum").at(*cluster).found(format_args!(
            "number {index} of the cluster, whose link of the unlinked list is in the log and nothing else of it"
        )))
    }

    /// The block of `bytes` bytes at `address`, read if it is not in memory.
    pub(super) fn read(&mut self, address: DiskAddress, bytes: usize) -> Result<&mut Block> {
        self.make_room(address, bytes)?;
        if !self.blocks.contains_key(&address.0) {
            let mut contents = vec![0; bytes];
            self.read_home(address, &mut contents)?;
            let device_lsn = self.device_lsn(address, &contents);
            self.insert(address, contents, device_lsn);
            self.take_unstamped(address, bytes);
        }
        Ok(self.blocks.get_mut(&address.0).expect("it was just inserted"))
    }

    /// A block that is made anew, whatever is on the device.
    pub(super) fn make(&mut self, address: DiskAddress, contents: Vec<u8>) -> Result<&mut Block> {
        self.make_room(address, contents.len())?;
        if let Some(old) = self.blocks.remove(&address.0) {
            self.bytes -= old.bytes.len();
        }
        for index in 0..contents.len() / self.geometry.inode_bytes() {
            self.set_torn(address, index, false);
        }
        self.insert(address, contents, None);
        Ok(self.blocks.get_mut(&address.0).expect("it was just inserted"))
    }

    fn insert(&mut self, address: DiskAddress, bytes: Vec<u8>, device_lsn: Option<Lsn>) {
        self.bytes += bytes.len();
        let slots = vec![Slot::OnDevice; bytes.len() / self.geometry.inode_bytes()];
        self.blocks.insert(address.0, Block { bytes, device_lsn, log_type: None, lsn: Lsn(0), slots });
    }

    /// Checks that the address may be replayed to, and writes back other blocks that overlap it: it has changed its use
    /// since they were changed.
    fn make_room(&mut self, address: DiskAddress, bytes: usize) -> Result<()> {
        let (start, end) = (address.bytes(), address.bytes() + bytes as u64);
        let device_end = self.geometry.data_blocks << self.geometry.block_log;
        let in_log = start < self.log.end && end > self.log.start;
        if end > device_end || in_log {
            return Err(Corruption::new("log item", "names blocks that hold metadata")
                .at(address)
                .found(format_args!("{bytes} bytes of {}", if in_log { "the log" } else { "nothing" }))
                .into());
        }
        loop {
            let end = address.0 + (bytes / BASIC_BLOCK_BYTES) as u64;
            let overlapping = self.blocks.range(..end).next_back().filter(|(start, block)| {
                let same = **start == address.0 && block.bytes.len() == bytes;
                **start + (block.bytes.len() / BASIC_BLOCK_BYTES) as u64 > address.0 && !same
            });
            let Some((&start, _)) = overlapping else { return Ok(()) };
            let mut block = self.blocks.remove(&start).expect("it was just found");
            self.bytes -= block.bytes.len();
            if block.log_type.is_some() {
                self.finish(DiskAddress(start), &mut block)?;
                self.write(DiskAddress(start), &block.bytes)?;
            }
        }
    }

    fn device_lsn(&self, address: DiskAddress, bytes: &[u8]) -> Option<Lsn> {
        let kind = (self.kind_of)(bytes)?;
        let (crc, lsn) = (kind.crc_offset?, kind.lsn_offset?);
        let whole = checksum_matches(bytes, crc) && (kind.verify)(&self.geometry, address, bytes).is_ok();
        let lsn = bytes.get(lsn..lsn + 8)?.try_into().map(u64::from_be_bytes).ok()?;
        // Blocks that are written without the journal carry no valid LSN: -1, or 0, which is older than any.
        (whole && lsn != u64::MAX).then_some(Lsn(lsn))
    }

    /// Between two items: if memory runs short, writes all blocks, except those that may be pieces of directory blocks.
    pub(super) fn relieve(&mut self) -> Result<()> {
        if self.bytes < MAX_BYTES {
            return Ok(());
        }
        let pieces: Vec<_> = self.pieces().collect();
        let pieces: Vec<_> = pieces
            .iter()
            .filter_map(|address| self.blocks.remove(&address.0).map(|block| (address.0, block)))
            .collect();
        self.write_all()?;
        self.bytes = pieces.iter().map(|(_, block)| block.bytes.len()).sum();
        self.blocks.extend(pieces);
        if self.bytes > MAX_PIECES_BYTES { self.write_unstamped() } else { Ok(()) }
    }

    /// Writes the remaining blocks unstamped and notes their types and LSNs. Their checksums are wrong, so recovery
    /// ignores their LSNs.
    fn write_unstamped(&mut self) -> Result<()> {
        self.bytes = 0;
        for (address, block) in std::mem::take(&mut self.blocks) {
            let Some(log_type) = block.log_type else { continue };
            self.write(DiskAddress(address), &block.bytes)?;
            self.unstamped.insert(address, Unstamped { bytes: block.bytes.len(), log_type, lsn: block.lsn });
        }
        Ok(())
    }

    /// If a block that was just read had been written unstamped, continues with its noted type and LSN.
    fn take_unstamped(&mut self, address: DiskAddress, bytes: usize) {
        let Some(Unstamped { log_type, lsn, .. }) = self.unstamped.remove(&address.0).filter(|old| old.bytes == bytes)
        else {
            return;
        };
        let block = self.blocks.get_mut(&address.0).expect("it was just inserted");
        (block.device_lsn, block.log_type, block.lsn) = (None, Some(log_type), lsn);
    }

    /// Takes out all blocks that were written unstamped.
    pub(super) fn all_unstamped(&mut self) -> BTreeMap<u64, Unstamped> {
        std::mem::take(&mut self.unstamped)
    }

    /// Stamps a block that was written unstamped, and is a whole one.
    pub(super) fn finish_unstamped(&mut self, address: DiskAddress, old: &Unstamped) -> Result<()> {
        let mut bytes = vec![0; old.bytes];
        self.read_home(address, &mut bytes)?;
        let mut block =
            Block { bytes, device_lsn: None, log_type: Some(old.log_type), lsn: old.lsn, slots: Vec::new() };
        self.finish(address, &mut block)?;
        self.written += 1;
        self.write(address, &block.bytes)
    }

    /// The addresses of changed blocks that may be pieces of directory blocks.
    pub(super) fn pieces(&self) -> impl Iterator<Item = DiskAddress> {
        let changed = self.blocks.iter().filter_map(|(address, block)| Some((address, block, block.log_type?)));
        let pieces = changed.filter(|(_, block, log_type)| self.may_be_piece(*log_type, block.bytes.len()));
        pieces.map(|(address, ..)| DiskAddress(*address))
    }

    /// Writes a piece of a directory block unstamped; returns its LSN.
    pub(super) fn write_piece(&mut self, address: DiskAddress) -> Result<Lsn> {
        let block = self.blocks.remove(&address.0).expect("pieces are in memory");
        self.bytes -= block.bytes.len();
        self.write(address, &block.bytes)?;
        Ok(block.lsn)
    }

    /// Reads the block on the device.
    pub(super) fn read_home(&self, address: DiskAddress, bytes: &mut [u8]) -> Result<()> {
        let offset = address.bytes();
        self.device.read(offset, bytes).map_err(|source| Error::Io { offset, source })
    }

    /// Writes every changed block in the order of the device, and forgets them all.
    pub(super) fn write_all(&mut self) -> Result<()> {
        let blocks = std::mem::take(&mut self.blocks);
        self.bytes = 0;
        let (mut run, mut run_start) = (Vec::new(), 0);
        for (address, mut block) in blocks {
            if block.log_type.is_none() {
                continue;
            }
            self.finish(DiskAddress(address), &mut block)?;
            let run_end = run_start + (run.len() / BASIC_BLOCK_BYTES) as u64;
            if run_end != address || run.len() >= RUN_BYTES {
                self.write(DiskAddress(run_start), &run)?;
                run.clear();
                run_start = address;
            }
            run.extend_from_slice(&block.bytes);
            self.written += 1;
        }
        self.write(DiskAddress(run_start), &run)
    }

    pub(super) fn write(&self, address: DiskAddress, bytes: &[u8]) -> Result<()> {
        let offset = address.bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.write(offset, bytes).map_err(|source| Error::Io { offset, source })
    }

    /// Everything that was written is durable after this.
    pub(super) fn flush(&self) -> Result<()> {
        self.device.flush().map_err(Error::of_flush)
    }

    /// Verifies a changed block and gives it its LSN and checksum.
    fn finish(&self, address: DiskAddress, block: &mut Block) -> Result<()> {
        let log_type = block.log_type.expect("only changed blocks are written");
        match log_type {
            buffer_type::INODES => finish_cluster(&self.geometry, address, block),
            buffer_type::USER_QUOTA | buffer_type::PROJECT_QUOTA | buffer_type::GROUP_QUOTA => {
                xfskit_ondisk::logged::dquot::verify_block(&self.geometry, address, &block.bytes)
            }
            _ => self.finish_block(address, log_type, block),
        }
        .map_err(|error| error.at(address).into())
    }

    fn finish_block(&self, address: DiskAddress, log_type: u16, block: &mut Block) -> Verdict {
        let kind = (self.kind_of)(&block.bytes).filter(|kind| kind.log_type == log_type);
        let Some(kind) = kind else {
            let first: String = block.bytes.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
            return Err(Corruption::new("replayed block", "is what the log says")
                .found(format_args!("type {log_type}, contents {first}")));
        };
        stamp(kind, &self.geometry, address, block.lsn, &mut block.bytes)
    }

    /// Stamps a whole directory block.
    pub(super) fn stamp(&self, address: DiskAddress, lsn: Lsn, bytes: &mut [u8]) -> Verdict {
        let kind = (self.kind_of)(bytes).ok_or_else(|| Corruption::new("directory block", "magic number"))?;
        stamp(kind, &self.geometry, address, lsn, bytes)
    }
}

fn stamp(kind: &BufferKind, geometry: &Geometry, address: DiskAddress, lsn: Lsn, bytes: &mut [u8]) -> Verdict {
    kind.stamp(geometry, address, lsn, bytes).map_err(|error| match error {
        Error::Corrupt(corruption) => corruption,
        other => Corruption::new(kind.name, "can be written").found(other),
    })
}

/// Verifies the inodes of a cluster that were changed, and gives them their checksums. A torn one keeps its wrong
/// checksum, by which a reader finds the damage.
fn finish_cluster(geometry: &Geometry, address: DiskAddress, block: &mut Block) -> Verdict {
    let size = geometry.inode_bytes();
    for (index, slot) in block.slots.iter().enumerate() {
        if *slot == Slot::Changed {
            let bytes = &mut block.bytes[index * size..(index + 1) * size];
            stamp_inode(bytes);
            InodeCore::decode(geometry, inode_at(geometry, address, index), bytes)?;
        }
    }
    Ok(())
}

/// The number of an inode of a cluster.
pub(super) fn inode_at(geometry: &Geometry, address: DiskAddress, index: usize) -> InodeNumber {
    let bytes = address.bytes() + (index << geometry.inode_log) as u64;
    let (ag, block) = geometry.block_of_address(DiskAddress(bytes / BASIC_BLOCK_BYTES as u64));
    let within_block = bytes & ((1 << geometry.block_log) - 1);
    let first = geometry.first_inode_of_block(block);
    geometry.inode_number(ag, xfskit_ondisk::AgInode(first.0 + (within_block >> geometry.inode_log) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::{Random, TestImage};
    use std::io;
    use std::sync::Mutex;
    use xfskit_device::{Fua, WrapsDevice};

    /// Notes where each write starts and how long it is.
    struct Writes {
        below: Arc<dyn BlockDevice>,
        writes: Mutex<Vec<(u64, usize)>>,
    }

    impl WrapsDevice for Writes {
        type Below = dyn BlockDevice;

        fn below(&self) -> &Self::Below {
            &*self.below
        }

        fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> io::Result<()> {
            self.writes.lock().unwrap().push((offset, data.len()));
            fua.write(&*self.below, offset, data)
        }
    }

    fn blocks() -> (Arc<Writes>, Blocks) {
        let image = TestImage::new(64, &[]);
        let geometry = Arc::clone(&image.mount().geometry);
        let device = Arc::new(Writes { below: Arc::clone(&image.device) as _, writes: Mutex::default() });
        (Arc::clone(&device), Blocks::new(device, geometry, |_| None, 0..0))
    }

    /// Beside a list of the places that are in memory.
    #[test]
    fn a_block_drives_out_those_that_it_overlaps() {
        let (_, mut blocks) = blocks();
        let (mut model, mut random) = (BTreeMap::new(), Random::new(1));
        for _ in 0..5000 {
            let (address, sectors) = (random.below(256), [1, 2, 8, 16, 64][random.below(5) as usize]);
            let bytes = sectors as usize * BASIC_BLOCK_BYTES;
            if random.below(2) == 0 {
                blocks.read(DiskAddress(address), bytes).unwrap();
            } else {
                blocks.make(DiskAddress(address), vec![0; bytes]).unwrap();
            }
            model.retain(|start, length| *start + *length <= address || address + sectors <= *start);
            model.insert(address, sectors);
            let in_memory = blocks.blocks.iter().map(|(start, block)| (*start, block.bytes.len() as u64 / 512));
            assert_eq!(in_memory.collect::<BTreeMap<_, _>>(), model);
            assert_eq!(blocks.bytes as u64, model.values().sum::<u64>() * 512);
        }
    }

    /// Neighbours are written together, up to a MiB at a time.
    #[test]
    fn blocks_are_written_in_runs() {
        const BLOCK: usize = 4096;
        let (device, mut blocks) = blocks();
        // In blocks: a run from the start of the device, two that are cut, and one that ends with an unchanged block.
        let runs = [(0, 3), (4, 256), (300, 600), (1000, 2), (1003, 1)];
        for number in runs.iter().flat_map(|&(start, count)| start..start + count) {
            let block = blocks.make(DiskAddress(number * 8), vec![number as u8; BLOCK]).unwrap();
            block.log_type = Some(buffer_type::INODES);
        }
        blocks.read(DiskAddress(1002 * 8), BLOCK).unwrap();
        blocks.write_all().unwrap();
        let written = device.writes.lock().unwrap().clone();
        let expected = [(0, 3), (4, 256), (300, 256), (556, 256), (812, 88), (1000, 2), (1003, 1)];
        assert_eq!(written, expected.map(|(start, count)| (start * BLOCK as u64, count as usize * BLOCK)));
        assert_eq!((blocks.written, blocks.bytes, blocks.blocks.len()), (862, 0, 0));
        let mut contents = [0];
        for number in runs.iter().flat_map(|&(start, count)| start..start + count) {
            device.read(number * BLOCK as u64 + 5, &mut contents).unwrap();
            assert_eq!(contents, [number as u8]);
        }
    }

    /// A block that was written unstamped goes on with its type and LSN where it is read again, unless the place has
    /// another length by now; what is not read again is stamped at the end.
    #[test]
    fn blocks_that_were_written_unstamped_are_continued() {
        let (device, mut blocks) = blocks();
        let address = DiskAddress(800);
        let unstamp = |blocks: &mut Blocks| {
            let block = blocks.make(address, vec![7; 4096]).unwrap();
            (block.log_type, block.lsn) = (Some(buffer_type::INODES), Lsn(5));
            blocks.write_unstamped().unwrap();
            assert_eq!((blocks.bytes, blocks.unstamped.len()), (0, 1));
        };
        unstamp(&mut blocks);
        let block = blocks.read(address, 4096).unwrap();
        assert_eq!((block.device_lsn, block.log_type, block.lsn), (None, Some(buffer_type::INODES), Lsn(5)));
        assert!(blocks.unstamped.is_empty());
        assert_eq!(blocks.write_piece(address).unwrap(), Lsn(5));
        assert_eq!(blocks.bytes, 0);
        unstamp(&mut blocks);
        assert_eq!(blocks.read(address, 512).unwrap().log_type, None);
        unstamp(&mut blocks);
        let (writes, unstamped) = (device.writes.lock().unwrap().len(), blocks.all_unstamped());
        blocks.finish_unstamped(address, &unstamped[&address.0]).unwrap();
        assert_eq!((blocks.written, device.writes.lock().unwrap().len()), (1, writes + 1));
    }
}
