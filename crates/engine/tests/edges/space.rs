//! Space that is short, or that contents had which were lost.

use crate::{MEBIBYTE, make, stress};
use xfskit_engine::error_tags::{ALLOC_EXTENT, DATA_IOERROR, ITOBP};
use xfskit_engine::{Caller, Error, Fallocate};

#[test]
fn what_was_allocated_can_be_written_on_a_full_image() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let (kept, filler) = (make(&fs, "kept"), make(&fs, "filler"));
    fs.fallocate(kept, 0, 8 << 20, Fallocate::Allocate).unwrap();
    let piece = vec![7; MEBIBYTE];
    for size in [MEBIBYTE, 4096] {
        while fs.append(filler, &piece[..size]).and_then(|_| fs.fsync(filler)).is_ok() {}
    }
    for at in 0..8 {
        fs.write_at(kept, (at * MEBIBYTE) as u64, &piece).unwrap();
    }
    fs.fsync(kept).unwrap();
    image.close(fs);
}

/// The contents of a file cannot be written out at the unmount, which reports this and closes the log in good order.
/// The superblock must not count the block that was reserved for them as used.
#[test]
fn space_of_contents_that_the_unmount_lost_is_free() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.sync().unwrap();
    fs.write_at(file, 0, &[7; 100]).unwrap();
    fs.mount().error_tags.arm(ALLOC_EXTENT, 1);
    assert!(matches!(fs.unmount(), Err(Error::Io { .. })));
    image.assert_sound();
    let fs = image.open();
    assert_eq!(fs.stat(file).unwrap().size, 0);
    fs.unmount().unwrap();
}

/// Dirty bytes for an unwritten block have no other block reserved. When the file loses its blocks and cannot be freed
/// after that, a sync must not allocate a block for them, which the superblock would count as free.
#[test]
fn contents_of_a_file_that_could_not_be_freed_take_no_space() {
    let image = stress::Image::new(320, &[]);
    for nth in 1..4 {
        let fs = image.open();
        let file = make(&fs, "file");
        fs.fallocate(file, 0, 64 << 10, Fallocate::Allocate).unwrap();
        fs.sync().unwrap();
        fs.write_at(file, 0, &[7; 100]).unwrap();
        fs.mount().error_tags.arm(ITOBP, nth);
        let _ = fs.unlink(fs.root(), b"file", &Caller::root());
        // Passes the tag once more, in case the unlink has not used it up.
        fs.mount().error_tags.strikes(ITOBP);
        let _ = fs.sync();
        let _ = fs.unmount();
        // The next mount frees what was left.
        let fs = image.open();
        let _ = fs.unlink(fs.root(), b"file", &Caller::root());
        image.close(fs);
    }
}

/// A disk that takes no contents any more, or a host that is full: what need not be written is not tried, as the kernel
/// drops pages that were not written back.
#[test]
fn a_file_whose_contents_cannot_be_written_can_be_emptied_and_cut() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let [new, old] = ["new", "old"].map(|name| make(&fs, name));
    fs.write_at(old, 0, &[1; 8192]).unwrap();
    fs.sync().unwrap();
    let before = fs.statfs();
    let mtime = |file| fs.stat(file).unwrap().mtime;
    let times = [new, old].map(mtime);
    fs.write_at(new, 0, &[2; 100_000]).unwrap();
    fs.write_at(old, 8192, &[2; 100_000]).unwrap();
    fs.mount().error_tags.arm_for(DATA_IOERROR, 1, u32::MAX);
    assert!(matches!(fs.fsync(new), Err(Error::Io { .. })));
    // The first block could be written; those in front of the new end would have to be.
    assert!(matches!(fs.truncate(old, 8193), Err(Error::Io { .. })));
    assert_eq!(fs.stat(old).unwrap().size, 108_192);
    for (file, size) in [(new, 0), (old, 8192), (old, 4096)] {
        fs.truncate(file, size).unwrap();
        assert_eq!(fs.stat(file).unwrap().size, size);
    }
    assert!([new, old].map(mtime) > times);
    // The tag's last failure.
    fs.mount().error_tags.arm(DATA_IOERROR, 1);
    fs.mount().error_tags.strikes(DATA_IOERROR);
    fs.sync().unwrap();
    assert_eq!(fs.statfs().free_blocks, before.free_blocks + 1);
    fs.write_at(old, 8192, &[3; 10]).unwrap();
    image.close(fs);
    let fs = image.open();
    let mut found = [9; 9000];
    assert_eq!(fs.read_at(old, 0, &mut found).unwrap(), 8202);
    assert!(found[..4096] == [1; 4096] && found[4096..8192] == [0; 4096] && found[8192..8202] == [3; 10]);
    image.close(fs);
}
