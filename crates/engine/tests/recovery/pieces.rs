//! Directory blocks that lie in several runs on the device: the kernel writes such logs and refuses them afterwards.

use crate::kernel::Image;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::journal::replay::{Gatherer, Keep, LogTransaction};
use xfskit_engine::journal::{LogState, RecordReader};
use xfskit_engine::open::FoundLog;
use xfskit_mkfs::{Options, Size, make};
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::logged::buffer::LoggedBuffer;
use xfskit_testkit::kernel_mount_with;

/// Syncs. A full filesystem may lack the room for the last contents, once in a hundred runs.
fn sync(root: &Path) {
    match rustix::fs::syncfs(File::open(root).expect("the root")) {
        Err(rustix::io::Errno::NOSPC) => (),
        other => other.expect("a sync"),
    }
}

/// Leaves free space in single blocks only.
fn fragment(root: &Path) {
    let fill = root.join("fill");
    std::fs::create_dir(&fill).expect("room for a folder");
    let mut count = 0;
    while File::create(fill.join(count.to_string())).and_then(|file| file.write_all_at(&[7; 1024], 0)).is_ok() {
        count += 1;
    }
    sync(root);
    for n in (0..count).step_by(2) {
        std::fs::remove_file(fill.join(n.to_string())).expect("a file");
    }
    // Longer free runs are used up first, by files that ask for them.
    let free = rustix::fs::statvfs(root).expect("figures");
    for n in 0..free.f_bfree * free.f_frsize * 11 / 20 / 8192 {
        let eater = File::create(root.join(format!("eater-{n}"))).expect("room for a file");
        rustix::fs::fallocate(&eater, FallocateFlags::empty(), 0, 8192).expect("free space");
    }
    sync(root);
}

/// Items of the log that are pieces of directory data blocks.
fn count_pieces(image: &Path) -> usize {
    const DIRECTORY_DATA: u16 = 11;
    let device = Arc::new(FileDevice::open(image, Access::Read).expect("an image"));
    let log = FoundLog::find(device, None).expect("a log");
    let LogState::Dirty { tail } = log.state else { return 0 };
    let blocks = log.place.distance(tail.block(), log.head.next.block());
    let mut records = RecordReader::new(&log.place, log.uuid, tail, blocks);
    let (mut gatherer, mut count) = (Gatherer::new(Keep::Formats), 0);
    while let Some(record) = records.read_next().expect("a sound log") {
        let commit = |transaction: LogTransaction| {
            let items = transaction.items().filter(|item| item.item_type() == item_type::BUFFER);
            let buffers = items.map(|item| LoggedBuffer::decode(item.format()).expect("a buffer"));
            count += buffers.filter(|buffer| buffer.kind() == DIRECTORY_DATA && buffer.bytes() < 8192).count();
            Ok(())
        };
        gatherer.take(&record, commit).expect("sound transactions");
    }
    count
}

#[test]
fn directory_blocks_in_several_pieces_are_recovered() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let data = scratch.image("a.img", 48 << 20);
    let device = FileDevice::open(&data, Access::Write).expect("an image");
    let options = Options {
        allow_small: true,
        block_bytes: 1024,
        dir_block_bytes: Some(8192),
        log_size: Some(Size::Bytes(8 << 20)),
        uuid: Some([6; 16]),
        ..Options::default()
    };
    make(&device, None, &options, xfskit_ondisk::Timestamp::default()).expect("an image");
    drop(device);
    let Some(kernel) = kernel_mount_with(&data, None, &[]) else { return };
    fragment(kernel.path());
    kernel.unmount();
    let kernel = kernel_mount_with(&data, None, &[]).expect("a mount");
    let dir = kernel.path().join("pieces");
    std::fs::create_dir(&dir).expect("room for a folder");
    for n in 0..600 {
        File::create(dir.join(format!("an entry with a name {n}"))).expect("room for a file");
    }
    reference.shut_down(kernel.path(), true);
    kernel.unmount();
    let image = Image { data, log: None };
    assert!(count_pieces(&image.data) > 10, "directory blocks are whole");
    let report = image.recover().expect("a recovery").expect("a dirty log");
    assert!(report.replayed > 100, "{report}");
    if let Some(findings) = reference.repair_findings(&image.data, None) {
        panic!("{findings}");
    }
    let names =
        image.kernel_tree().expect("a sound image").iter().filter(|entry| entry.path.starts_with("pieces/")).count();
    // With the folder itself.
    assert_eq!(names, 601);
}
