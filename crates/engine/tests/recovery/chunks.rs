//! Chunks of inodes that are made and freed in the log: journals by hand, beside the kernel's recovery.

use crate::alike::recovered_alike;
use crate::base::{BLOCK_SECTORS, Base, CLUSTER_SECTORS, LAST_OF_CLUSTER, inode, is_of};
use crate::by_hand::{Item, Journal, buffer};
use crate::kernel::Image;
use xfskit_engine::{Caller, MountOptions, NewFile};
use xfskit_ondisk::DiskAddress;
use xfskit_ondisk::log_record::{buffer_flags, item_type};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_testkit::{Scratch, copy_image};

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
