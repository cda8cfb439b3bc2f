//! The fuzz targets of whole disks: partition tables, metadata of LVM2, qcow2 images.
//!
//! ```text
//! table   the first sectors of a disk, the checksums of a GPT mended
//! lvm     the text that describes a group, with a label and a header before it whose checksums are right
//! qcow2   an image with clusters of 512 bytes; it is read, written, and read again
//! ```
//! What must hold: an answer or an error; nothing is read past the end of a part; what was written and flushed to an
//! image that opens again is read back.

use crate::Behaviour;
use crate::fuzz::Target;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, MemoryDevice};
use xfskit_disk::{Container, DiskError, Disks, Operand, Part, Unnamed, Unread};

/// The targets of disks.
pub const TARGETS: [Target; 3] = [
    Target { name: "table", seeds: table_seeds, run: table },
    Target { name: "lvm", seeds: lvm_seeds, run: lvm },
    Target { name: "qcow2", seeds: qcow2_seeds, run: qcow2 },
];

const SECTOR: usize = 512;
const DISK_BYTES: usize = 4 << 20;
/// Sectors of an input: a protective MBR, a header, and 128 entries of 128 bytes.
const TABLE_BYTES: usize = 34 * SECTOR;
const LVM_CRC: u32 = 0xf597_a6cf;
/// What a look reads of each part.
const LOOK_BYTES: usize = 4096;

/// The CRC-32 of IEEE 802.3, without the final inversion.
fn crc32(initial: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(initial, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).map_or(0, |four| four.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
}

/// Opens a disk in memory, and reads a little of everything that can be used.
fn look(disk: Vec<u8>) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(disk));
    let operand = Operand { paths: vec![PathBuf::from("disk")], part: Part::Unnamed };
    let opened = Disks::open_with(&operand, Access::Read, |path| Container::of_device(path, Arc::clone(&device)));
    behaviour.note_result::<_, DiskError>("open", &opened);
    let Ok(disks) = opened else { return behaviour };
    behaviour.note_message(&disks);
    behaviour.note_result("choose", &disks.choose(Unnamed::OnlyXfs).map(drop));
    for found in disks.found() {
        let Ok(device) = &found.device else { continue };
        let end = device.size_bytes();
        let mut buffer = vec![0; LOOK_BYTES.min(usize::try_from(end).unwrap_or(LOOK_BYTES))];
        for offset in [0, end / 2, end - buffer.len() as u64] {
            let length = buffer.len().min((end - offset) as usize);
            device.read(offset, &mut buffer[..length]).expect("a part lies on its disk");
        }
        assert!(device.read(end, &mut [0]).is_err(), "a part ends where it says");
    }
    behaviour
}

fn table_seeds() -> Vec<Vec<u8>> {
    let mut mbr = vec![0; SECTOR];
    put(&mut mbr, 440, b"SIGN");
    for (number, (kind, start, length)) in [(0x83, 8, 64), (5, 100, 900), (0xee, 1, 30)].into_iter().enumerate() {
        let at = 446 + 16 * number;
        mbr[at + 4] = kind;
        put(&mut mbr, at + 8, &u32::to_le_bytes(start));
        put(&mut mbr, at + 12, &u32::to_le_bytes(length));
    }
    put(&mut mbr, 510, &[0x55, 0xaa]);
    let mut gpt = vec![0; TABLE_BYTES];
    put(&mut gpt, 450, &[0xee]);
    put(&mut gpt, 454, &1u32.to_le_bytes());
    put(&mut gpt, 458, &8000u32.to_le_bytes());
    put(&mut gpt, 510, &[0x55, 0xaa]);
    put(&mut gpt, SECTOR, b"EFI PART");
    put(&mut gpt, SECTOR + 12, &92u32.to_le_bytes());
    for (at, value) in [(24, 1u64), (32, 8191), (40, 34), (48, 8000), (72, 2)] {
        put(&mut gpt, SECTOR + at, &value.to_le_bytes());
    }
    put(&mut gpt, SECTOR + 80, &128u32.to_le_bytes());
    put(&mut gpt, SECTOR + 84, &128u32.to_le_bytes());
    for number in 0..3u64 {
        let at = 1024 + 128 * number as usize;
        put(&mut gpt, at, &[7; 32]);
        put(&mut gpt, at + 32, &(40 + 100 * number).to_le_bytes());
        put(&mut gpt, at + 40, &(139 + 100 * number).to_le_bytes());
        put(&mut gpt, at + 56, &[b'a', 0, b'b', 0]);
    }
    let mut extended = mbr.clone();
    extended.resize(101 * SECTOR, 0);
    put(&mut extended, 100 * SECTOR + 446 + 4, &[0x83, 0, 0, 0, 8, 0, 0, 0, 90, 0, 0, 0]);
    put(&mut extended, 100 * SECTOR + 510, &[0x55, 0xaa]);
    vec![mbr, gpt, extended]
}

/// A partition table.
pub fn table(input: &[u8]) -> Behaviour {
    let mut disk = vec![0; DISK_BYTES];
    let length = input.len().min(DISK_BYTES);
    disk[..length].copy_from_slice(&input[..length]);
    let entries_bytes = word(&disk, SECTOR + 80).saturating_mul(word(&disk, SECTOR + 84));
    let first = word(&disk, SECTOR + 72).saturating_mul(SECTOR);
    if let Some(entries) = disk.get(first..first.saturating_add(entries_bytes)).filter(|_| entries_bytes < 1 << 20) {
        let crc = !crc32(!0, entries);
        put(&mut disk, SECTOR + 88, &crc.to_le_bytes());
    }
    let header_bytes = word(&disk, SECTOR + 12).min(SECTOR);
    put(&mut disk, SECTOR + 16, &[0; 4]);
    let crc = !crc32(!0, &disk[SECTOR..SECTOR + header_bytes]);
    put(&mut disk, SECTOR + 16, &crc.to_le_bytes());
    look(disk)
}

const GROUP: &str = r#"vg {
id = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA"
seqno = 3
status = ["RESIZEABLE", "READ", "WRITE"]
extent_size = 128
physical_volumes {
pv0 {
id = "BBBBBB-BBBB-BBBB-BBBB-BBBB-BBBB-BBBBBB"
status = ["ALLOCATABLE"]
pe_start = 2048
pe_count = 40
}
}
logical_volumes {
root {
id = "CCCCCC-CCCC-CCCC-CCCC-CCCC-CCCC-CCCCCC"
status = ["READ", "WRITE", "VISIBLE"]
segment_count = 2
segment1 {
start_extent = 0
extent_count = 4
type = "striped"
stripe_count = 1
stripes = ["pv0", 0]
}
segment2 {
start_extent = 4
extent_count = 4
type = "striped"
stripe_count = 2
stripe_size = 16
stripes = ["pv0", 4, "pv0", 6]
}
}
thin {
id = "DDDDDD-DDDD-DDDD-DDDD-DDDD-DDDD-DDDDDD"
status = ["READ", "VISIBLE"]
segment_count = 1
segment1 {
start_extent = 0
extent_count = 1
type = "thin" # not handled
}
}
}
}
contents = "Text Format Volume Group"
version = 1
"#;

fn lvm_seeds() -> Vec<Vec<u8>> {
    let snapshot = GROUP.replace("type = \"thin\"", "type = \"snapshot\"\norigin = \"root\"\ncow_store = \"thin\"");
    [GROUP, &GROUP.replace("\"RESIZEABLE\", ", "\"EXPORTED\", "), &snapshot]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

/// The metadata of LVM2.
pub fn lvm(input: &[u8]) -> Behaviour {
    const AREA: usize = 4096;
    const AREA_BYTES: usize = 1 << 20;
    let text = &input[..input.len().min(AREA_BYTES - SECTOR)];
    let mut disk = vec![0; DISK_BYTES];
    put(&mut disk, SECTOR, b"LABELONE");
    put(&mut disk, SECTOR + 8, &1u64.to_le_bytes());
    put(&mut disk, SECTOR + 20, &32u32.to_le_bytes());
    put(&mut disk, SECTOR + 24, b"LVM2 001");
    let header = SECTOR + 32;
    put(&mut disk, header, &[b'B'; 32]);
    // The device's size, then the data area, its end, and the metadata area.
    let pairs = [(32, DISK_BYTES as u64), (40, 2 << 20), (72, AREA as u64), (80, AREA_BYTES as u64)];
    for (at, value) in pairs {
        put(&mut disk, header + at, &u64::to_le_bytes(value));
    }
    let crc = crc32(LVM_CRC, &disk[SECTOR + 20..2 * SECTOR]);
    put(&mut disk, SECTOR + 16, &crc.to_le_bytes());
    put(&mut disk, AREA + 4, b" LVM2 x[5A%r0N*>");
    put(&mut disk, AREA + 20, &1u32.to_le_bytes());
    for (at, value) in [(24, AREA as u64), (32, AREA_BYTES as u64), (40, SECTOR as u64), (48, text.len() as u64)] {
        put(&mut disk, AREA + at, &value.to_le_bytes());
    }
    put(&mut disk, AREA + 56, &crc32(LVM_CRC, text).to_le_bytes());
    put(&mut disk, AREA + SECTOR, text);
    let crc = crc32(LVM_CRC, &disk[AREA + 4..AREA + SECTOR]);
    put(&mut disk, AREA, &crc.to_le_bytes());
    look(disk)
}

/// An image of version 3 with clusters of 512 bytes: header, table of reference counts, their block, L1, L2, data.
fn qcow2_seeds() -> Vec<Vec<u8>> {
    let mut image = vec![0; 8 * SECTOR];
    put(&mut image, 0, b"QFI\xfb");
    for (at, value) in [(4, 3u32), (20, 9), (36, 8), (56, 1), (96, 4), (100, 104)] {
        put(&mut image, at, &value.to_be_bytes());
    }
    for (at, value) in [(24, 256u64 << 10), (40, 3 * SECTOR as u64), (48, SECTOR as u64)] {
        put(&mut image, at, &value.to_be_bytes());
    }
    put(&mut image, SECTOR, &(2 * SECTOR as u64).to_be_bytes());
    (0..7).for_each(|cluster| put(&mut image, 2 * SECTOR + 2 * cluster, &1u16.to_be_bytes()));
    const COPIED: u64 = 1 << 63;
    put(&mut image, 3 * SECTOR, &(COPIED | (4 * SECTOR as u64)).to_be_bytes());
    put(&mut image, 4 * SECTOR, &(COPIED | (5 * SECTOR as u64)).to_be_bytes());
    put(&mut image, 4 * SECTOR + 8, &1u64.to_be_bytes());
    put(&mut image, 4 * SECTOR + 16, &(COPIED | (6 * SECTOR as u64)).to_be_bytes());
    put(&mut image, 5 * SECTOR, b"data");
    let mut compressed = image.clone();
    put(&mut compressed, 4 * SECTOR + 24, &((1u64 << 62) | (7 * SECTOR as u64)).to_be_bytes());
    vec![image, compressed]
}

fn open_image(path: &Path, access: Access) -> Result<Arc<dyn BlockDevice>, DiskError> {
    Unread::open(path, access).and_then(Unread::read).map(|container| container.device)
}

/// A qcow2 image.
pub fn qcow2(input: &[u8]) -> Behaviour {
    let mut behaviour = Behaviour::new();
    let Ok(file) = rustix::fs::memfd_create("image", MemfdFlags::CLOEXEC) else { return behaviour };
    let mut file = File::from(file);
    let mut image = input.to_vec();
    if image.len() > 4 {
        put(&mut image, 0, b"QFI\xfb");
    }
    // Backing files are other files.
    if image.len() > 20 {
        put(&mut image, 8, &[0; 12]);
    }
    if file.write_all(&image).is_err() {
        return behaviour;
    }
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let opened = open_image(&path, Access::Read);
    behaviour.note_result("read", &opened);
    let Ok(device) = opened else { return behaviour };
    let end = device.size_bytes();
    let places = |length: u64| [0, SECTOR as u64, 1000, end / 2, end.saturating_sub(length)].into_iter();
    for offset in places(600).filter(|offset| offset + 600 <= end) {
        behaviour.note_result("data", &device.read(offset, &mut [0; 600]));
        behaviour.note(device.may_hold_data(offset, 600));
    }
    assert!(device.read(end, &mut [0]).is_err(), "a disk ends where it says");
    drop(device);
    let opened = open_image(&path, Access::Write);
    behaviour.note_result("write", &opened);
    let Ok(device) = opened else { return behaviour };
    let mut written = Vec::new();
    for offset in places(700).filter(|offset| offset + 700 <= end) {
        let result = device.write(offset, &[offset as u8; 700]);
        behaviour.note_result("change", &result);
        written = vec![offset].into_iter().filter(|_| result.is_ok()).collect();
    }
    let flushed = device.flush();
    behaviour.note_result("flush", &flushed);
    drop(device);
    let again = open_image(&path, Access::Read);
    behaviour.note_result("again", &again);
    if let (Ok(device), Ok(())) = (again, flushed) {
        for offset in written {
            let mut bytes = [0; 700];
            // Tables that overlap the data of a hostile image are written over with it.
            behaviour.note_result("back", &device.read(offset, &mut bytes));
            behaviour.note(bytes == [offset as u8; 700]);
        }
    }
    behaviour
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_what_they_are_for() {
        for target in TARGETS {
            let behaviours: Vec<Behaviour> = (target.seeds)().iter().map(|seed| (target.run)(seed)).collect();
            assert!(behaviours.iter().all(|behaviour| *behaviour != Behaviour::new()), "{}", target.name);
            assert!(behaviours[0] != (target.run)(b""), "{}: a seed is as good as nothing", target.name);
        }
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(qcow2_seeds().remove(0)));
        assert!(Container::of_device(Path::new("export"), device).is_err());
    }
}
