//! Items that recovery refuses, before it writes anything.

use crate::alike::recovered_alike;
use crate::base::{BLOCK_BYTES, BLOCK_SECTORS, Base, link, open, refusal};
use crate::by_hand::{Journal, buffer};
use std::sync::Arc;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress};
use xfskit_testkit::Scratch;

/// Items of unknown types are refused before anything is written, as by the kernel.
#[test]
fn unknown_items_are_refused() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    for (kind, words) in [(0x12ff, "0x12ff"), (0x1235, "0x1235"), (0x124a, "realtime"), (0x124f, "realtime")] {
        let item = vec![[u16::to_le_bytes(kind), [1, 0]].concat()];
        let message = refusal(&base, &scratch, &[base.target_item(0, b'l'), item]);
        assert!(message.contains(words), "{message}");
        let kernel = xfskit_testkit::try_kernel_mount(&scratch.file("refused.img"), None, &[]);
        assert!(kernel.is_none_or(|kernel| kernel.is_err()), "the kernel replays items of type {kind:#x}");
    }
}

/// Growing changes the superblock in the log. Everything else by which blocks are found stays as it is.
#[test]
fn a_superblock_in_the_log_keeps_the_shape() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let number =
        |at: usize, bytes: usize| base.read(at as u64, bytes).iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let (ag_blocks, log_start, log_blocks) = (number(84, 4), number(48, 8), number(96, 4));
    let changes: [&[(usize, &[u8])]; 6] = [
        // Blocks of 2 KiB: their size, the inodes in each, and both as logarithms.
        &[(4, &2048u32.to_be_bytes()), (106, &4u16.to_be_bytes()), (120, &[11]), (123, &[2])],
        // Inodes of 1 KiB.
        &[(104, &1024u16.to_be_bytes()), (106, &4u16.to_be_bytes()), (122, &[10]), (123, &[2])],
        &[(84, &(ag_blocks as u32 - 1).to_be_bytes()), (8, &((ag_blocks - 1) * 4).to_be_bytes())],
        &[(48, &(log_start + 1).to_be_bytes())],
        &[(96, &(log_blocks as u32 - 1).to_be_bytes())],
        &[(32, &[0x5a; 16])],
    ];
    for change in changes {
        let message = refused_superblock(&base, &scratch, change);
        assert!(message.contains("keeps its shape in the log"), "{change:?}: {message}");
    }
    // Sectors of 512 bytes where they were of 4 KiB, and the other way round: the superblock is one sector.
    refused_superblock(&base, &scratch, &[(102, &4096u16.to_be_bytes()), (121, &[12])]);
    let base = Base::new(&reference, &scratch, &["-f", "-s", "size=4096"]);
    refused_superblock(&base, &scratch, &[(102, &512u16.to_be_bytes()), (121, &[9])]);
}

/// The message with which a superblock with changed fields is refused in the log.
fn refused_superblock(base: &Base, scratch: &Scratch, change: &[(usize, &[u8])]) -> String {
    let sector_bytes = u16::from_be_bytes(base.read(102, 2).try_into().unwrap());
    let mut new = base.read(0, sector_bytes.into());
    for (at, bytes) in change {
        new[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    let item = buffer(DiskAddress(0), sector_bytes / 512, buffer_type::SUPERBLOCK, 0, &[(0, &new)]);
    refusal(base, scratch, &[item])
}

/// Items may name any block of the device but those of the log.
#[test]
fn items_name_blocks_of_the_device_outside_the_log() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let fs = open(&base.path);
    let geometry = Arc::clone(&fs.mount().geometry);
    fs.unmount().unwrap();
    let start = geometry.fs_block_address(geometry.log_start.unwrap()).unwrap();
    let (log_sectors, block) = (u64::from(geometry.log_blocks) * 8, u64::from(BLOCK_SECTORS));
    let item = |address: u64| {
        let mut contents = base.target(0, b'l');
        contents[link::ADDRESS..][..8].copy_from_slice(&address.to_be_bytes());
        buffer(DiskAddress(address), BLOCK_SECTORS, buffer_type::SYMLINK, 0, &[(0, &contents)])
    };
    let device_end = geometry.data_blocks * block;
    for (address, found) in [
        (start.0 - 4, "4096 bytes of the log"),
        (start.0, "4096 bytes of the log"),
        (start.0 + log_sectors - 1, "4096 bytes of the log"),
        (device_end - 4, "4096 bytes of nothing"),
        (device_end, "4096 bytes of nothing"),
    ] {
        let message = refusal(&base, &scratch, &[item(address)]);
        assert!(message.contains(found) && message.contains("log item"), "{address}: {message}");
    }
    // The block before the log is the root of a btree.
    let before_log = start.0 - block;
    let root = base.read(before_log * BASIC_BLOCK_BYTES as u64, BLOCK_BYTES);
    let root = buffer(DiskAddress(before_log), BLOCK_SECTORS, buffer_type::BTREE, 0, &[(0, &root)]);
    let free = [start.0 + log_sectors, device_end - block];
    let mut journal = Journal::default();
    journal.transaction(7, &[vec![root], free.map(item).into()].concat());
    journal.write(&base.path);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    assert_eq!(alike.report.blocks_written, 3);
    for address in free {
        assert_eq!(alike.bytes[address as usize * BASIC_BLOCK_BYTES + link::TARGET], b'l');
    }
}
