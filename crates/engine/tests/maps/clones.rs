//! Clones that end before their time, by an error, and by a power cut after which the kernel recovers the log; ends of
//! shared files, as the kernel has them.

use super::stress::Image;
use std::path::Path;
use std::process::Command;
use xfskit_engine::error_tags::{BMAP_SHARE, ROLL};
use xfskit_engine::{Caller, Error, NewFile, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::kernel_mount;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 100;

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

/// Bytes of which none is zero, and which differ from block to block.
fn pattern() -> Vec<u8> {
    (0..BLOCKS).flat_map(|block| [block as u8 + 1; BLOCK as usize]).collect()
}

/// Two files that share all their blocks. Further files share some of them, and so the blocks of the second, once they
/// have lost a reference, have more records of reference counts than one link takes.
fn twins(fs: &Volume) -> [InodeNumber; 2] {
    let [source, target, third, fourth, fifth] = ["s", "t", "u", "v", "w"].map(|name| make(fs, name));
    fs.write_at(source, 0, &pattern()).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.file_extents(source).unwrap().len(), 1);
    for other in [target, third] {
        fs.clone_range(source, 0, other, 0, 0).unwrap();
    }
    for (at, block) in [20, 30, 40, 41, 44, 46].into_iter().enumerate() {
        fs.clone_range(source, block * BLOCK, fourth, 2 * at as u64 * BLOCK, BLOCK).unwrap();
    }
    fs.clone_range(source, 41 * BLOCK, fifth, 0, BLOCK).unwrap();
    fs.sync().unwrap();
    [source, target]
}

fn clone_middle(fs: &Volume, [source, target]: [InodeNumber; 2]) -> xfskit_engine::Result<()> {
    fs.clone_range(source, 10 * BLOCK, target, 10 * BLOCK, 40 * BLOCK)
}

/// Blocks of the target that have other bytes than it had and was to get, which are the same.
fn lost_blocks(found: &[u8]) -> Vec<usize> {
    let expected = pattern();
    assert_eq!(found.len(), expected.len());
    let blocks = found.chunks(BLOCK as usize).zip(expected.chunks(BLOCK as usize)).enumerate();
    blocks.filter(|(_, (found, expected))| found != expected).map(|(block, _)| block).collect()
}

#[test]
fn a_clone_that_fails_leaves_no_hole_where_there_were_contents() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let files = twins(&fs);
    fs.mount().error_tags.arm(BMAP_SHARE, 2);
    clone_middle(&fs, files).unwrap_err();
    fs.mount().journal.check().unwrap();
    let mut found = vec![0; (BLOCKS * BLOCK) as usize];
    assert_eq!(fs.read_at(files[1], 0, &mut found).unwrap(), found.len());
    image.close(fs);
    assert_eq!(lost_blocks(&found), []);
}

#[test]
fn a_clone_that_the_power_cuts_leaves_no_hole_where_there_were_contents() {
    for links in 1.. {
        let image = Image::new(64, &[]);
        let fs = image.open();
        let files = twins(&fs);
        fs.mount().error_tags.arm(ROLL, links);
        let done = clone_middle(&fs, files);
        if fs.mount().journal.check().is_ok() {
            done.unwrap();
            assert!(links > 2, "a clone of several links");
            break;
        }
        drop(fs);
        let Some(kernel) = kernel_mount(&image.path) else { return };
        let found = std::fs::read(kernel.path().join("t")).unwrap();
        kernel.unmount();
        image.assert_sound();
        assert_eq!(lost_blocks(&found), [], "after link {links}");
    }
}

/// What a python program prints that gets these arguments.
fn python(program: &str, arguments: &[&Path]) -> String {
    let output = Command::new("python3").arg("-c").arg(program).args(arguments).output().expect("python3");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Counts the bytes `x` behind the hundredth that a map of a file's first block into memory shows. They are on the
/// device: the kernel has read the block from there.
const COUNT_MAPPED: &str = "\
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
file = os.open(sys.argv[1], os.O_RDONLY)
print(ctypes.string_at(libc.mmap(None, 4096, 1, 1, file, 0), 4096)[100:].count(b'x'))
";

#[test]
fn a_truncated_file_that_shared_its_last_block_ends_with_zeros_on_the_device() {
    let image = Image::new(320, &[]);
    let fs = image.open();
    let (first, second) = (make(&fs, "first"), make(&fs, "second"));
    fs.write_at(first, 0, &[b'x'; BLOCK as usize]).unwrap();
    fs.clone_range(first, 0, second, 0, 0).unwrap();
    fs.truncate(second, 100).unwrap();
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let mapped = |name: &str| python(COUNT_MAPPED, &[&kernel.path().join(name)]);
    assert_eq!((mapped("second").as_str(), mapped("first").as_str()), ("0", "3996"));
    assert_eq!(std::fs::read(kernel.path().join("second")).unwrap(), [b'x'; 100]);
    kernel.unmount();
}

/// Clones no bytes at the end of a file to an offset, and prints the error's number or 0.
const CLONE_NOTHING: &str = "\
import fcntl, os, struct, sys
source, target = (os.open(name, os.O_RDWR) for name in sys.argv[1:3])
for at, to in ((5000, 0), (5000, 77), (5001, 0), (77, 0)):
    try:
        fcntl.ioctl(target, 0x4020940d, struct.pack('qQQQ', source, at, 0, to))
        print('ok', end=' ')
    except OSError as error:
        print('EINVAL' if error.errno == 22 else error, end=' ')
";

#[test]
fn a_clone_of_no_bytes_is_taken_where_the_kernel_takes_it() {
    let image = Image::new(320, &[]);
    let fs = image.open();
    let (first, second) = (make(&fs, "first"), make(&fs, "second"));
    fs.write_at(first, 0, &[b'x'; 5000]).unwrap();
    let clone = |(at, to)| match fs.clone_range(first, at, second, to, 0) {
        Ok(()) => "ok",
        Err(Error::Invalid(_)) => "EINVAL",
        Err(error) => panic!("{error}"),
    };
    let ours = [(5000, 0), (5000, 77), (5001, 0), (77, 0)].map(clone);
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let [first, second] = ["first", "second"].map(|name| kernel.path().join(name));
    assert_eq!(ours.join(" "), python(CLONE_NOTHING, &[&first, &second]));
    kernel.unmount();
}
