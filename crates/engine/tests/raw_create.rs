//! Inodes and names without the operations above them.

use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::MountOptions;
use xfskit_engine::inode::NewInode;
use xfskit_engine::mount::Mount;
use xfskit_engine::trans::Reservation;
use xfskit_engine::trans::reservation_of;
use xfskit_ondisk::dir::FileType;
use xfskit_ondisk::inode::FileMode;

#[test]
fn names_and_inodes_made_in_single_transactions_are_the_kernels() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 512 << 20);
    reference.tool_output("mkfs.xfs", ["-q", "-n", "parent=0", image.to_str().unwrap()]);
    let device = FileDevice::open(&image, Access::Write).unwrap();
    let mount = Mount::open(Arc::new(device), None, MountOptions::default()).unwrap();
    let mode = FileMode::new(0o100_644).unwrap();
    for n in 0..5000u32 {
        let kernel = reservation_of(mount.reservations.create);
        let reservation = Reservation { log_bytes: kernel.log_bytes * 2, log_count: 1, ..kernel }.with_blocks(100);
        let root = mount.inode(mount.geometry.root_inode).unwrap();
        let mut tx = mount.transaction(reservation).unwrap();
        let dir = tx.join_inode(&root);
        let parent = tx.inode(dir).core.inode;
        let number = xfskit_engine::space::inodes::allocate_inode(&mut tx, parent, 0o100_644).unwrap().unwrap();
        let new = NewInode { mode, uid: 1, gid: 2, links: 1, device: 0, attr_fork: false };
        xfskit_engine::inode::create(&mut tx, number, &new, Some(dir)).unwrap();
        xfskit_engine::dir::add(&mut tx, dir, format!("file-{n}").as_bytes(), number, FileType::Regular).unwrap();
        tx.commit().unwrap();
        if n == 2500 {
            mount.sync().unwrap();
        }
    }
    mount.sync().unwrap();
    eprintln!("{:?}", mount.counters.list());
    let crashed = scratch.file("crashed.img");
    std::fs::copy(&image, &crashed).unwrap();
    mount.unmount().unwrap();
    drop(mount);
    reference.repair_finds_nothing(&image);
    let Some(kernel) = xfskit_testkit::kernel_mount(&crashed) else { return };
    assert_eq!(std::fs::read_dir(kernel.path()).unwrap().count(), 5000);
    kernel.unmount();
    reference.repair_finds_nothing(&crashed);
}
