//! The link of an unlinked list in an inode that is torn within itself.

use crate::device::{Device, SECTOR, State};
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_engine::env::SeededEnvironment;
use xfskit_engine::{Caller, MountOptions, NewFile, SetMode, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

const INODE_BYTES: usize = 1024;
/// Lists of unlinked inodes in an AG; the number of an inode says on which it is.
const LISTS: u64 = 64;

fn open(device: &Arc<Device>) -> xfskit_engine::Result<Volume> {
    let env = Arc::new(SeededEnvironment::new(1));
    Volume::open_in(Arc::clone(device) as Arc<dyn BlockDevice>, None, MountOptions::default(), env)
}

/// Two files without a name on one list, both referenced. The second one made is the first in the list.
fn two_on_a_list(fs: &Volume) -> [InodeNumber; 2] {
    let me = Caller::root();
    let name = |n: u64| format!("f{n}").into_bytes();
    let make = |n| fs.create(fs.root(), &name(n), &NewFile::file(0o644), &me).unwrap().inode;
    let inodes: Vec<InodeNumber> = (0..=LISTS).map(make).collect();
    let pair = [inodes[0], inodes[LISTS as usize]];
    assert_eq!(pair[0].0 % LISTS, pair[1].0 % LISTS);
    for (n, inode) in [(0, pair[0]), (LISTS, pair[1])] {
        fs.add_reference(inode).unwrap();
        fs.unlink(fs.root(), &name(n), &me).unwrap();
    }
    fs.sync().unwrap();
    pair
}

/// The log has a new link of an inode, and behind it a change of the inode. Write-back was writing the inode in place
/// when the power failed: the first of its two sectors is old, so its checksum is wrong. Recovery must replay the link
/// all the same, for the change behind it in the log makes the inode whole.
#[test]
fn a_link_is_replayed_that_stands_before_the_repair_of_its_inode() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.tool_output("mkfs.xfs", ["-q", "-i", "size=1024", path.to_str().unwrap()]);
    let base = Arc::new(std::fs::read(&path).unwrap());
    let device = Device::new(&base, State::default());
    let fs = open(&device).unwrap();
    let [first, second] = two_on_a_list(&fs);
    while fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap() > 0 {
        fs.sync().unwrap();
    }
    // The tail moves past the changes that are written in place.
    fs.create(fs.root(), b"more", &NewFile::file(0o644), &Caller::root()).unwrap();
    fs.sync().unwrap();
    let on_device = device.state().sectors.clone();
    fs.drop_references(first, 1).unwrap();
    fs.sync().unwrap();
    for name in ["user.a", "user.b", "user.c"] {
        fs.set_xattr(second, name.as_bytes(), &[7; 230], SetMode::Any, &Caller::root()).unwrap();
    }
    fs.sync().unwrap();
    let mut torn = device.state().sectors.clone();
    while fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap() > 0 {
        fs.sync().unwrap();
    }
    let geometry = Arc::clone(&fs.mount().geometry);
    drop(fs);
    let (ag, within) = geometry.split_inode(second).unwrap();
    let block = geometry.fs_block(ag, geometry.inode_block(within));
    let index = second.0 as usize % geometry.inodes_per_block() as usize;
    let sector = (geometry.fs_block_address(block).unwrap().bytes() as usize + index * INODE_BYTES) / SECTOR;
    let written = device.state().sectors.clone();
    for sector in sector as u64..sector as u64 + 2 {
        assert!(torn[&sector] == on_device[&sector], "the inode was written back already");
        assert!(written[&sector] != on_device[&sector], "the inode is not written back");
    }
    torn.insert(sector as u64 + 1, written[&(sector as u64 + 1)]);
    let device = Device::new(&base, State { sectors: torn, ..State::default() });
    std::fs::write(&path, device.contents()).unwrap();
    let Some(kernel) = xfskit_testkit::kernel_mount(&path) else { return };
    kernel.unmount();
    reference.repair_finds_nothing(&path);
    let fs = open(&device).unwrap();
    assert!(fs.stat(second).is_err(), "an inode without a name and a holder is freed");
    fs.unmount().unwrap();
    std::fs::write(&path, device.contents()).unwrap();
    reference.repair_finds_nothing(&path);
}
