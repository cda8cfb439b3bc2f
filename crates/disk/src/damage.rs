//! Tests: a GPT and LVM2 metadata whose contents are wrong while their checksums are right, as a hostile disk has them.

use crate::bytes::{crc32, crc32_raw};
use crate::lvm;
use crate::table::table;
use std::sync::Arc;
use xfskit_device::{BlockDevice, MemoryDevice};

const DISK_BYTES: usize = 8 << 20;
const LVM_CRC: u32 = 0xf597_a6cf;

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number as a hostile table has it.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => u64::MAX - self.next() % 4,
            1 => 1 << self.below(64),
            2 => u64::from(u32::MAX) + self.next() % 3,
            3 => self.next(),
            _ => self.next() % 64,
        }
    }
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

/// A GPT in the first sectors, with right checksums for whatever the closure does.
fn gpt(change: impl FnOnce(&mut [u8])) -> MemoryDevice {
    let mut disk = vec![0; DISK_BYTES];
    put(&mut disk, 446 + 4, &[0xee]);
    put(&mut disk, 446 + 8, &1u32.to_le_bytes());
    put(&mut disk, 446 + 12, &1000u32.to_le_bytes());
    put(&mut disk, 510, &[0x55, 0xaa]);
    put(&mut disk, 512, b"EFI PART");
    put(&mut disk, 512 + 12, &92u32.to_le_bytes());
    for (offset, value) in [(24, 1u64), (32, 16383), (40, 34), (48, 16000), (72, 2)] {
        put(&mut disk, 512 + offset, &value.to_le_bytes());
    }
    put(&mut disk, 512 + 80, &8u32.to_le_bytes());
    put(&mut disk, 512 + 84, &128u32.to_le_bytes());
    for number in 0..4u64 {
        let at = 1024 + 128 * number as usize;
        put(&mut disk, at, &[1; 32]);
        put(&mut disk, at + 32, &(40 + 100 * number).to_le_bytes());
        put(&mut disk, at + 40, &(139 + 100 * number).to_le_bytes());
    }
    change(&mut disk);
    let word = |disk: &[u8], at: usize| u32::from_le_bytes(disk[at..at + 4].try_into().expect("4 bytes")) as usize;
    let length = word(&disk, 592).saturating_mul(word(&disk, 596));
    let start = u64::from_le_bytes(disk[584..592].try_into().expect("8 bytes")) as usize;
    if let Some(end) = start.checked_mul(512).and_then(|start| start.checked_add(length))
        && end <= DISK_BYTES
        && length <= 2 << 20
    {
        let crc = crc32(&disk[start * 512..end]);
        put(&mut disk, 512 + 88, &crc.to_le_bytes());
    }
    let size = word(&disk, 524).min(512);
    put(&mut disk, 512 + 16, &[0; 4]);
    let crc = crc32(&disk[512..512 + size]);
    put(&mut disk, 512 + 16, &crc.to_le_bytes());
    MemoryDevice::from_bytes(disk)
}

#[test]
fn a_gpt_with_any_numbers_and_right_checksums() {
    assert_eq!(table(&gpt(|_| {})).unwrap().unwrap().partitions.len(), 4);
    let mut usable = 0;
    for seed in 1..4000 {
        let mut random = Random::new(seed);
        let disk = gpt(|disk| {
            for _ in 0..=random.below(3) {
                let header = [12, 24, 32, 40, 48, 72, 80, 84][random.below(8)];
                let entry = 512 + 128 * random.below(4) + [0, 32, 40][random.below(3)];
                let at = if random.below(2) == 0 { header } else { entry };
                let value = random.number().to_le_bytes();
                put(disk, 512 + at, if [12, 80, 84].contains(&at) { &value[..4] } else { &value });
            }
        });
        let Some(table) = table(&disk).unwrap() else { continue };
        for partition in &table.partitions {
            usable += 1;
            assert!(partition.offset.checked_add(partition.length).is_some() && partition.length > 0, "{partition:?}");
        }
        assert!(table.warnings.len() <= 18);
    }
    assert!(usable > 1000, "most tables have to have partitions: {usable}");
}

const ID: &str = "abcdef-ghij-klmn-opqr-stuv-wxyz-012345";

/// A text as LVM2 writes it, with one volume whose segment is given.
fn text(segment: &str, more: &str) -> String {
    format!(
        "contents = \"Text Format Volume Group\"\nversion = 1\n\n\
         vg {{\nid = \"{ID}\"\nseqno = 3\nstatus = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nextent_size = 64\n\
         physical_volumes {{\npv0 {{\nid = \"{ID}\"\npe_start = 2048\npe_count = 20\n}}\n}}\n\
         logical_volumes {{\nlv {{\nid = \"{ID}\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\n\
         segment_count = 1\nsegment1 {{\n{segment}\n}}\n}}\n{more}\n}}\n}}\n"
    )
}

const LINEAR: &str =
    "start_extent = 0\nextent_count = 4\ntype = \"striped\"\nstripe_count = 1\nstripes = [\n\"pv0\", 2\n]";

/// A physical volume with a text, all checksums right.
fn physical_volume(text: &str) -> Arc<dyn BlockDevice> {
    let mut disk = vec![0; DISK_BYTES];
    let area = 4096u64;
    put(&mut disk, 512, b"LABELONE");
    put(&mut disk, 520, &1u64.to_le_bytes());
    put(&mut disk, 532, &32u32.to_le_bytes());
    put(&mut disk, 536, b"LVM2 001");
    put(&mut disk, 544, ID.replace('-', "").as_bytes());
    put(&mut disk, 576, &(DISK_BYTES as u64).to_le_bytes());
    for (offset, value) in [(584, 1 << 20), (616, area), (624, (1 << 20) - area)] {
        put(&mut disk, offset, &u64::to_le_bytes(value));
    }
    let crc = crc32_raw(LVM_CRC, &disk[532..1024]);
    put(&mut disk, 528, &crc.to_le_bytes());
    let at = area as usize;
    put(&mut disk, at + 4, b" LVM2 x[5A%r0N*>");
    put(&mut disk, at + 20, &1u32.to_le_bytes());
    for (offset, value) in [(24, area), (32, (1 << 20) - area), (40, 512), (48, text.len() as u64)] {
        put(&mut disk, at + offset, &value.to_le_bytes());
    }
    put(&mut disk, at + 56, &crc32_raw(LVM_CRC, text.as_bytes()).to_le_bytes());
    let crc = crc32_raw(LVM_CRC, &disk[at + 4..at + 512]);
    put(&mut disk, at, &crc.to_le_bytes());
    put(&mut disk, at + 512, text.as_bytes());
    Arc::new(MemoryDevice::from_bytes(disk))
}

/// The groups on physical volumes with the given texts.
fn groups(texts: &[&str]) -> Vec<lvm::Group> {
    let volumes: Vec<_> =
        texts.iter().map(|text| lvm::physical_volume(&physical_volume(text)).unwrap().expect("a label")).collect();
    assert!(volumes.iter().all(|volume| volume.warnings.is_empty()));
    lvm::groups(&volumes)
}

/// Why the volume of a text cannot be used.
fn refusal(text: &str) -> String {
    groups(&[text])[0].volumes[0].window.as_ref().map(|_| ()).unwrap_err().clone()
}

#[test]
fn kinds_of_volumes_that_are_refused_by_name() {
    let plain = groups(&[&text(LINEAR, "")]);
    assert_eq!(plain[0].volumes[0].window.as_ref().map(|window| window.size_bytes()), Ok(4 * 32768));
    for kind in ["thin", "thin-pool", "raid1", "raid5_ls", "mirror", "cache", "writecache", "vdo", "zero", "error"] {
        let why = refusal(&text(&LINEAR.replace("striped", kind), ""));
        assert!(why.contains(kind), "{why}");
    }
    let stacked = refusal(&text(&LINEAR.replace("pv0", "lv_rimage_0"), ""));
    assert!(stacked.contains("another volume"), "{stacked}");
    let snapshot = |origin: &str, store: &str| {
        let segment = format!("type = \"snapshot\"\norigin = \"{origin}\"\ncow_store = \"{store}\"");
        refusal(&text(LINEAR, &format!("snapshot0 {{\nsegment1 {{\n{segment}\n}}\n}}")))
    };
    assert!(snapshot("lv", "x").contains("has a snapshot") && snapshot("x", "lv").contains("is a snapshot"));
    let exported = text(LINEAR, "").replace("RESIZEABLE", "EXPORTED");
    let shared = text(LINEAR, "").replace("seqno = 3", "seqno = 3\nlock_type = \"sanlock\"");
    assert!(refusal(&exported).contains("exported") && refusal(&shared).contains("shared"));
    let other = text(LINEAR, "").replacen(&format!("pv0 {{\nid = \"{ID}\""), "pv0 {\nid = \"x\"", 1);
    assert!(refusal(&other).contains("on none of the disks"));
    let outside = refusal(&text(&LINEAR.replace(", 2", ", 300"), ""));
    assert!(outside.contains("past the end"), "{outside}");
    let twice = text(LINEAR, "");
    let why = groups(&[&twice, &twice])[0].volumes[0].window.as_ref().map(|_| ()).unwrap_err().clone();
    assert!(why.contains("two physical volumes"), "{why}");
}

#[test]
fn the_text_with_the_highest_sequence_number_counts() {
    let (old, new) = (text(LINEAR, ""), text(LINEAR, "").replace("seqno = 3", "seqno = 4").replace("lv {", "new {"));
    for texts in [[&*old, &*new], [&*new, &*old]] {
        assert_eq!(groups(&texts)[0].volumes[0].name, "new");
    }
}

#[test]
fn any_text_with_right_checksums_gives_an_answer() {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "=",
        "\"",
        ",",
        "#",
        "\n",
        "0",
        "-1",
        "9223372036854775807",
        "18446744073709551616",
        "pv0",
        "striped",
        "stripe_count = 2",
        "stripe_size = 0",
        "extent_count",
        "start_extent = 1",
        "\u{e4}",
        "\0",
        "\\",
    ];
    let whole = text(&LINEAR.replace("stripe_count = 1", "stripe_count = 1\nstripe_size = 128"), "");
    let numbers: Vec<usize> = whole
        .char_indices()
        .filter(|(at, c)| c.is_ascii_digit() && whole[..*at].ends_with(' '))
        .map(|(at, _)| at)
        .collect();
    for seed in 1..3000 {
        let mut random = Random::new(seed);
        let mut changed = whole.clone();
        if random.below(2) == 0 {
            let at = numbers[random.below(numbers.len())];
            let end = at + changed[at..].chars().take_while(char::is_ascii_digit).count();
            changed.replace_range(at..end, &(random.number() >> 1).to_string());
        } else {
            for _ in 0..=random.below(4) {
                let at = random.below(changed.len());
                if changed.is_char_boundary(at) {
                    changed.insert_str(at, pieces[random.below(pieces.len())]);
                }
            }
        }
        let device = physical_volume(&changed);
        let Some(volume) = lvm::physical_volume(&device).unwrap() else { continue };
        for group in lvm::groups(&[volume]) {
            for volume in group.volumes {
                let Ok(window) = volume.window else { continue };
                let mut byte = [0];
                window.read(window.size_bytes() - 1, &mut byte).unwrap();
                assert!(window.read(window.size_bytes(), &mut byte).is_err());
            }
        }
    }
}

#[test]
fn names_from_a_disk_are_shown_without_control_characters() {
    let groups = groups(&[&text(LINEAR, "").replace(&format!("lv {{\nid = \"{ID}\""), "lv {\nid = \"\u{1b}[2J\"")]);
    assert!(!groups[0].volumes[0].uuid.contains('\u{1b}'));
}
