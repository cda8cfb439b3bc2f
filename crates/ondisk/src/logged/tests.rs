//! Inodes and new chunks: an item that was logged decodes to what it was made from, and an invalid item is refused.

use super::icreate::NewInodes;
use super::inode::{FORMAT_BYTES, InodeFields, InodeFormat, LoggedInode, encode_root, root_bytes};
use crate::btree::{BMBT_MAGIC, LONG_HEADER_BYTES};
use crate::inode::{INODE_CORE_BYTES, encode_free_inode, flags2, stamp_inode};
use crate::{AgBlock, AgInode, AgNumber, ForkFormat, Geometry, InodeCore, Lsn, Timestamp};

/// A regular file in AG 1, the third inode of block 64.
fn core(flags2: u64) -> InodeCore {
    let geometry = Geometry::of_tests();
    let mut slot = [0; 512];
    let number = geometry.inode_number(AgNumber(1), AgInode(64 * 8 + 2));
    encode_free_inode(&geometry, number, 77, &mut slot);
    let mut core = InodeCore::decode(&geometry, number, &slot).unwrap();
    let time = |seconds| Timestamp { seconds, nanoseconds: 123_456_789 };
    (core.mode, core.links, core.uid, core.gid, core.project) = (0o100_644, 3, 1000, 2000, 0x12_3456);
    (core.atime, core.mtime, core.ctime, core.birth_time) = (time(1_700_000_000), time(5), time(-9), time(1 << 30));
    (core.size, core.blocks, core.change_count, core.flags2) = (1 << 40, 12, 1 << 35, flags2);
    (core.data_format, core.attr_format, core.fork_offset) = (ForkFormat::Extents, ForkFormat::Local, 24);
    (core.data_extents, core.extent_size, core.flags, core.lsn) = (1, 8, 0x800, Lsn(9));
    core
}

fn format(core: &InodeCore, fields: InodeFields, data_bytes: usize, attr_bytes: usize) -> Vec<u8> {
    let geometry = Geometry::of_tests();
    let mut region = vec![0xee; FORMAT_BYTES];
    let address = geometry.address(AgNumber(1), AgBlock(64));
    let fields = fields | InodeFields::CORE;
    let (inode, cluster_bytes, offset, device) = (core.inode, 16384, 1024, 0);
    InodeFormat { inode, fields, data_bytes, attr_bytes, device, address, cluster_bytes, offset }.encode(&mut region);
    region
}

#[test]
fn an_inode_comes_back_as_it_was_logged() {
    let geometry = Geometry::of_tests();
    for flags2 in [0, flags2::BIGTIME, flags2::BIGTIME | flags2::NREXT64] {
        let core = core(flags2);
        let mut logged = vec![0; INODE_CORE_BYTES];
        core.encode_for_log(&mut logged);
        let (data, attr) = ([5u8; 16], *b"attr\0\0\0\0");
        let fields = InodeFields::DATA_EXTENTS | InodeFields::ATTR_LOCAL;
        let first = format(&core, fields, 16, 6);
        let regions = [first.as_slice(), &logged, &data, &attr];
        let item = LoggedInode::decode(&geometry, &regions).unwrap();
        assert_eq!((item.inode, item.offset, item.basic_blocks), (core.inode, 1024, 32));
        let mut slot = vec![0xee; 512];
        slot[96..100].copy_from_slice(&55u32.to_be_bytes());
        item.apply(&geometry, Lsn(1234), &mut slot).unwrap();
        stamp_inode(&mut slot);
        // Recovery keeps the unlinked list link of the slot, and sets the LSN.
        let wanted = InodeCore { next_unlinked: AgInode(55), lsn: Lsn(1234), ..core.clone() };
        assert_eq!(InodeCore::decode(&geometry, core.inode, &slot).unwrap(), wanted);
        assert_eq!((&slot[176..192], &slot[176 + 192..176 + 198]), (&data[..], &attr[..6]));
        // An older writer has no gap in its format.
        let older = [&first[..12], &first[16..]].concat();
        assert_eq!(LoggedInode::decode(&geometry, &[&older, &logged, &data, &attr]).unwrap().inode, core.inode);
    }
}

#[test]
fn a_btree_root_finds_its_pointers_behind_room_for_the_forks_keys() {
    let geometry = Geometry::of_tests();
    let core = InodeCore { data_format: ForkFormat::Btree, ..core(0) };
    let mut logged = vec![0; INODE_CORE_BYTES];
    core.encode_for_log(&mut logged);
    let mut root = vec![0; LONG_HEADER_BYTES + 4 * 16];
    root[0..4].copy_from_slice(&BMBT_MAGIC.to_be_bytes());
    root[4..8].copy_from_slice(&[0, 1, 0, 2]);
    root[LONG_HEADER_BYTES..][..16].fill(7);
    root[LONG_HEADER_BYTES + 32..][..16].fill(9);
    let first = format(&core, InodeFields::DATA_ROOT, root.len(), 0);
    let regions = [first.as_slice(), &logged, &root];
    let mut slot = vec![0; 512];
    LoggedInode::decode(&geometry, &regions).unwrap().apply(&geometry, Lsn(1), &mut slot).unwrap();
    // 192 bytes of data fork: a header of 4 and room for 11 keys and pointers.
    assert_eq!(slot[176..180], [0, 1, 0, 2]);
    assert!(slot[180..196].iter().all(|&byte| byte == 7) && slot[180 + 88..196 + 88].iter().all(|&byte| byte == 9));
    // With the encoder of this crate, the pointers lie right behind the keys.
    let mut own = vec![0xee; root_bytes(2)];
    encode_root(1, &[u64::MAX / 255 * 7; 2], &[u64::MAX / 255 * 9; 2], &mut own);
    let (first_own, mut again) = (format(&core, InodeFields::DATA_ROOT, own.len(), 0), vec![0; 512]);
    let item = LoggedInode::decode(&geometry, &[first_own.as_slice(), &logged, &own]).unwrap();
    item.apply(&geometry, Lsn(1), &mut again).unwrap();
    assert_eq!(again, slot);
    root[7] = 12;
    let regions = [first.as_slice(), &logged, &root];
    assert!(LoggedInode::decode(&geometry, &regions).unwrap().apply(&geometry, Lsn(1), &mut slot).is_err());
}

#[test]
fn inodes_that_cannot_be_are_refused() {
    let geometry = Geometry::of_tests();
    let core = core(0);
    let mut logged = vec![0; INODE_CORE_BYTES];
    core.encode_for_log(&mut logged);
    let first = format(&core, InodeFields::ATTR_LOCAL, 0, 300);
    let attr = [1; 300];
    let whole = LoggedInode::decode(&geometry, &[&first, &logged, &attr]).unwrap();
    assert!(whole.apply(&geometry, Lsn(1), &mut [0; 512]).is_err(), "a fork larger than its place");
    for regions in [
        &[][..],
        &[&first[..20]],
        &[&first],
        &[&first, &logged[..100]],
        &[&first, &logged],
        &[&first, &logged, &attr[..200]],
        &[&first, &logged, &attr, &attr],
    ] {
        assert!(LoggedInode::decode(&geometry, regions).is_err(), "{} regions", regions.len());
    }
    for (at, byte) in [(16, 0xff), (22, 0xff), (40, 1), (48, 0), (49, 0xff), (53, 0xff)] {
        let mut wrong = first.clone();
        wrong[at] = byte;
        assert!(LoggedInode::decode(&geometry, &[&wrong, &logged, &attr]).is_err(), "byte {at}");
    }
}

#[test]
fn new_chunks_lie_within_an_ag_and_are_whole() {
    let geometry = Geometry::of_tests();
    let encode = |words: [u32; 6]| {
        let mut region = vec![0x3f, 0x12, 1, 0];
        words.iter().for_each(|word| region.extend_from_slice(&word.to_be_bytes()));
        region
    };
    let new = NewInodes::decode(&geometry, &encode([2, 80, 64, 512, 8, 5])).unwrap();
    assert_eq!((new.ag, new.block, new.blocks, new.generation), (AgNumber(2), AgBlock(80), 8, 5));
    assert_eq!(new.encode(&geometry)[..], encode([2, 80, 64, 512, 8, 5]));
    let clusters: Vec<_> = new.clusters(&geometry).collect();
    assert_eq!(clusters.iter().map(|(_, _, bytes)| bytes).sum::<usize>(), 8 << 12);
    assert_eq!(clusters[0].1, AgInode(640));
    for words in [
        [4, 80, 64, 512, 8, 5],
        [2, 0, 64, 512, 8, 5],
        [2, 9_999, 64, 512, 8, 5],
        [2, u32::MAX, 64, 512, 8, 5],
        [2, 80, 64, 256, 8, 5],
        [2, 80, 64, 512, 9, 5],
        [2, 80, 128, 512, 16, 5],
        [2, 80, 0, 512, 0, 5],
        [2, 80, u32::MAX, 512, u32::MAX, 5],
    ] {
        assert!(NewInodes::decode(&geometry, &encode(words)).is_err(), "{words:?}");
    }
    assert!(NewInodes::decode(&geometry, &encode([2, 80, 64, 512, 8, 5])[..27]).is_err());
}
