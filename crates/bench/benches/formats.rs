//! Structures on disk, without an engine: checksums, hashes, shortform attributes, inodes, log records.

use divan::{Bencher, black_box, counter::BytesCount};
use xfskit_ondisk::attr::{flags, hash_attr, shortform};
use xfskit_ondisk::da::hash_name;
use xfskit_ondisk::log_record::{RecordFields, header_sectors, seal_record};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Geometry, InodeCore, InodeNumber, Lsn, Superblock, set_checksum};

const NAME: &[u8] = b"0000692000000a01qwertyuiopasdfghjklzxcvb";

fn main() {
    divan::main();
}

#[divan::bench(args = [512, 4096])]
fn crc(bencher: Bencher<'_, '_>, bytes: usize) {
    let block = vec![7u8; bytes];
    bencher.counter(BytesCount::new(bytes)).bench_local(|| xfskit_ondisk::checksum(black_box(&block), 4));
}

#[divan::bench]
fn hash_of_a_name() -> u32 {
    hash_name(black_box(NAME))
}

#[divan::bench]
fn hash_of_a_parent_pointer() -> u32 {
    hash_attr(flags::PARENT, black_box(NAME), &[1; 12])
}

fn fork() -> Vec<u8> {
    let mut fork = shortform::encode_empty().to_vec();
    shortform::append(&mut fork, flags::PARENT, NAME, &[1; 12]);
    shortform::append(&mut fork, 0, b"test", &[7; 64]);
    fork
}

#[divan::bench]
fn shortform_append(bencher: Bencher<'_, '_>) {
    let fork = fork();
    bencher.with_inputs(|| fork.clone()).bench_refs(|fork| shortform::append(fork, 0, black_box(b"more"), &[7; 64]));
}

#[divan::bench]
fn shortform_find(bencher: Bencher<'_, '_>) {
    let fork = fork();
    bencher.bench_local(|| {
        let mut found = shortform::attrs(black_box(&fork)).flatten();
        found.any(|attr| attr.name == b"test")
    });
}

#[divan::bench]
fn shortform_verify(bencher: Bencher<'_, '_>) {
    let fork = fork();
    bencher.bench_local(|| shortform::verify_shortform(black_box(&fork)).is_ok());
}

/// The root directory's inode of a new image.
fn inode() -> (Geometry, InodeNumber, Vec<u8>) {
    let device = xfskit_device::MemoryDevice::new(64 << 20);
    let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
    let superblock: Superblock = xfskit_mkfs::make(&device, None, &options, Default::default()).expect("an image");
    let geometry = Geometry::new(&superblock);
    let number = superblock.root_inode();
    let (ag, place) = geometry.split_inode(number).expect("the root is in an AG");
    let block = geometry.inode_block(place).0 as usize + ag.0 as usize * geometry.ag_blocks as usize;
    let start = block * geometry.block_bytes() + geometry.inode_offset_in_block(place);
    let bytes = device.to_bytes()[start..start + geometry.inode_bytes()].to_vec();
    (geometry, number, bytes)
}

#[divan::bench]
fn inode_decode(bencher: Bencher<'_, '_>) {
    let (geometry, number, bytes) = inode();
    bencher.bench_local(|| InodeCore::decode(&geometry, number, black_box(&bytes)).expect("a sound inode"));
}

#[divan::bench]
fn inode_encode(bencher: Bencher<'_, '_>) {
    let (geometry, number, mut bytes) = inode();
    let core = InodeCore::decode(&geometry, number, &bytes).expect("a sound inode");
    bencher.bench_local(|| {
        black_box(&core).encode(&mut bytes);
        set_checksum(&mut bytes, xfskit_ondisk::inode::INODE_CRC_OFFSET);
    });
}

#[divan::bench]
fn record_seal(bencher: Bencher<'_, '_>) {
    const RECORD_BYTES: usize = 32 << 10;
    let fields = RecordFields {
        lsn: Lsn::new(3, 100),
        tail_lsn: Lsn::new(3, 50),
        previous_block: 36,
        operations: 100,
        record_bytes: RECORD_BYTES as u32,
        uuid: [7; 16],
    };
    let mut record = vec![7u8; header_sectors(RECORD_BYTES) * BASIC_BLOCK_BYTES + RECORD_BYTES];
    bencher.counter(BytesCount::new(RECORD_BYTES)).bench_local(|| seal_record(black_box(&mut record), &fields, None));
}
