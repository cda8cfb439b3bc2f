//! Damaged headers and trees with right checksums: whatever they say, work on them ends, with an error or without.

use super::{
    AGF_KIND, AGFL_KIND, AGI_KIND, AllocRequest, BNOBT_KIND, CNTBT_KIND, FINOBT_KIND, INOBT_KIND, Near, Owner,
    REFCOUNTBT_KIND, RMAPBT_KIND, allocate, free, inodes,
};
use crate::buffer::BufferKind;
use crate::env::SeededEnvironment;
use crate::error::Result;
use crate::incore::ForkKind;
use crate::mount::{BlockPool, Mount, MountOptions};
use crate::test_image::{Random, TestImage, transact};
use crate::trans::Reservation;
use std::sync::Arc;
use xfskit_device::MemoryDevice;
use xfskit_ondisk::inode::MODE_REGULAR;
use xfskit_ondisk::{AgNumber, FileBlock, FsBlock, InodeNumber, set_checksum};

const KINDS: [&BufferKind; 9] = [
    &AGF_KIND,
    &AGI_KIND,
    &AGFL_KIND,
    &BNOBT_KIND,
    &CNTBT_KIND,
    &INOBT_KIND,
    &FINOBT_KIND,
    &RMAPBT_KIND,
    &REFCOUNTBT_KIND,
];

fn owner(i: u64) -> Owner {
    Owner::Fork { inode: InodeNumber(1000 + i % 7), fork: ForkKind::Data, offset: FileBlock(i << 10), bmbt: false }
}

/// An image whose trees have several levels, and some of what was allocated in it.
fn worked_image() -> (Vec<u8>, Vec<(FsBlock, u64)>, Vec<InodeNumber>) {
    let image = TestImage::new(48, &[('b', "size=1024"), ('d', "agcount=2")]);
    let mount = image.mount();
    let root = mount.geometry.root_inode;
    let (mut extents, mut all_inodes) = (Vec::new(), Vec::new());
    for i in 0..4000u64 {
        let found = transact(&mount, 60, |tx| {
            let request = AllocRequest::new(Near::Ag(AgNumber(i as u32 % 2)), 1, 1, owner(i));
            let block = allocate(tx, &request)?.expect("space").0;
            let inode = inodes::allocate_inode(tx, root, MODE_REGULAR)?;
            Ok((block, inode))
        });
        let (block, inode) = found.unwrap();
        extents.push((block, i));
        all_inodes.extend(inode);
    }
    for chunk in extents.chunks(2) {
        transact(&mount, 0, |tx| free(tx, chunk[0].0, 1, owner(chunk[0].1))).unwrap();
    }
    let left = extents.iter().skip(1).step_by(2).copied().collect();
    mount.unmount().unwrap();
    (image.device.to_bytes(), left, all_inodes)
}

/// The places of all blocks of a kind, found by their first bytes.
fn places(image: &[u8], mount: &Mount) -> Vec<(usize, usize, &'static BufferKind)> {
    let mut places = Vec::new();
    for at in (0..image.len()).step_by(512) {
        let address = xfskit_ondisk::DiskAddress(at as u64 / 512);
        for kind in KINDS {
            let header = kind.name.starts_with("AG");
            let bytes = if header { mount.geometry.sector_bytes() } else { mount.geometry.block_bytes() };
            let sound = image.get(at..at + bytes).is_some_and(|b| (kind.verify)(&mount.geometry, address, b).is_ok());
            if sound {
                places.push((at, bytes, kind));
            }
        }
    }
    places
}

fn random_work(mount: &Arc<Mount>, random: &mut Random, extents: &[(FsBlock, u64)], all: &[InodeNumber]) {
    for i in 0..12u64 {
        let reservation = Reservation { log_bytes: 400_000, log_count: 1, blocks: 200, pool: BlockPool::Reserve };
        let Ok(mut tx) = mount.transaction(reservation) else { return };
        let result: Result<()> = match random.below(4) {
            0 => {
                let (count, alignment) = (1 + random.below(60) as u32, 1 << random.below(5));
                let request = AllocRequest {
                    alignment,
                    ..AllocRequest::new(Near::Ag(AgNumber(random.below(2) as u32)), 1, count, owner(1 << 20 | i))
                };
                allocate(&mut tx, &request).map(drop)
            }
            1 => {
                let (block, i) = extents[random.below(extents.len() as u64) as usize];
                free(&mut tx, block, 1, owner(i))
            }
            2 => inodes::allocate_inode(&mut tx, all[random.below(all.len() as u64) as usize], MODE_REGULAR).map(drop),
            _ => inodes::free_inode(&mut tx, all[random.below(all.len() as u64) as usize]).map(drop),
        };
        if tx.finish(result).is_err() && mount.transaction(reservation).is_err() {
            return;
        }
    }
}

#[test]
fn damage_ends_in_an_error_at_most() {
    let (image, extents, all) = worked_image();
    let open = |bytes: Vec<u8>| {
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        Mount::open_in(device, None, MountOptions::default(), Arc::new(SeededEnvironment::new(3)))
    };
    let places = places(&image, &open(image.clone()).expect("a mount"));
    let mut random = Random::new(11);
    assert!(places.len() > 50, "{}", places.len());
    // Headers and roots are few; half of the rounds hit the former.
    let headers: Vec<_> = places.iter().filter(|place| place.2.name.starts_with("AG")).copied().collect();
    for round in 0..rounds() {
        let among = if round % 2 == 0 { &headers } else { &places };
        let (at, bytes, kind) = among[random.below(among.len() as u64) as usize];
        let mut damaged = image.clone();
        let block = &mut damaged[at..at + bytes];
        // Most of a header is spare room, and most damage to a number is in its low bits.
        let reach = if kind.name == "AGF" { 128 } else { bytes as u64 };
        for _ in 0..1 + random.below(3) {
            let place = random.below(reach) as usize;
            block[place] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => block[place] ^ 1 << random.below(8),
                _ => random.below(256) as u8,
            };
        }
        if let Some(offset) = kind.crc_offset {
            set_checksum(block, offset);
        }
        // Opening for writing reads all headers, and may find the damage then.
        if let Ok(mount) = open(damaged) {
            random_work(&mount, &mut random, &extents, &all);
        }
    }
}

/// How many damaged images are tried; `XFSKIT_DAMAGE_ROUNDS` asks for more.
fn rounds() -> u32 {
    std::env::var("XFSKIT_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(150)
}
