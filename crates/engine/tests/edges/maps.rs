//! Extent maps that are damaged or reach behind every file.

use crate::{MEBIBYTE, make, open, stress};
use xfskit_engine::{Caller, Error, RenameFlags, Seek, Volume};
use xfskit_ondisk::InodeNumber;

#[test]
fn a_map_that_reaches_behind_the_largest_size_is_no_hang() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    for far in [(1u64 << 52) + 5, 1 << 52, (1 << 53) + 1] {
        let image = scratch.image("a.img", 320 << 20);
        reference.tool_output("mkfs.xfs", ["-q".as_ref(), image.as_os_str()]);
        let fs = open(&image);
        let file = make(&fs, "one");
        fs.write_at(file, 0, &[1; 4096]).unwrap();
        fs.truncate(file, MEBIBYTE as u64).unwrap();
        fs.unmount().unwrap();
        let (inode, change) = (format!("inode {}", file.0), format!("write u3.bmx[0].startoff {far}"));
        reference.tool_output("xfs_db", ["-x", "-c", &inode, "-c", &change, image.to_str().unwrap()]);
        let fs = open(&image);
        let mut bytes = vec![9; MEBIBYTE + 1];
        assert_eq!(fs.read_at(file, 0, &mut bytes).unwrap(), MEBIBYTE);
        assert!(bytes[..MEBIBYTE].iter().all(|byte| *byte == 0));
        assert!(matches!(fs.seek(file, 0, Seek::Data), Err(Error::NoMoreData)));
        assert_eq!(fs.seek(file, 0, Seek::Hole).unwrap(), 0);
        assert!(fs.file_extents(file).unwrap().len() < 2);
        fs.unmount().unwrap();
        std::fs::remove_file(&image).unwrap();
    }
}

/// The name goes, and that the file's blocks cannot be found is said at the end. The image can be opened to write all
/// the same, and the kernel mounts it.
#[test]
fn a_file_with_a_damaged_map_can_be_removed_and_the_image_opened_again() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let [file, other] = ["file", "other"].map(|name| make(&fs, name));
    (0..400).for_each(|n| fs.write_at(file, n * 8192, &[7; 4096]).unwrap());
    image.close(fs);
    let mut bytes = std::fs::read(&image.path).unwrap();
    let block = bytes.chunks(4096).position(|block| block.starts_with(b"BMA3")).expect("a block of the map");
    bytes[block * 4096 + 300] ^= 1;
    let is_corrupt = |result: Result<(), Error>| {
        assert!(matches!(&result, Err(Error::Corrupt(corruption)) if corruption.owner == Some(file.0)), "{result:?}");
    };
    type Change = fn(&Volume, InodeNumber);
    let changes: [Change; 3] = [
        |fs, _| fs.unlink(fs.root(), b"file", &Caller::root()).unwrap(),
        |fs, _| {
            let root = fs.root();
            fs.rename(root, b"other", root, b"file", RenameFlags::default(), &Caller::root()).unwrap();
        },
        |fs, file| {
            fs.add_reference(file).unwrap();
            fs.unlink(fs.root(), b"file", &Caller::root()).unwrap();
            fs.drop_references(file, 1).unwrap();
        },
    ];
    for change in changes {
        std::fs::write(&image.path, &bytes).unwrap();
        let fs = image.open();
        change(&fs, file);
        fs.sync().unwrap();
        is_corrupt(fs.unmount());
        let fs = image.open();
        fs.write_at(other, 0, &[1; 10]).unwrap();
        fs.unmount().unwrap();
        if let Some(mount) = xfskit_testkit::kernel_mount(&image.path) {
            mount.unmount();
        }
    }
}
