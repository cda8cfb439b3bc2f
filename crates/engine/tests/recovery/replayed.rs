//! Which items are replayed, and what of them: journals by hand, beside the kernel's recovery.

use crate::alike::recovered_alike;
use crate::base::{BLOCK_SECTORS, Base, inode, is_of, link, open};
use crate::by_hand::{Item, Journal, buffer};
use crate::device::{Device, State};
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::open::FoundLog;
use xfskit_engine::space::cluster::locate;
use xfskit_engine::{Caller, MountOptions, NewFile, Permissions, SetAttr, SetMode, Volume};
use xfskit_ondisk::log_record::{buffer_flags, item_type, operation_flags as flags};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn, set_checksum};
use xfskit_testkit::copy_image;

/// What the LSNs of three records at the head of an image's log will be, if each has one sector of header and one of
/// contents.
fn next_lsns(path: &Path) -> [Lsn; 3] {
    let copy = path.with_extension("probe");
    copy_image(path, &copy);
    let mut journal = Journal::default();
    for _ in 0..2 {
        journal.operation(1, flags::COMMIT, &[]);
        journal.end_record();
    }
    journal.operation(1, flags::COMMIT, &[]);
    let lsns = journal.write(&copy);
    std::fs::remove_file(copy).unwrap();
    lsns.try_into().expect("three records")
}

/// A record of which nothing is replayed: the end of a transaction that began before the tail.
fn empty_record(journal: &mut Journal) {
    journal.operation(1, flags::COMMIT, &[]);
    journal.end_record();
}

/// A block is left alone where it is newer than the item. LSNs that no record has, 0 and -1, are of blocks that were
/// written without the log.
#[test]
fn a_block_is_replayed_unless_it_is_newer() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let [older, same, _] = next_lsns(&base.path);
    let newer = Lsn(same.0 + 2);
    for (index, lsn) in [older.0, newer.0, 0, u64::MAX].into_iter().enumerate() {
        base.set_target(index, b'd', lsn);
    }
    let journal = |indices: &[usize]| {
        let mut journal = Journal::default();
        empty_record(&mut journal);
        journal.transaction(7, &indices.iter().map(|index| base.target_item(*index, b'l')).collect::<Vec<_>>());
        journal.end_record();
        // The head is behind the newest LSN of the metadata.
        empty_record(&mut journal);
        journal
    };
    assert_eq!(journal(&[0, 1, 2, 3, 4]).write(&base.path)[..2], [older, same]);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    assert_eq!(base.letters(&alike.bytes), "ldlllooo");
    let report = alike.report;
    assert_eq!((report.records, report.transactions, report.uncommitted), (3, 1, 0));
    assert_eq!((report.replayed, report.skipped, report.blocks_written), (4, 1, 4));
}

/// Two transactions may begin in one record. The block that the first of them changed may have been written in place,
/// with the LSN of both. (Linux passes over the second: `xlog_recover_buf_commit_pass2`.)
#[test]
fn a_block_of_the_same_lsn_gets_the_later_change() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let [first, ..] = next_lsns(&base.path);
    base.set_target(0, b'a', first.0);
    let mut journal = Journal::default();
    let before = base.target_item(2, b'b');
    // Newer blocks that are not whole do not count: one has a wrong checksum, the other is of another place.
    base.set_target(2, b'd', first.0 + 2);
    base.write(base.targets[2].bytes() + link::TARGET as u64, b"e");
    base.write(base.targets[3].bytes() + link::ADDRESS as u64 + 7, b"x");
    base.set_target(3, b'd', first.0 + 2);
    let mut other_place = base.target(3, b'b');
    other_place[link::ADDRESS..][..8].copy_from_slice(&base.targets[3].0.to_be_bytes());
    let other_place = buffer(base.targets[3], BLOCK_SECTORS, buffer_type::SYMLINK, 0, &[(0, &other_place[..1024])]);
    journal.transaction(7, &[base.target_item(0, b'a'), base.target_item(1, b'a'), before, other_place]);
    journal.transaction(8, &[base.target_item(0, b'b'), base.target_item(1, b'b')]);
    journal.write(&base.path);
    let log = FoundLog::find(Arc::new(FileDevice::open(&base.path, Access::Read).unwrap()), None).unwrap();
    let mut previewed = Vec::new();
    log.preview(&mut |item| previewed.push((item.transaction, item.item))).unwrap();
    assert_eq!(previewed, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]);
    drop(log);
    let fs = open(&base.path);
    // Each is written once.
    assert_eq!(fs.mount().recovery.as_ref().unwrap().blocks_written, 4);
    drop(fs);
    let bytes = std::fs::read(&base.path).unwrap();
    assert_eq!(base.letters(&bytes), "bbbboooo");
    for target in &base.targets[..2] {
        assert_eq!(bytes[target.bytes() as usize + link::LSN..][..8], first.0.to_be_bytes());
    }
}

/// An inode is replayed if it is as new as the item, and left alone if it is newer.
#[test]
fn an_inode_is_replayed_unless_it_is_newer() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let fs = open(&base.path);
    let geometry = Arc::clone(&fs.mount().geometry);
    fs.unmount().unwrap();
    let [older, same, _] = next_lsns(&base.path);
    let newer = Lsn(same.0 + 2);
    let place = |file: usize| {
        let (address, offset) = locate(&geometry, base.files[file]).unwrap();
        address.bytes() + offset as u64
    };
    let items = base.items_of(&scratch, |fs| {
        for file in &base.files[..5] {
            let change = SetAttr { permissions: Some(Permissions::new(0o4711)), ..SetAttr::default() };
            fs.set_attr(*file, &change, &Caller::root()).unwrap();
        }
    });
    let items: Vec<Item> = items.into_iter().filter(|item| is_of(item, item_type::INODE)).collect();
    assert_eq!(items.len(), 5);
    for (file, lsn) in [older.0, same.0, newer.0, 0, u64::MAX].into_iter().enumerate() {
        let mut bytes = base.read(place(file), inode::BYTES);
        bytes[inode::LSN..][..8].copy_from_slice(&lsn.to_be_bytes());
        set_checksum(&mut bytes, inode::CRC);
        base.write(place(file), &bytes);
    }
    let mut journal = Journal::default();
    empty_record(&mut journal);
    journal.transaction(7, &items);
    journal.end_record();
    empty_record(&mut journal);
    assert_eq!(journal.write(&base.path)[..2], [older, same]);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    let modes = [0, 1, 2, 3, 4].map(|file| {
        let at = place(file) as usize + 2;
        u16::from_be_bytes([alike.bytes[at], alike.bytes[at + 1]])
    });
    assert_eq!(modes, [0o104_711, 0o104_711, 0o100_644, 0o104_711, 0o104_711]);
    assert_eq!((alike.report.replayed, alike.report.skipped), (4, 1));
}

/// Of a buffer of inodes only the links of the unlinked lists are replayed, each where all of it is in the item.
#[test]
fn only_the_links_of_inodes_are_replayed_from_their_buffer() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let fs = open(&base.path);
    let (cluster, first) = locate(&fs.mount().geometry, base.files[0]).unwrap();
    let cluster_bytes = fs.mount().geometry.inode_cluster_bytes();
    fs.unmount().unwrap();
    // Before, in and behind the link of one inode; from one inode's end to behind the next one's link; two whole ones.
    let parts = [(128, 256), (512, 128), (896, 256), (1536, 1024), (2688, 256), (3072, 128)];
    let contents: Vec<Vec<u8>> = parts
        .map(|(start, length)| {
            let mut bytes = vec![0xab; length];
            for at in start..start + length {
                // The links name inodes of the root directory's chunk.
                if at % inode::BYTES == inode::NEXT_UNLINKED {
                    bytes[at - start..][..4].copy_from_slice(&(128 + (at / 512) as u32).to_be_bytes());
                }
            }
            bytes
        })
        .into();
    let parts: Vec<(usize, &[u8])> =
        parts.iter().zip(&contents).map(|((start, _), bytes)| (first + start, &bytes[..])).collect();
    let sectors = (cluster_bytes / BASIC_BLOCK_BYTES) as u16;
    let item = buffer(cluster, sectors, buffer_type::INODES, buffer_flags::INODES, &parts);
    let mut journal = Journal::default();
    journal.transaction(7, &[item]);
    journal.write(&base.path);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    let links: Vec<u32> = (0..8)
        .map(|n| {
            let at = cluster.bytes() as usize + first + n * inode::BYTES + inode::NEXT_UNLINKED;
            u32::from_be_bytes(alike.bytes[at..at + 4].try_into().unwrap())
        })
        .collect();
    assert_eq!(links, [u32::MAX, 129, 130, 131, 132, u32::MAX, 134, u32::MAX]);
}

/// The operations of transactions may be interleaved and their regions cut anywhere; what is not committed did not
/// happen, and what began before the tail is left alone.
#[test]
fn transactions_are_put_together_from_their_operations() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let items = base.items_of(&scratch, |fs| {
        let me = Caller::root();
        let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
        for n in 0..100 {
            let name = format!("a file with a name that takes some room {n}");
            let file = fs.create(dir, name.as_bytes(), &NewFile::file(0o600), &me).unwrap().inode;
            fs.set_xattr(file, b"user.a", name.as_bytes(), SetMode::Any, &me).unwrap();
        }
    });
    let mut journal = Journal::default();
    let other = [base.target_item(0, b'a'), base.target_item(1, b'a')];
    let lost = [base.target_item(1, b'x'), base.target_item(2, b'x')];
    let regions = |items: &[Item]| items.iter().flatten().cloned().collect::<Vec<_>>();
    // From before the tail.
    journal.operation(9, flags::WAS_CONTINUED | flags::END, &[1; 64]);
    journal.operation(9, 0, &regions(&lost)[0]);
    journal.operation(9, flags::COMMIT, &[]);
    journal.begin(7, &items);
    let (mut second, mut third) = (regions(&other).into_iter(), regions(&lost).into_iter());
    for (n, region) in regions(&items).iter().enumerate() {
        if n % 40 == 39 {
            journal.end_record();
        }
        match n {
            2 => journal.begin(8, &other),
            5 => journal.begin(10, &lost),
            12 => journal.operation(8, flags::COMMIT, &[]),
            _ => {}
        }
        if (3..12).contains(&n) {
            second.by_ref().take(1).for_each(|region| journal.operation(8, 0, &region));
        }
        // The last transaction lacks its last region and its end.
        if n > 5 {
            third.by_ref().take(1).filter(|_| n < 9).for_each(|region| journal.operation(10, 0, &region));
        }
        let (first, rest) = region.split_at(region.len() / 8 * 4);
        let (middle, last) = rest.split_at(rest.len() / 8 * 4);
        match n % 3 {
            0 => journal.operation(7, 0, region),
            1 => {
                journal.operation(7, flags::CONTINUE, first);
                journal.operation(7, flags::WAS_CONTINUED | flags::END, rest);
            }
            _ => {
                journal.operation(7, flags::CONTINUE, first);
                journal.operation(7, flags::CONTINUE | flags::WAS_CONTINUED, middle);
                journal.operation(7, flags::WAS_CONTINUED, last);
            }
        }
    }
    journal.operation(7, flags::COMMIT, &[]);
    journal.write(&base.path);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    assert_eq!(base.letters(&alike.bytes), "aaoooooo");
    assert_eq!((alike.report.transactions, alike.report.uncommitted), (2, 1));
    std::fs::write(&base.path, alike.bytes).unwrap();
    let fs = open(&base.path);
    let dir = fs.lookup(fs.root(), b"dir").unwrap().inode;
    assert_eq!(fs.list_dir(dir).unwrap().iter().filter(|entry| entry.name.starts_with(b"a file")).count(), 100);
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&base.path);
}

/// What recovery writes in place is durable before anything changes in the log.
#[test]
fn recovery_is_flushed_before_the_log_changes() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let mut journal = Journal::default();
    journal.transaction(7, &[base.target_item(0, b'l')]);
    journal.write(&base.path);
    let bytes = Arc::new(std::fs::read(&base.path).unwrap());
    let device = Device::new(&bytes, State::default());
    let fs = Volume::open(Arc::clone(&device) as _, MountOptions::default()).unwrap();
    fs.create(fs.root(), b"new", &NewFile::file(0o644), &Caller::root()).unwrap();
    fs.sync().unwrap();
    let sector = base.targets[0].0;
    let flushed = device.state().before_flush.clone().expect("a flush");
    assert!(flushed.keys().copied().eq(sector..sector + u64::from(BLOCK_SECTORS)), "{:?}", flushed.keys());
}
