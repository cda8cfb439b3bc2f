//! The fuzz targets: each takes any bytes for one structure, corrects its checksum, and decodes, verifies and uses it.
//!
//! ```text
//! superblock  the first sector             inode      which of the image's inodes (2 bytes), its contents
//! directory   which block (2), contents    attribute  likewise              log   the log from its first sector
//! log_recovery   changes to a dirty log: which record (2), offset in it (2), new bytes (4)
//! ```

use crate::blocks::{Block, Kind, Metadata};
use crate::fuzz::Target;
use crate::image::{IMAGE_UUID, Recipe, image};
use crate::{Behaviour, Findings, Overlay, Random, blocks, look, walk};
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use xfskit_device::{BlockDevice, MemoryDevice};
use xfskit_engine::journal::{LogArea, find_head};
use xfskit_engine::{Caller, MountOptions, NewFile, SetMode, Volume};
use xfskit_ondisk::log_record::{RECORD_MAGIC, header_sectors, open_record, record_checksum};
use xfskit_ondisk::{Geometry, InodeNumber, Limits, Reservations, Superblock, set_checksum};

/// The targets of the format.
pub const TARGETS: [Target; 6] = [
    Target { name: "superblock", seeds: superblock_seeds, run: superblock },
    Target { name: "inode", seeds: || block_seeds(inode_blocks()), run: inode },
    Target { name: "directory", seeds: || block_seeds(dir_blocks()), run: directory },
    Target { name: "attribute", seeds: || block_seeds(attr_blocks()), run: attribute },
    Target { name: "log", seeds: log_seeds, run: log },
    Target { name: "log_recovery", seeds: recovery_seeds, run: log_recovery },
];

struct Base {
    bytes: Arc<Vec<u8>>,
    metadata: Metadata,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let bytes = Arc::new(image(Recipe::Quick));
    let metadata = blocks(&bytes);
    Base { bytes, metadata }
});

fn of_kinds(kinds: &[Kind]) -> Vec<Block> {
    kinds.iter().flat_map(|kind| BASE.metadata.of(*kind)).copied().collect()
}

/// The inodes in use.
fn inode_blocks() -> &'static [Block] {
    static BLOCKS: LazyLock<Vec<Block>> = LazyLock::new(|| {
        let mut inodes = of_kinds(&[Kind::Inode]);
        inodes.retain(|block| block.of(&BASE.bytes)[2..4] != [0, 0]);
        inodes
    });
    &BLOCKS
}

fn dir_blocks() -> &'static [Block] {
    static BLOCKS: LazyLock<Vec<Block>> = LazyLock::new(|| {
        of_kinds(&[Kind::DirBlock, Kind::DirLeaf1, Kind::DirFree, Kind::DaNode, Kind::DirLeafN, Kind::DirData])
    });
    &BLOCKS
}

fn attr_blocks() -> &'static [Block] {
    static BLOCKS: LazyLock<Vec<Block>> = LazyLock::new(|| {
        let mut few = of_kinds(&[Kind::DaNode]);
        for kind in [Kind::AttrLeaf, Kind::AttrRemote] {
            few.extend(of_kinds(&[kind]).into_iter().step_by(5));
        }
        few
    });
    &BLOCKS
}

fn block_seeds(blocks: &[Block]) -> Vec<Vec<u8>> {
    let seed = |(index, block): (usize, &Block)| {
        let mut seed = (index as u16).to_be_bytes().to_vec();
        seed.extend_from_slice(block.of(&BASE.bytes));
        seed
    };
    blocks.iter().enumerate().map(seed).collect()
}

/// An image in which one of `blocks` has the contents that `input` names, with a valid checksum.
fn damaged(blocks: &'static [Block], input: &[u8]) -> Option<(Arc<Overlay>, &'static Block)> {
    let (index, contents) = input.split_first_chunk::<2>()?;
    let block = &blocks[usize::from(u16::from_be_bytes(*index)) % blocks.len()];
    let mut bytes = block.of(&BASE.bytes).to_vec();
    for (slot, byte) in bytes.iter_mut().zip(contents) {
        *slot = *byte;
    }
    block.mend(&mut bytes);
    let device = Arc::new(Overlay::new(&BASE.bytes));
    device.patch(block.offset, &bytes);
    Some((device, block))
}

/// The inode to which a block of the sound image belongs.
fn owner(block: &Block) -> InodeNumber {
    let at = match block.kind {
        Kind::Inode => 152,
        Kind::DirBlock | Kind::DirData | Kind::DirFree => 40,
        Kind::AttrRemote => 32,
        _ => 48,
    };
    let bytes = block.of(&BASE.bytes);
    InodeNumber(bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn open(device: &Arc<Overlay>, read_only: bool, behaviour: &mut Behaviour) -> Option<Volume> {
    let options = MountOptions { read_only, cache_bytes: 16 << 20, ..MountOptions::default() };
    let opened = Volume::open(Arc::clone(device) as _, options);
    behaviour.note_result("open", &opened);
    opened.ok()
}

fn note_findings(findings: &Findings, behaviour: &mut Behaviour) {
    behaviour.note((findings.names > 0, findings.attributes > 0));
    for error in &findings.errors {
        behaviour.note_message(error);
    }
}

/// Reads one inode, then changes it.
fn use_inode(device: &Arc<Overlay>, inode: InodeNumber) -> Behaviour {
    let mut behaviour = Behaviour::new();
    if let Some(fs) = open(device, true, &mut behaviour) {
        let mut findings = Findings::default();
        look(&fs, inode, &mut findings, &mut |_| {});
        note_findings(&findings, &mut behaviour);
    }
    let Some(fs) = open(device, false, &mut behaviour) else { return behaviour };
    let me = Caller::root();
    let created = fs.create(inode, b"a name that is new", &NewFile::file(0o644), &me);
    behaviour.note_result("create", &created);
    behaviour.note_result("set", &fs.set_xattr(inode, b"user.new", &[1; 300], SetMode::Any, &me));
    let mut names = Vec::new();
    let _ = fs.read_dir(inode, 0, |entry| {
        names.push(entry.name.to_vec());
        if names.len() < 8 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    for name in &names {
        behaviour.note_result("unlink", &fs.unlink(inode, name, &me));
    }
    for name in fs.list_xattrs(inode).unwrap_or_default().iter().take(4) {
        behaviour.note_result("remove", &fs.remove_xattr(inode, name, SetMode::Any, &me));
    }
    behaviour.note_result("unmount", &fs.unmount());
    behaviour
}

/// The superblock: computes everything that depends on it, and opens an image with it.
pub fn superblock(input: &[u8]) -> Behaviour {
    const SECTOR_SIZE_AT: usize = 102;
    let mut sector = BASE.bytes[..32 << 10].to_vec();
    for (slot, byte) in sector.iter_mut().zip(input) {
        *slot = *byte;
    }
    let named = usize::from(u16::from_be_bytes([sector[SECTOR_SIZE_AT], sector[SECTOR_SIZE_AT + 1]]));
    let size = if (512..=32 << 10).contains(&named) { named } else { 512 };
    set_checksum(&mut sector[..size], xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET);
    let mut behaviour = Behaviour::new();
    let decoded = Superblock::decode(&sector);
    behaviour.note_result("decode", &decoded);
    if let Ok(superblock) = decoded {
        let geometry = Geometry::new(&superblock);
        let _ = (Limits::new(&geometry), Reservations::new(&geometry));
        let _ = (superblock.label(), superblock.version_flags(), superblock.check_writable());
    }
    let device = Arc::new(Overlay::new(&BASE.bytes));
    device.patch(0, &sector[..512]);
    if size > 512 {
        device.patch(512, &sector[512..size]);
    }
    if let Some(fs) = open(&device, true, &mut behaviour) {
        note_findings(&walk(&fs, 4), &mut behaviour);
    }
    if let Some(fs) = open(&device, false, &mut behaviour) {
        let created = fs.create(fs.root(), b"new", &NewFile::dir(0o755), &Caller::root());
        behaviour.note_result("create", &created);
        behaviour.note_result("unmount", &fs.unmount());
    }
    behaviour
}

fn superblock_seeds() -> Vec<Vec<u8>> {
    [Recipe::Quick, Recipe::Defaults, Recipe::Old].map(|recipe| image(recipe)[..512].to_vec()).to_vec()
}

/// An inode: core and both forks.
pub fn inode(input: &[u8]) -> Behaviour {
    let Some((device, block)) = damaged(inode_blocks(), input) else { return Behaviour::new() };
    use_inode(&device, owner(block))
}

/// A block of a directory.
pub fn directory(input: &[u8]) -> Behaviour {
    let Some((device, block)) = damaged(dir_blocks(), input) else { return Behaviour::new() };
    use_inode(&device, owner(block))
}

/// A block of an attribute fork.
pub fn attribute(input: &[u8]) -> Behaviour {
    let Some((device, block)) = damaged(attr_blocks(), input) else { return Behaviour::new() };
    use_inode(&device, owner(block))
}

const LOG_BYTES: usize = 1 << 20;

/// A log: finds its head, and verifies and unpacks its records.
pub fn log(input: &[u8]) -> Behaviour {
    let mut bytes = vec![0; LOG_BYTES];
    for (slot, byte) in bytes.iter_mut().zip(input) {
        *slot = *byte;
    }
    let records: Vec<usize> =
        (0..LOG_BYTES).step_by(512).filter(|&at| bytes[at..at + 4] == RECORD_MAGIC.to_be_bytes()).collect();
    for &at in &records {
        let word = |field: usize| {
            bytes[at + field..at + field + 4].iter().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
        };
        let headers = if word(8) == 2 { header_sectors(word(320)) } else { 1 };
        let end = at + 512 * headers + word(12);
        if end <= LOG_BYTES {
            let crc = record_checksum(&bytes[at..end], headers);
            bytes[at + 32..at + 36].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes.clone()));
    let place = LogArea { device, offset: 0, basic_blocks: (LOG_BYTES / 512) as u32 };
    let mut behaviour = Behaviour::new();
    behaviour.note_result("head", &find_head(&place, &IMAGE_UUID));
    for at in records {
        behaviour.note_result("record", &open_record(&mut bytes[at..].to_vec()));
    }
    behaviour
}

fn log_seeds() -> Vec<Vec<u8>> {
    let (start, length) = BASE.metadata.log;
    let log = &BASE.bytes[start..start + length];
    // Pieces from several records on, so that the newest record is at several positions.
    let starts = (0..length).step_by(512).filter(|&at| log[at..at + 4] == RECORD_MAGIC.to_be_bytes());
    let piece = |at: usize| log[at..(at + 64 * 1024).min(length)].to_vec();
    starts.step_by(40).take(12).map(piece).chain([log[..LOG_BYTES.min(length)].to_vec()]).collect()
}

/// An image whose log is dirty, and for each record its offset, its number of header sectors, and its bytes of data.
struct Dirty {
    bytes: Arc<Vec<u8>>,
    records: Vec<(usize, usize, usize)>,
}

static DIRTY: LazyLock<Dirty> = LazyLock::new(|| {
    let device = Arc::new(MemoryDevice::from_bytes(BASE.bytes.to_vec()));
    let options = MountOptions { whiteouts: false, ..MountOptions::default() };
    let fs = Volume::open(Arc::clone(&device) as _, options).expect("a sound image");
    // Several checkpoints with items of many kinds: new chunks, freed ones, attributes, unlinked inodes.
    let mut random = Random::new(11);
    for _ in 0..6 {
        crate::exercise(&fs, &mut random, 60);
        fs.sync().expect("a device that works");
    }
    drop(fs);
    let bytes = Arc::new(device.to_bytes());
    let (start, length) = BASE.metadata.log;
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let starts = (start..start + length).step_by(512).filter(|&at| bytes[at..at + 4] == RECORD_MAGIC.to_be_bytes());
    let records = starts.map(|at| (at, header_sectors(word(at + 320)), word(at + 12)));
    let records = records.filter(|&(at, headers, data)| data > 0 && at + 512 * headers + data <= start + length);
    let records = records.collect();
    Dirty { bytes, records }
});

/// Bytes of one change to a log.
const CHANGE_BYTES: usize = 8;

/// A dirty log with changed records, their checksums corrected: it must be replayed or refused.
pub fn log_recovery(input: &[u8]) -> Behaviour {
    let device = Arc::new(Overlay::new(&DIRTY.bytes));
    for change in input.chunks_exact(CHANGE_BYTES).take(64) {
        let number = |at: usize| usize::from(u16::from_le_bytes([change[at], change[at + 1]]));
        let (at, headers, length) = DIRTY.records[number(0) % DIRTY.records.len()];
        let mut record = vec![0; 512 * headers + length];
        if device.read(at as u64, &mut record).is_err() {
            return Behaviour::new();
        }
        let place = 512 * headers + number(2) % length.saturating_sub(3).max(1);
        record[place..place + 4].copy_from_slice(&change[4..8]);
        let crc = record_checksum(&record, headers);
        record[32..36].copy_from_slice(&crc.to_le_bytes());
        device.patch(at, &record);
    }
    let mut behaviour = Behaviour::new();
    let opened = Volume::open(Arc::clone(&device) as _, MountOptions::default());
    behaviour.note_result("open", &opened);
    if let Ok(fs) = opened {
        note_findings(&walk(&fs, 200), &mut behaviour);
        behaviour.note_result("unmount", &fs.unmount());
    }
    behaviour
}

/// Changes to the starts of records: the formats of items, and the counts in them.
fn recovery_seeds() -> Vec<Vec<u8>> {
    let change = |record: usize, place: u16, value: u32| {
        let mut bytes = (record as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(&place.to_le_bytes());
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes
    };
    let places = (0..40u16).map(|step| change(usize::from(step), step * 12, u32::from(step) * 0x0101_0101));
    places.chain([Vec::new()]).collect()
}
