//! What an error stops half-way: a copy and a write say how much was done, as the kernel's system calls do.

use super::model::{File, Random, make, open};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::io::Errno;
use std::path::Path;
use xfskit_engine::Error;
use xfskit_engine::error_tags::{BMAP_SHARE, DATA_IOERROR};

/// More than the images of these tests have left for it.
const LENGTH: u64 = 8 << 20;

fn contents() -> Vec<u8> {
    Random(5).bytes(LENGTH as usize + 1)
}

/// Copies or writes on until an error: how many bytes were counted, how often some were, and the error.
fn until_error<E>(mut step: impl FnMut(u64) -> Result<u64, E>) -> (u64, u32, E) {
    let (mut done, mut steps) = (0, 0);
    loop {
        match step(done) {
            Ok(count) => {
                assert!(count > 0 && done + count < LENGTH, "{done} and {count} bytes in an image without room");
                (done, steps) = (done + count, steps + 1);
            }
            Err(error) => return (done, steps, error),
        }
    }
}

fn file_in(dir: &Path, name: &str) -> std::fs::File {
    std::fs::File::options().read(true).write(true).create(true).truncate(false).open(dir.join(name)).unwrap()
}

/// Takes all free space but less than 1 MiB.
fn leave_little(mut allocate: impl FnMut(u64, u64) -> bool) {
    let (mut end, mut step) = (0, 64 << 20);
    while step >= 1 << 20 {
        if allocate(end, step) {
            end += step;
        } else {
            step /= 2;
        }
    }
}

/// The kernel copies what fits and says so; the rest meets the error. So must we, and a write as well.
#[test]
fn a_copy_that_runs_out_of_space_counts_what_it_copied_as_the_kernels_does() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let [theirs, ours] = ["theirs.img", "ours.img"].map(|name| scratch.image(name, 320 << 20));
    reference.mkfs(&theirs, &[]);
    let Some(kernel) = xfskit_testkit::kernel_mount(&theirs) else { return };
    let bytes = contents();
    std::fs::write(kernel.path().join("source"), &bytes).unwrap();
    let big = file_in(kernel.path(), "big");
    leave_little(|at, length| fallocate(&big, FallocateFlags::empty(), at, length).is_ok());
    big.set_len(big.metadata().unwrap().len() - (3 << 20)).unwrap();
    drop(big);
    kernel.unmount();
    xfskit_testkit::copy_image(&theirs, &ours);

    let Some(kernel) = xfskit_testkit::kernel_mount(&theirs) else { return };
    let (source, copy) = (file_in(kernel.path(), "source"), file_in(kernel.path(), "copy"));
    // From byte 1, so that no blocks can be shared.
    let (done, steps, error) = until_error(|at| {
        let length = (LENGTH - at) as usize;
        copy_file_range(&source, Some(&mut (1 + at)), &copy, Some(&mut { at }), length).map(|count| count as u64)
    });
    assert!(done > 0 && steps > 0 && error == Errno::NOSPC, "the kernel: {done} bytes in {steps}, {error}");
    drop((source, copy));
    kernel.unmount();

    let fs = open(&ours);
    let source = fs.lookup(fs.root(), b"source").unwrap().inode;
    let check = |name: &str, from: usize, (done, steps, error): (u64, u32, Error), file: &File| {
        assert!(done > 1 << 20 && steps > 0, "{name}: {done} bytes in {steps}");
        assert!(matches!(error, Error::NoSpace), "{name}: {error}");
        assert_eq!(fs.stat(file.inode).unwrap().size, done, "{name}");
        let mut found = vec![0; done as usize];
        assert_eq!(fs.read_at(file.inode, 0, &mut found).unwrap(), found.len());
        assert!(found == bytes[from..from + found.len()], "{name}");
        fs.truncate(file.inode, 0).unwrap();
        fs.sync().unwrap();
    };
    let copy = make(&fs, "our-copy");
    let copied = until_error(|at| fs.copy_range(source, 1 + at, copy.inode, at, LENGTH - at));
    check("copy", 1, copied, &copy);
    let written = make(&fs, "our-file");
    let result = until_error(|at| {
        fs.write_some_at(written.inode, at, &bytes[at as usize..LENGTH as usize]).map(|count| count as u64)
    });
    check("write", 0, result, &written);
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&ours);
}

/// The device fails in the second MiB, or the sharing of the third extent does.
#[test]
fn a_copy_that_fails_half_way_counts_what_it_copied_and_can_go_on() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 320 << 20);
    reference.mkfs(&image, &[]);
    let fs = open(&image);
    let mut source = make(&fs, "source");
    let bytes = contents();
    for at in (0..bytes.len()).step_by(1 << 20) {
        source.write(&fs, at, &bytes[at..bytes.len().min(at + (1 << 20) - 8192)]);
    }
    fs.sync().unwrap();
    let extents = fs.file_extents(source.inode).unwrap().len();
    assert!(extents >= 8, "{extents} extents");
    for (name, tag, nth, skip) in [("copied", DATA_IOERROR, 2, 1), ("shared", BMAP_SHARE, 3, 0)] {
        let mut target = make(&fs, name);
        let before = fs.stat(target.inode).unwrap().mtime;
        std::thread::sleep(std::time::Duration::from_millis(2));
        let length = source.bytes.len() as u64 - skip;
        fs.mount().error_tags.arm(tag, nth);
        let first = fs.copy_range(source.inode, skip, target.inode, 0, length).unwrap();
        assert!(first >= 1 << 20 && first < length, "{name}: {first} of {length}");
        let stat = fs.stat(target.inode).unwrap();
        assert!(stat.size == first && stat.mtime > before, "{name}: {stat:?}");
        let rest = fs.copy_range(source.inode, skip + first, target.inode, first, length - first).unwrap();
        assert_eq!(first + rest, length, "{name}");
        target.bytes = source.bytes[skip as usize..].to_vec();
        target.compare(&fs);
        // A clone has no count to return: it says the error, and what it shared is there.
        if tag == BMAP_SHARE {
            let mut clone = make(&fs, "clone");
            fs.mount().error_tags.arm(tag, nth);
            let result = fs.clone_range(source.inode, 0, clone.inode, 0, 0);
            assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
            let shared = fs.stat(clone.inode).unwrap().size;
            assert!(shared >= 1 << 20 && shared < length, "{shared}");
            clone.bytes = source.bytes[..shared as usize].to_vec();
            clone.compare(&fs);
        }
    }
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
}
