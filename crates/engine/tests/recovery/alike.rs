//! What recovery leaves in place, byte for byte: the kernel recovers one copy of a crash image, xfskit another, and
//! neither changes anything after that.

use crate::kernel::Image;
use rustix::fs::{FallocateFlags, XattrFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::MountOptions;
use xfskit_engine::journal::{LogState, RecoveryReport};
use xfskit_engine::open::FoundLog;
use xfskit_ondisk::Lsn;
use xfskit_testkit::{Reference, Scratch, kernel_mount_with};

const SECTOR: usize = 512;

/// What both recoveries have left.
pub struct Alike {
    /// The whole image.
    pub bytes: Vec<u8>,
    /// What xfskit says that it did.
    pub report: RecoveryReport,
}

/// Has both recover a crash image. `None` without a kernel.
///
/// # Panics
/// Unless both leave the same bytes everywhere but in the log.
pub fn recovered_alike(reference: &Reference, scratch: &Scratch, image: &Path) -> Option<Alike> {
    let image = Image { data: image.into(), log: None };
    let [ours, theirs] = ["ours", "theirs"].map(|name| image.copy(scratch, name));
    let fs = ours.open(MountOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let report = fs.mount().recovery.clone().expect("a dirty log");
    assert_eq!((report.tail, report.head, report.bytes), live_part(&image.data));
    let geometry = &fs.mount().geometry;
    let start =
        geometry.fs_block_address(geometry.log_start.expect("a log inside")).expect("its place").bytes() as usize;
    let log = start..start + ((geometry.log_blocks as usize) << geometry.block_log);
    // As a process that is killed, and a machine that loses its power: nothing more is written.
    drop(fs);
    let kernel = kernel_mount_with(&theirs.data, None, &[])?;
    reference.shut_down(kernel.path(), false);
    kernel.unmount();
    let [ours, theirs] = [ours, theirs].map(|image| std::fs::read(image.data).expect("an image"));
    assert_eq!(ours.len(), theirs.len());
    for (index, (our, their)) in ours.chunks(SECTOR).zip(theirs.chunks(SECTOR)).enumerate() {
        let differs = our != their && !log.contains(&(index * SECTOR));
        assert!(!differs, "sector {index} is\n{}\nand the kernel's is\n{}", our.escape_ascii(), their.escape_ascii());
    }
    Some(Alike { bytes: ours, report })
}

/// Where the log of a crash image starts and ends, and its bytes between them, in a log that has not wrapped.
fn live_part(image: &Path) -> (Lsn, Lsn, u64) {
    let device = FileDevice::open(image, Access::Read).expect("an image");
    let log = FoundLog::find(Arc::new(device), None).expect("a log");
    let LogState::Dirty { tail } = log.state else { panic!("a clean log") };
    let head = log.head.next;
    assert_eq!(tail.cycle(), head.cycle());
    (tail, head, u64::from(head.block() - tail.block()) * SECTOR as u64)
}

/// A file of `count` blocks with holes between them, so that its map has as many extents. The first byte is `contents`.
fn file_of_pieces(path: &Path, count: u64, contents: u8) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).expect("room for a file");
    for n in 0..count {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), n * 2048, 1024).expect("room for a block");
    }
    file.write_all_at(&[contents], 0).expect("room for a byte");
    // Only files of one size are exchanged.
    file.set_len(16 << 20).expect("a longer file");
    file
}

/// An exchange of whole forks (`XFS_IOC_SWAPEXT` without reverse mappings) gives the blocks of both trees new owners.
/// The log says so in the items of the inodes alone; the blocks are not in the log. Linux 6.18 refuses such a log: it
/// verifies the inode before it sets its checksum (`xfs_recover_inode_owner_change`). So xfs_repair is the judge.
#[test]
fn blocks_of_exchanged_trees_get_their_new_owners() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let data = scratch.image("a.img", 320 << 20);
    let options = ["-b", "size=1024", "-m", "rmapbt=0,reflink=0", "-i", "exchange=0", "-n", "parent=0"];
    reference.mkfs(&data, &options);
    let Some(kernel) = kernel_mount_with(&data, None, &[]) else { return };
    // Trees of one level and of two below the root, in inodes with an attribute fork and without.
    for (name, count, attribute) in [("a", 5000, true), ("b", 300, true), ("c", 400, false), ("d", 4000, false)] {
        let file = file_of_pieces(&kernel.path().join(name), count, name.as_bytes()[0]);
        if attribute {
            rustix::fs::fsetxattr(&file, "user.a", b"b", XattrFlags::empty()).expect("room for an attribute");
        }
    }
    kernel.unmount();
    let run = reference.uml(
        &data,
        "mount /dev/ubda /mnt && cd /mnt && xfs_io -c 'swapext b' a && xfs_io -c 'swapext c' d || exit 1
         xfs_io -x -c 'shutdown -f' /mnt; exit 99",
    );
    assert_eq!((run.status, run.output.contains("swapext:")), (99, false), "{}", run.output);
    let image = Image { data, log: None };
    let report = image.recover().expect("a recovery").expect("a dirty log");
    // The leaves of all four trees are changed, and there are as many records in them as extents.
    assert!(report.blocks_written > (5000 + 300 + 400 + 4000) / 59, "{report}");
    reference.repair_finds_nothing(&image.data);
    let kernel = kernel_mount_with(&image.data, None, &[]).expect("a sound image");
    for (name, contents) in ["a", "b", "c", "d"].iter().zip(b"badc") {
        let mut found = [0];
        File::open(kernel.path().join(name)).and_then(|file| file.read_exact_at(&mut found, 0)).expect("a file");
        assert_eq!(found, [*contents], "{name}");
    }
    kernel.unmount();
}
