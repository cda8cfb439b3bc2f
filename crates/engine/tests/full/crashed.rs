//! The power fails on an image that is full: recovery finds the blocks that it needs, and an inode without a name that
//! there is no space to free keeps nobody from the image. The kernel recovers copies of the same images.

use crate::stress::{Image, fill};
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::error_tags::{LARP, REFUSE_REMOVAL};
use xfskit_engine::mount::BlockPool;
use xfskit_engine::{AttrLogging, AttrPath, Caller, Error, MountOptions, NewFile, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{TreeEntry, copy_image, kernel_mount};

const NAMES: u8 = 20;
const REMOVED: &str = "user.7";
const CONTENTS: usize = 30_000;

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

/// Takes all blocks that write-outs may take: conversions of preallocated blocks make the map of the file as large as
/// the reserve pool. What waits in memory keeps blocks, so the image is opened again, and as little as can be waits.
fn empty_reserve(image: &Image, fs: Volume, filler: InodeNumber) -> Volume {
    fill(&fs, filler);
    let size = fs.stat(filler).unwrap().size;
    let failed = (0..size).step_by(2048).find_map(|at| fs.write_at(filler, at, &[7; 1024]).err());
    assert!(matches!(failed, Some(Error::NoSpace)), "the case that is meant: {failed:?}");
    assert!(matches!(fs.sync(), Err(Error::NoSpace)), "what is behind that cannot be written out either");
    drop(fs);
    let fs = image.open_with(by_intents());
    let behind = (0..size / 2048).rev().map(|number| number * 2048);
    let failed = behind.enumerate().find_map(|(count, at)| {
        let written = fs.write_at(filler, at, &[7; 1024]);
        if count % 16 == 15 { written.and_then(|_| fs.fsync(filler)).err() } else { written.map(drop).err() }
    });
    assert!(matches!(failed, Some(Error::NoSpace)), "{failed:?}");
    drop(fs);
    let fs = image.open_with(by_intents());
    let left = (0..).take_while(|_| fs.mount().space.reserve_blocks(1, BlockPool::Reserve)).count();
    assert!(left < 40, "{left} blocks of the reserve pool are left, and a write-out could begin");
    fs.mount().space.give_back_blocks(left as u64);
    fs
}

/// What the kernel finds in a copy of the image, which it recovers. Nothing without a kernel.
fn kernel_tree(path: &Path) -> Option<Vec<TreeEntry>> {
    let copy = path.with_extension("kernel");
    copy_image(path, &copy);
    let kernel = kernel_mount(&copy)?;
    let tree = kernel.into_tree();
    std::fs::remove_file(copy).unwrap();
    Some(tree)
}

fn by_intents() -> MountOptions {
    MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..MountOptions::default() }
}

fn set_attributes(fs: &Volume, file: InodeNumber) {
    let me = Caller::root();
    for number in 0..NAMES {
        fs.set_xattr(file, format!("user.{number}").as_bytes(), &[number; 600], SetMode::Any, &me).unwrap();
    }
    fs.set_xattr(file, b"user.long", &[7; 20_000], SetMode::Any, &me).unwrap();
}

/// An image on which the removal of an attribute was cut off behind its intent.
fn cut_off_removal(arguments: &[(char, &str)], name: &str) -> Image {
    let image = Image::new(1100, arguments);
    let fs = image.open_with(by_intents());
    let (file, filler) = (make(&fs, "file"), make(&fs, "filler"));
    set_attributes(&fs, file);
    let fs = empty_reserve(&image, fs, filler);
    fs.mount().error_tags.arm(LARP, 1);
    fs.remove_xattr(file, name.as_bytes(), SetMode::Any, &Caller::root()).unwrap_err();
    fs.mount().journal.check().unwrap_err();
    image
}

#[test]
fn the_removal_of_an_attribute_is_finished_on_an_image_without_the_reserve_pool() {
    for (arguments, name) in [
        (&[('b', "size=1024")][..], REMOVED),
        (&[('b', "size=1024"), ('d', "agcount=2"), ('n', "parent=0")], "user.long"),
    ] {
        let image = cut_off_removal(arguments, name);
        let expected = kernel_tree(&image.path);
        let fs = image.open();
        let file = fs.lookup_number(fs.root(), b"file").unwrap();
        let names = fs.list_xattrs(file).unwrap();
        assert!(names.len() == usize::from(NAMES) && !names.contains(&name.as_bytes().to_vec()), "{name}: {names:?}");
        assert_eq!(fs.recovery_report().map(|report| report.intents), Some(1), "{name}");
        image.close(fs);
        let found = kernel_tree(&image.path);
        assert!(found == expected, "{name}: the kernel has recovered another tree");
    }
}

/// A full image with an inode without a name, whose holder the power cut took away, and with the intent of a removal
/// in its log. Returns its number of free inodes.
fn image_with_orphan(arguments: &[(char, &str)]) -> (Image, u64) {
    let image = Image::new(64, arguments);
    let fs = image.open_with(by_intents());
    let (file, filler, held) = (make(&fs, "file"), make(&fs, "filler"), make(&fs, "held"));
    set_attributes(&fs, file);
    fs.write_at(file, 0, &[9; CONTENTS]).unwrap();
    fs.write_at(held, 0, &[5; 10_000]).unwrap();
    fs.sync().unwrap();
    let reference = fs.reference(held).unwrap();
    fs.unlink(fs.root(), b"held", &Caller::root()).unwrap();
    fill(&fs, filler);
    let (_, free_inodes) = fs.mount().space.inodes();
    std::mem::forget(reference);
    fs.mount().error_tags.arm(LARP, 1);
    fs.remove_xattr(file, REMOVED.as_bytes(), SetMode::Any, &Caller::root()).unwrap_err();
    fs.mount().journal.check().unwrap_err();
    (image, free_inodes)
}

/// What opens the image to read recovers it in memory, and frees the inode there, or leaves it if there is no space.
/// Either way the image shows what the kernel shows, and is not written.
#[test]
fn a_full_image_with_an_inode_without_a_name_is_opened_to_read() {
    // Refused twice: while it is opened, and when what is in memory is closed.
    let refused = [(REFUSE_REMOVAL, 1), (REFUSE_REMOVAL, 1)];
    for arguments in [&[('d', "agcount=1")][..], &[('b', "size=1024"), ('d', "agcount=2")]] {
        let (image, free_inodes) = image_with_orphan(arguments);
        let before = std::fs::read(&image.path).unwrap();
        let expected = kernel_tree(&image.path);
        for (tags, freed) in [(&[][..], 1), (&refused[..1], 1), (&refused[..], 0)] {
            let options = MountOptions { error_tags: tags.to_vec(), ..MountOptions::read_only() };
            let device = Arc::new(FileDevice::open(&image.path, Access::Read).unwrap());
            let fs = Volume::open(device, options).unwrap();
            assert_eq!(fs.recovery_report().map(|report| report.intents), Some(1));
            assert_eq!(fs.mount().space.inodes().1, free_inodes + freed, "{tags:?}, {arguments:?}");
            let listed = fs.list_dir(fs.root()).unwrap();
            for entry in &listed {
                let stat = fs.stat(entry.inode).unwrap();
                let names = fs.list_xattrs(entry.inode).unwrap().len();
                let is_same = |other: &TreeEntry| {
                    other.path.as_os_str().as_encoded_bytes() == &entry.name[..]
                        && (other.size, other.xattrs.len()) == (stat.size, names)
                };
                assert!(expected.as_ref().is_none_or(|tree| tree.iter().any(is_same)), "{entry:?}");
            }
            assert!(expected.as_ref().is_none_or(|tree| tree.len() == listed.len() + 1), "{expected:?}");
            let mut contents = vec![0; 2 * CONTENTS];
            let file = fs.lookup_number(fs.root(), b"file").unwrap();
            assert!(fs.get_xattr(file, REMOVED.as_bytes()).is_err(), "{tags:?}: the removal was not finished");
            assert_eq!(fs.read_at(file, 0, &mut contents).unwrap(), CONTENTS);
            assert!(contents[..CONTENTS].iter().all(|byte| *byte == 9));
            drop(fs);
            assert!(std::fs::read(&image.path).unwrap() == before, "an image that is opened to read is not written");
        }
        // To write, the inode that was refused waits, and whoever makes room gets its space, too.
        let fs = image.open_with(MountOptions { error_tags: refused[..1].to_vec(), ..MountOptions::default() });
        assert_eq!(fs.mount().space.inodes().1, free_inodes);
        fs.unlink(fs.root(), b"filler", &Caller::root()).unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.mount().space.inodes().1, free_inodes + 2, "a sync has freed it: {arguments:?}");
        image.close(fs);
    }
}
