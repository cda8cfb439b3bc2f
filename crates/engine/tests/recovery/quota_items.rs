//! Quota records and their blocks in journals by hand, beside the newest kernel's recovery.

use crate::by_hand::{Item, Journal, buffer};
use crate::kernel::Image;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xfskit_engine::MountOptions;
use xfskit_ondisk::log_record::{item_type, operation_flags as flags};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::logged::dquot::{DQUOT_BYTES, dquot_type};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, Lsn, set_checksum};
use xfskit_testkit::{Reference, copy_image};

const BLOCK_BYTES: usize = 4096;
const LOGGED_BYTES: usize = 104;
/// Where the blocks of the three kinds are when they are put together.
const PLACES: [usize; 3] = [0, BLOCK_BYTES, 2 * BLOCK_BYTES];
/// Places in a record.
const LIMIT: usize = 8;
const CRC: usize = 108;
const LSN: usize = 112;
/// The kinds of quota: of records, of buffers, and as an item switches them off.
const KINDS: [(u8, u16, u32); 3] = [
    (dquot_type::USER, buffer_type::USER_QUOTA, 0x01),
    (dquot_type::PROJECT, buffer_type::PROJECT_QUOTA, 0x08),
    (dquot_type::GROUP, buffer_type::GROUP_QUOTA, 0x40),
];

/// Where the records of the first owners of a kind lie.
fn block_of(bytes: &[u8], kind: u8) -> usize {
    let is_first = |start: &usize| bytes[*start..].starts_with(&[b'D', b'Q', 1, kind, 0, 0, 0, 0]);
    (0..bytes.len()).step_by(BLOCK_BYTES).find(is_first).expect("a block of quota records")
}

/// The record of owner `id`, with another limit.
fn record(bytes: &[u8], block: usize, id: usize, limit: u64) -> Vec<u8> {
    let mut record = bytes[block + id * DQUOT_BYTES..][..DQUOT_BYTES].to_vec();
    record[LIMIT..][..8].copy_from_slice(&limit.to_be_bytes());
    record
}

fn record_item(bytes: &[u8], block: usize, id: usize, limit: u64) -> Item {
    let mut format = vec![0; 24];
    format[..2].copy_from_slice(&item_type::DQUOT.to_le_bytes());
    (format[2], format[4], format[16]) = (2, id as u8, 1);
    format[8..16].copy_from_slice(&((block / BASIC_BLOCK_BYTES) as u64).to_le_bytes());
    format[20..].copy_from_slice(&((id * DQUOT_BYTES) as u32).to_le_bytes());
    vec![format, record(bytes, block, id, limit)[..LOGGED_BYTES].to_vec()]
}

/// An item of the whole block, with another limit for owner 7.
fn block_item(bytes: &[u8], block: usize, kind: u16) -> Item {
    let mut contents = bytes[block..block + BLOCK_BYTES].to_vec();
    let mut changed = record(bytes, block, 7, 0x2000);
    set_checksum(&mut changed, CRC);
    contents[7 * DQUOT_BYTES..8 * DQUOT_BYTES].copy_from_slice(&changed);
    let address = DiskAddress((block / BASIC_BLOCK_BYTES) as u64);
    // The kernel knows them by flags as well (`XFS_BLF_UDQUOT_BUF` and so on): the bits from 2 on.
    buffer(address, (BLOCK_BYTES / BASIC_BLOCK_BYTES) as u16, kind, 2 << kind, &[(0, &contents)])
}

fn quota_off(flag: u32) -> Item {
    let mut format = vec![0; 20];
    format[..2].copy_from_slice(&item_type::QUOTAOFF.to_le_bytes());
    format[2] = 1;
    format[4..8].copy_from_slice(&flag.to_le_bytes());
    vec![format]
}

/// Each owner's limit: by kind, those of owners 1 to 5 and of owner 7.
fn limits(bytes: &[u8], blocks: &[usize; 3]) -> Vec<[u64; 6]> {
    let limit = |block: usize, id: usize| {
        u64::from_be_bytes(bytes[block + id * DQUOT_BYTES + LIMIT..][..8].try_into().unwrap())
    };
    blocks.iter().map(|block| [1, 2, 3, 4, 5, 7].map(|id| limit(*block, id))).collect()
}

const MOUNT: &str = "mount -o uquota,gquota,pquota";

/// Lets the kernel recover the images, and keep it from writing anything else.
fn replay_by_kernel(reference: &Reference, images: &[PathBuf]) {
    let script = format!(
        "for disk in $(ls /dev/ubd? | head -n {}); do {MOUNT} $disk /mnt || exit 1
           xfs_io -x -c shutdown /mnt; umount /mnt; done",
        images.len()
    );
    let run = reference.uml_with(images, &script);
    assert_eq!(run.status, 0, "{}", run.output);
}

/// A record is replayed unless the one on the device is newer, and where its kind of quota is not switched off by the
/// log; a block of records likewise. A record that two transactions of one LSN change has the later change.
#[test]
fn quota_records_are_replayed_as_the_kernel_does() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = scratch.image("base.img", 320 << 20);
    reference.mkfs(&base, &[]);
    let run = reference.uml(&base, &format!("{MOUNT} /dev/ubda /mnt && touch /mnt/a && umount /mnt"));
    assert_eq!(run.status, 0, "{}", run.output);
    let mut bytes = std::fs::read(&base).unwrap();
    let blocks = KINDS.map(|(kind, ..)| block_of(&bytes, kind));
    // The LSNs that the first three records will have: one sector of contents each but for the second.
    let probe = scratch.file("probe.img");
    copy_image(&base, &probe);
    let mut journal = Journal::default();
    for _ in 0..2 {
        journal.operation(1, flags::COMMIT, &[]);
        journal.end_record();
    }
    let lsns = journal.write(&probe);
    // An equal LSN is left out: Linux passes over such a record, as over such a block.
    let (older, newer) = (lsns[0], Lsn(lsns[1].0 + 2));
    for block in blocks {
        for (id, lsn) in [(1, older.0), (3, newer.0), (4, 0), (5, u64::MAX)] {
            let slot = &mut bytes[block + id * DQUOT_BYTES..][..DQUOT_BYTES];
            slot[LSN..LSN + 8].copy_from_slice(&lsn.to_be_bytes());
            set_checksum(slot, CRC);
        }
    }
    let mut images: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for off in [None, Some(0), Some(1), Some(2)] {
        let image = scratch.file(&format!("crashed-{}.img", images.len()));
        std::fs::write(&image, &bytes).unwrap();
        let mut items: Vec<Item> = off.map(|kind| quota_off(KINDS[kind].2)).into_iter().collect();
        for ((_, kind, _), block) in KINDS.iter().zip(blocks) {
            if off.is_some() {
                items.push(block_item(&bytes, block, *kind));
            }
            items.extend((1..=5).map(|id| record_item(&bytes, block, id, 0x1000)));
        }
        let mut journal = Journal::default();
        journal.operation(1, flags::COMMIT, &[]);
        journal.end_record();
        journal.transaction(7, &items);
        // Of the same LSN, for it begins in the same record.
        journal.transaction(8, &blocks.map(|block| record_item(&bytes, block, 2, 0x3000)));
        journal.end_record();
        journal.operation(1, flags::COMMIT, &[]);
        assert_eq!(journal.write(&image)[..2], lsns[..2]);
        let ours = scratch.file("ours.img");
        copy_image(&image, &ours);
        drop(Image { data: ours.clone(), log: None }.open(MountOptions::default()).expect("a recovery"));
        found.push(quota_blocks(&ours, &blocks));
        images.push(image);
    }
    replay_by_kernel(&reference, &images);
    for (number, (image, ours)) in images.iter().zip(&found).enumerate() {
        let theirs = quota_blocks(image, &blocks);
        assert_eq!(limits(&ours.concat(), &PLACES), limits(&theirs.concat(), &PLACES), "case {number}");
    }
    let limits = |number: usize| limits(&found[number].concat(), &PLACES);
    assert_eq!(limits(0), [[0x1000, 0x3000, 0, 0x1000, 0x1000, 0]; 3]);
    for off in 0..3 {
        let mut expected = vec![[0x1000, 0x3000, 0, 0x1000, 0x1000, 0x2000]; 3];
        expected[off] = [0; 6];
        assert_eq!(limits(off + 1), expected, "kind {off} is switched off");
    }
}

/// The blocks of quota records in an image.
fn quota_blocks(image: &Path, blocks: &[usize; 3]) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(image).unwrap();
    let read = |block: &usize| {
        let mut contents = vec![0; BLOCK_BYTES];
        file.read_exact_at(&mut contents, *block as u64).unwrap();
        contents
    };
    blocks.iter().map(read).collect()
}
