//! Which items are replayed, and what of them: journals by hand, beside the kernel's recovery.

use crate::alike::recovered_alike;
use crate::by_hand::{Item, Journal, buffer, logged_items};
use crate::device::{Device, State};
use crate::kernel::Image;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::ondisk::log_record::{buffer_flags, item_type, operation_flags as flags};
use xfskit::ondisk::logged::buffer::buffer_type;
use xfskit::ondisk::{BASIC_BLOCK_BYTES, DiskAddress, InodeNumber, Lsn, set_checksum};
use xfskit::open::FoundLog;
use xfskit::space::cluster::locate;
use xfskit::volume::{Caller, Error, MountOptions, NewFile, Permissions, SetAttr, SetMode, Volume};
use xfskit_testkit::{Reference, Scratch, copy_image};

const SIZE_BYTES: u64 = 320 << 20;
const BLOCK_BYTES: usize = 4096;
const BLOCK_SECTORS: u16 = (BLOCK_BYTES / BASIC_BLOCK_BYTES) as u16;
/// Length of the targets of symbolic links: too long for an inode, so each has a block of its own.
const TARGET_BYTES: usize = 900;
/// Length of a cluster of 32 inodes, and the offset of the last of them.
const CLUSTER_SECTORS: u16 = 32;
const LAST_OF_CLUSTER: usize = 31 * inode::BYTES;

/// A place in the block of a symbolic link's target.
mod link {
    pub const CRC: usize = 12;
    pub const ADDRESS: usize = 40;
    pub const LSN: usize = 48;
    pub const TARGET: usize = 56;
}

/// A place in an inode.
mod inode {
    pub const NEXT_UNLINKED: usize = 96;
    pub const CRC: usize = 100;
    pub const LSN: usize = 112;
    pub const BYTES: usize = 512;
}

fn open(path: &Path) -> Volume {
    Image { data: path.into(), log: None }.open(MountOptions::default()).expect("a sound image")
}

/// An image by mkfs.xfs with files and symbolic links, and a clean log.
struct Base {
    path: PathBuf,
    files: Vec<InodeNumber>,
    /// The block of each link's target.
    targets: Vec<DiskAddress>,
}

impl Base {
    fn new(reference: &Reference, scratch: &Scratch, options: &[&str]) -> Self {
        let path = scratch.image("base.img", SIZE_BYTES);
        reference.mkfs(&path, options);
        let (fs, me) = (open(&path), Caller::root());
        let make = |name: String, new: &NewFile<'_>| fs.create(fs.root(), name.as_bytes(), new, &me).unwrap().inode;
        let files = (0..8).map(|n| make(format!("file {n}"), &NewFile::file(0o644))).collect();
        for n in 0..8 {
            make(format!("link {n}"), &NewFile::symlink(&[b'o'; TARGET_BYTES]));
        }
        fs.unmount().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let starts = (0..bytes.len()).step_by(BLOCK_BYTES);
        let address = |start: &usize| DiskAddress((start / BASIC_BLOCK_BYTES) as u64);
        let is_target = |start: &usize| {
            bytes[*start..].starts_with(b"XSLM")
                && bytes[start + link::ADDRESS..][..8] == address(start).0.to_be_bytes()
        };
        let targets: Vec<_> = starts.filter(is_target).map(|start| address(&start)).collect();
        assert_eq!(targets.len(), 8);
        Self { path, files, targets }
    }

    fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut contents = vec![0; bytes];
        std::fs::File::open(&self.path).unwrap().read_exact_at(&mut contents, at).unwrap();
        contents
    }

    fn write(&self, at: u64, contents: &[u8]) {
        std::fs::File::options().write(true).open(&self.path).unwrap().write_all_at(contents, at).unwrap();
    }

    /// The block of a link's target, with a target of one letter.
    fn target(&self, index: usize, letter: u8) -> Vec<u8> {
        let mut block = self.read(self.targets[index].bytes(), BLOCK_BYTES);
        block[link::TARGET..][..TARGET_BYTES].fill(letter);
        block
    }

    /// An item that gives a link another target.
    fn target_item(&self, index: usize, letter: u8) -> Item {
        buffer(self.targets[index], BLOCK_SECTORS, buffer_type::SYMLINK, 0, &[(0, &self.target(index, letter)[..1024])])
    }

    /// Changes the block of a link's target on the device.
    fn set_target(&self, index: usize, letter: u8, lsn: u64) {
        let mut block = self.target(index, letter);
        block[link::LSN..][..8].copy_from_slice(&lsn.to_be_bytes());
        set_checksum(&mut block, link::CRC);
        self.write(self.targets[index].bytes(), &block);
    }

    /// The letters of the links' targets in an image.
    fn letters(&self, bytes: &[u8]) -> String {
        self.targets.iter().map(|target| char::from(bytes[target.bytes() as usize + link::TARGET])).collect()
    }

    /// The items of `work`, which is not done in this image.
    fn items_of(&self, scratch: &Scratch, work: impl FnOnce(&Volume)) -> Vec<Item> {
        let path = scratch.file("worked-on.img");
        copy_image(&self.path, &path);
        let fs = open(&path);
        work(&fs);
        fs.sync().unwrap();
        drop(fs);
        logged_items(&path).concat()
    }
}

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

/// Whether an item is of a type.
fn is_of(item: &Item, kind: u16) -> bool {
    item[0][..2] == kind.to_le_bytes()
}

/// The items of work that makes a chunk of inodes.
fn items_of_a_new_chunk(base: &Base, scratch: &Scratch) -> Vec<Item> {
    let items = base.items_of(scratch, |fs| {
        for n in 0..100 {
            let name = format!("new {n}");
            fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o600), &Caller::root()).unwrap();
        }
    });
    assert_eq!(items.iter().filter(|item| is_of(item, item_type::ICREATE)).count(), 1);
    items
}

/// The item that makes a chunk, and the first cluster of the chunk.
fn new_chunk(items: &[Item]) -> (&Item, DiskAddress) {
    let chunk = items.iter().find(|item| is_of(item, item_type::ICREATE)).unwrap();
    // The AG and the block are behind the type.
    let word = |at: usize| u32::from_be_bytes(chunk[0][at..at + 4].try_into().unwrap());
    assert_eq!((word(4), word(20)), (0, 8), "two clusters in the first AG");
    (chunk, DiskAddress(u64::from(word(8)) * u64::from(BLOCK_SECTORS)))
}

/// A link of an unlinked list in the last inode of a cluster.
fn last_link(cluster: DiskAddress) -> Item {
    let mut link = [0; 128];
    link[inode::NEXT_UNLINKED..][..4].copy_from_slice(&130u32.to_be_bytes());
    let parts = [(LAST_OF_CLUSTER, &link[..])];
    buffer(cluster, CLUSTER_SECTORS, buffer_type::INODES, buffer_flags::INODES, &parts)
}

/// The items of a transaction have their turns whatever their order in the log is: a chunk is made before its inodes
/// change, and a cancel record cancels the items behind it, too.
#[test]
fn items_have_their_turns() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let mut items = items_of_a_new_chunk(&base, &scratch);
    let (_, cluster) = new_chunk(&items);
    let links = last_link(cluster);
    items.insert(0, links.clone());
    items.push(base.target_item(0, b'c'));
    items.push(buffer(base.targets[0], BLOCK_SECTORS, buffer_type::SYMLINK, buffer_flags::CANCEL, &[]));
    for items in [items.clone(), items.into_iter().rev().collect()] {
        let path = scratch.file("turns.img");
        copy_image(&base.path, &path);
        let mut journal = Journal::default();
        // There are no inodes yet, so the link is of a torn one, which the chunk replaces.
        journal.transaction(6, std::slice::from_ref(&links));
        journal.transaction(7, &items);
        journal.write(&path);
        let Some(alike) = recovered_alike(&reference, &scratch, &path) else { return };
        assert_eq!(base.letters(&alike.bytes), "oooooooo");
        let at = cluster.bytes() as usize + LAST_OF_CLUSTER + inode::NEXT_UNLINKED;
        assert_eq!(alike.bytes[at..at + 4], 130u32.to_be_bytes());
        assert_eq!(alike.report.cancelled, 1);
    }
}

/// A link of an inode that is torn on the device must have the rest of the inode behind it in the log. A chunk that is
/// made anew has it, though nothing else of that inode is in the log.
#[test]
fn a_new_chunk_replaces_torn_inodes() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let items = items_of_a_new_chunk(&base, &scratch);
    let (_, first) = new_chunk(&items);
    // No file has the last inode of the second cluster.
    let cluster = DiskAddress(first.0 + u64::from(CLUSTER_SECTORS));
    let links = last_link(cluster);
    let alone = scratch.file("alone.img");
    copy_image(&base.path, &alone);
    let mut journal = Journal::default();
    journal.transaction(6, std::slice::from_ref(&links));
    journal.write(&alone);
    let refused = Image { data: alone, log: None }.open(MountOptions::default()).err().expect("a refusal");
    assert!(refused.to_string().contains("number 31 of the cluster"), "{refused}");
    let mut journal = Journal::default();
    journal.transaction(6, &[links]);
    journal.transaction(7, &items);
    journal.write(&base.path);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    let at = cluster.bytes() as usize + LAST_OF_CLUSTER + inode::NEXT_UNLINKED;
    assert_eq!(alike.bytes[at..at + 4], u32::MAX.to_be_bytes());
}

/// A chunk whose blocks were freed later in the log is not made, and its inodes are not replayed.
#[test]
fn a_chunk_that_was_freed_is_not_made() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let base = Base::new(&reference, &scratch, &[]);
    let items = items_of_a_new_chunk(&base, &scratch);
    let (chunk, first) = new_chunk(&items);
    let clusters = [first, DiskAddress(first.0 + u64::from(CLUSTER_SECTORS))];
    let flags = buffer_flags::CANCEL | buffer_flags::INODES;
    let cancels = clusters.map(|cluster| buffer(cluster, CLUSTER_SECTORS, buffer_type::INODES, flags, &[]));
    // The address of an inode's cluster is behind 40 bytes of its format.
    let is_in = |item: &Item| clusters.iter().any(|cluster| item[0].get(40..48) == Some(&cluster.0.to_le_bytes()[..]));
    let inodes: Vec<Item> = items.iter().filter(|item| is_of(item, item_type::INODE) && is_in(item)).cloned().collect();
    assert!(inodes.len() > 30, "{} inodes", inodes.len());
    let mut journal = Journal::default();
    journal.transaction(7, std::slice::from_ref(chunk));
    journal.end_record();
    journal.transaction(8, &inodes);
    journal.end_record();
    journal.transaction(9, &[cancels.as_slice(), &[base.target_item(0, b'f')]].concat());
    journal.write(&base.path);
    let Some(alike) = recovered_alike(&reference, &scratch, &base.path) else { return };
    assert_eq!((alike.report.replayed, alike.report.cancelled), (1, 1 + inodes.len() as u64));
    for cluster in clusters {
        assert!(!alike.bytes[cluster.bytes() as usize..].starts_with(b"IN"), "a cluster of the chunk was made");
    }
}

/// The message with which recovery refuses a journal of one transaction.
fn refusal(base: &Base, scratch: &Scratch, items: &[Item]) -> String {
    let path = scratch.file("refused.img");
    copy_image(&base.path, &path);
    let mut journal = Journal::default();
    journal.transaction(7, items);
    journal.write(&path);
    let before = std::fs::read(&path).unwrap();
    let error = Image { data: path.clone(), log: None }.open(MountOptions::default()).err().expect("a refusal");
    assert!(matches!(error, Error::Corrupt(_) | Error::Superblock(_) | Error::Unsupported(_)), "{error}");
    assert!(before == std::fs::read(&path).unwrap(), "a refused image was changed");
    error.to_string()
}

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
