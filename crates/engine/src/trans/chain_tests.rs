//! One chain of transactions against the whole log.

use super::{InodeFields, Reservation};
use crate::buffer::BufferKind;
use crate::mount::BlockPool;
use crate::test_image::TestImage;
use std::sync::mpsc::channel;
use std::time::Duration;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{DiskAddress, FsBlock};

/// Links use nearly all their reservation.
const LINK_BLOCKS: u64 = 240;
const LINK_BYTES: u32 = 1 << 20;

static PLAIN_KIND: BufferKind = BufferKind {
    name: "block of a test",
    family: "test",
    log_type: buffer_type::DIR_DATA,
    crc_offset: None,
    lsn_offset: None,
    verify: |_, _, _| Ok(()),
    refine: None,
};

/// A chain that changes more than the log has room for, right after the mount: there are no older items whose
/// write-back would free space, and the objects that the chain has locked cannot be written back. If a roll did not
/// push when a checkpoint is due, all changes would gather in one checkpoint that fills the log, and the chain would
/// wait for itself.
#[test]
fn a_chain_longer_than_the_log_does_not_wait_for_itself() {
    for log in ["size=16m", "size=64m"] {
        let (done, finished) = channel();
        std::thread::spawn(move || {
            run_chain(log);
            done.send(()).expect("the test waits");
        });
        finished.recv_timeout(Duration::from_secs(60)).expect("the chain ends");
    }
}

fn run_chain(log: &str) {
    let image = TestImage::new(300, &[('d', "agcount=2"), ('l', log)]);
    let mount = image.mount();
    let geometry = &mount.geometry;
    let first = geometry.fs_block_address(FsBlock(1000)).unwrap();
    let inode = mount.inode(geometry.root_inode).unwrap();
    let reservation = Reservation { log_bytes: LINK_BYTES, log_count: 1, blocks: 0, pool: BlockPool::Reserve };
    let mut tx = mount.transaction(reservation).unwrap();
    let ino = tx.join_inode(&inode);
    for block in 0..2 * u64::from(geometry.log_blocks) {
        tx.inode_mut(ino, InodeFields::CORE);
        let address = DiskAddress(first.0 + block * geometry.basic_blocks(1) as u64);
        let id = tx.create(address, geometry.block_bytes(), &PLAIN_KIND).unwrap();
        tx.edit_all(id).fill(block as u8);
        if block % LINK_BLOCKS == 0 {
            tx.roll().unwrap();
        }
    }
    tx.finish(Ok(())).unwrap();
    mount.unmount().unwrap();
}
