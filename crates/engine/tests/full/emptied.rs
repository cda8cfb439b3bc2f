//! A full image can be emptied, whatever took the last blocks: what the kernel removes on the same image, xfskit
//! removes as well.

use crate::stress::{Image, fill};
use rustix::fs::{FallocateFlags, fallocate, removexattr};
use std::fs::File;
use std::path::Path;
use xfskit_engine::error_tags::REFUSE_REMOVAL;
use xfskit_engine::mount::BlockPool;
use xfskit_engine::{Caller, Error, Fallocate, MountOptions, NewFile, RenameFlags, SetAttr, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{copy_image, kernel_mount};

/// Extents of the file `scattered`, each a block.
const EXTENTS: u64 = 1500;
const NAMES: usize = 400;

/// What is removed, in this order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Attribute(&'static str, &'static str),
    RenameOver(&'static str, &'static str),
    Directory(&'static str),
    /// Blocks of a file, whole extents.
    Punch(&'static str, u64, u64),
    Truncate(&'static str, u64),
    File(&'static str),
}

const STEPS: [Step; 12] = [
    Step::Attribute("attributes", "user.large"),
    Step::Attribute("attributes", "user.small"),
    Step::RenameOver("new", "old"),
    Step::Directory("empty"),
    Step::Punch("scattered", 10, 300),
    Step::Truncate("scattered", 1200),
    Step::Truncate("scattered", 0),
    Step::Truncate("twin", 33),
    Step::File("twin"),
    Step::File("whole"),
    Step::File("attributes"),
    Step::File("old"),
];

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

fn block_bytes(fs: &Volume) -> u64 {
    fs.statfs().block_bytes.into()
}

fn name_of(number: usize) -> String {
    format!("{number:060}")
}

/// Makes what the steps remove, a directory of many names, and a file that loses its name while it is held.
fn furnish(fs: &Volume) {
    let (block, me) = (block_bytes(fs), Caller::root());
    let scattered = make(fs, "scattered");
    fs.write_at(scattered, 0, &vec![5; (2 * EXTENTS * block) as usize]).unwrap();
    fs.sync().unwrap();
    for at in 0..EXTENTS {
        fs.fallocate(scattered, (2 * at + 1) * block, block, Fallocate::PunchHole).unwrap();
    }
    let files = ["whole", "twin", "third", "pieces", "piece"].map(|name| make(fs, name));
    let [whole, twin, third, pieces, piece] = files;
    fs.write_at(whole, 0, &vec![6; (100 * block) as usize]).unwrap();
    fs.sync().unwrap();
    if fs.shares_blocks() {
        // So many counts that a truncation makes records anew.
        for to in [twin, third] {
            fs.clone_range(whole, 0, to, 0, 0).unwrap();
        }
        for (at, from) in [20, 30, 40, 41].into_iter().enumerate() {
            fs.clone_range(whole, from * block, pieces, 2 * at as u64 * block, block).unwrap();
        }
        fs.clone_range(whole, 41 * block, piece, 0, block).unwrap();
    }
    let attributes = make(fs, "attributes");
    fs.set_xattr(attributes, b"user.large", &[3; 20_000], SetMode::Any, &me).unwrap();
    fs.set_xattr(attributes, b"user.small", &[4; 200], SetMode::Any, &me).unwrap();
    for name in ["old", "new"] {
        let file = make(fs, name);
        fs.write_at(file, 0, &[7; 10_000]).unwrap();
    }
    fs.create(fs.root(), b"empty", &NewFile::dir(0o755), &me).unwrap();
    let many = fs.create(fs.root(), b"many", &NewFile::dir(0o755), &me).unwrap().inode;
    for number in 0..NAMES {
        fs.create(many, name_of(number).as_bytes(), &NewFile::file(0o644), &me).unwrap();
    }
    fs.sync().unwrap();
}

fn remove(fs: &Volume, step: Step) -> Result<(), Error> {
    let (root, block, me) = (fs.root(), block_bytes(fs), Caller::root());
    let number = |name: &str| fs.lookup_number(root, name.as_bytes());
    match step {
        Step::Attribute(file, name) => fs.remove_xattr(number(file)?, name.as_bytes(), SetMode::Any, &me),
        Step::RenameOver(from, to) => {
            fs.rename(root, from.as_bytes(), root, to.as_bytes(), RenameFlags::default(), &me)
        }
        Step::Directory(name) => fs.rmdir(root, name.as_bytes(), &me),
        Step::Punch(name, at, count) => fs.fallocate(number(name)?, at * block, count * block, Fallocate::PunchHole),
        Step::Truncate(name, blocks) => fs.truncate(number(name)?, blocks * block),
        Step::File(name) => fs.unlink(root, name.as_bytes(), &me),
    }
}

fn remove_by_the_kernel(root: &Path, block: u64, step: Step) -> std::io::Result<()> {
    let open = |name: &str| File::options().write(true).open(root.join(name));
    match step {
        Step::Attribute(file, name) => Ok(removexattr(root.join(file), name)?),
        Step::RenameOver(from, to) => std::fs::rename(root.join(from), root.join(to)),
        Step::Directory(name) => std::fs::remove_dir(root.join(name)),
        Step::Punch(name, at, count) => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(open(name)?, mode, at * block, count * block)?)
        }
        Step::Truncate(name, blocks) => open(name)?.set_len(blocks * block),
        Step::File(name) => std::fs::remove_file(root.join(name)),
    }
}

/// Takes all blocks that write-outs may take, as other operations would, but that these never give them back.
fn take_reserve(fs: &Volume) -> u64 {
    let mut taken = 0;
    for step in [4096, 64, 1] {
        while fs.mount().space.reserve_blocks(step, BlockPool::Reserve) {
            taken += step;
        }
    }
    taken
}

/// Removes all that was made; the filesystem lives, and its space is there again.
fn empty(fs: &Volume, further: &[String]) {
    for step in STEPS {
        remove(fs, step).unwrap_or_else(|error| panic!("{step:?}: {error}; {:?}", fs.statfs()));
    }
    let me = Caller::root();
    let many = fs.lookup_number(fs.root(), b"many").unwrap();
    // In an order that takes blocks out of the middle of the directory.
    for number in (0..NAMES).map(|at| at * 149 % NAMES) {
        fs.unlink(many, name_of(number).as_bytes(), &me).unwrap_or_else(|error| panic!("name {number}: {error}"));
    }
    fs.rmdir(fs.root(), b"many", &me).unwrap();
    for name in ["scattered", "third", "pieces", "piece"].into_iter().chain(further.iter().map(String::as_str)) {
        fs.unlink(fs.root(), name.as_bytes(), &me).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    fs.sync().unwrap();
    fs.mount().journal.check().unwrap();
    assert!(fs.list_dir(fs.root()).unwrap().is_empty());
}

/// Does the steps by the kernel in a copy of the image; all that it can remove, xfskit has to remove.
fn kernel_steps(image: &Image, block: u64) {
    let copy = image.path.with_extension("kernel");
    copy_image(&image.path, &copy);
    let Some(kernel) = kernel_mount(&copy) else { return };
    for step in STEPS {
        let done = remove_by_the_kernel(kernel.path(), block, step);
        // For these the kernel reserves blocks that every operation may take, and may find none: for a hole, for an
        // attribute, and for a rename where inodes know their names.
        let is_refused = done.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull);
        let may_refuse = matches!(step, Step::Punch(..) | Step::RenameOver(..) | Step::Attribute(..));
        assert!(done.is_ok() || may_refuse && is_refused, "{step:?}: {done:?}");
    }
    kernel.unmount();
    std::fs::remove_file(copy).unwrap();
}

type Shape = (u64, &'static [(char, &'static str)]);

const SHAPES: [Shape; 5] = [
    (64, &[('m', "rmapbt=0"), ('d', "agcount=1")]),
    (64, &[('m', "rmapbt=1"), ('d', "agcount=1")]),
    (64, &[('d', "agcount=4")]),
    (48, &[('b', "size=1024"), ('d', "agcount=2"), ('n', "parent=1")]),
    (48, &[('b', "size=1024"), ('d', "agcount=1"), ('m', "rmapbt=0,reflink=0"), ('n', "parent=0")]),
];

/// Clones take no blocks for contents; if they took what is kept for removals, nothing could be removed any more.
#[test]
fn after_clones_until_there_is_no_space_everything_can_be_removed() {
    for (mib, arguments) in SHAPES {
        let image = Image::new(mib, arguments);
        let fs = image.open();
        furnish(&fs);
        let mut names: Vec<_> = (0..60).map(|number| format!("clone-{number}")).collect();
        let clones: Vec<_> = names.iter().map(|name| make(&fs, name)).collect();
        let filler = make(&fs, "filler");
        fs.sync().unwrap();
        fill(&fs, filler);
        names.push("filler".into());
        let scattered = fs.lookup_number(fs.root(), b"scattered").unwrap();
        if fs.shares_blocks() {
            let refused = clones.iter().find_map(|clone| fs.clone_range(scattered, 0, *clone, 0, 0).err());
            assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
            // The rest goes bit by bit.
            while fs.clone_range(scattered, 0, clones[59], 0, 0).is_ok() {}
        }
        let taken = take_reserve(&fs);
        assert!(taken >= fs.statfs().blocks / 50, "clones leave the reserve pool alone: {taken} blocks of it are left");
        fs.mount().space.give_back_blocks(taken);
        fs.sync().unwrap();
        kernel_steps(&image, block_bytes(&fs));
        empty(&fs, &names);
        image.close(fs);
    }
}

/// Nothing is left of the reserve pool: that is what write-outs may take.
#[test]
fn without_the_reserve_pool_everything_can_be_removed() {
    for (mib, arguments) in SHAPES {
        let image = Image::new(mib, arguments);
        let fs = image.open();
        furnish(&fs);
        let held = make(&fs, "held");
        fs.write_at(held, 0, &[5; 10_000]).unwrap();
        fs.sync().unwrap();
        let reference = fs.reference(held).unwrap();
        fs.unlink(fs.root(), b"held", &Caller::root()).unwrap();
        let (_, before) = fs.mount().space.inodes();
        let taken = take_reserve(&fs);
        // Times wait in memory, and take no blocks to be written out.
        let old = fs.lookup_number(fs.root(), b"old").unwrap();
        fs.write_at(old, 0, &[8; 100]).unwrap();
        fs.fsync(old).unwrap();
        // A hole in an extent may make the map larger, for good: it is refused, before anything is changed.
        let (whole, block) = (fs.lookup_number(fs.root(), b"whole").unwrap(), block_bytes(&fs));
        let cut = fs.fallocate(whole, 10 * block, 10 * block, Fallocate::PunchHole);
        assert!(matches!(cut, Err(Error::NoSpace)), "{cut:?}");
        fs.mount().journal.check().unwrap();
        drop(reference);
        let (_, after) = fs.mount().space.inodes();
        assert_eq!(after, before + 1, "the file without a name is freed with its last holder: {arguments:?}");
        empty(&fs, &[]);
        fs.mount().space.give_back_blocks(taken);
        image.close(fs);
    }
}

/// Conversions of preallocated blocks make the map of the file as large as the reserve pool.
#[test]
fn after_a_preallocated_file_was_written_here_and_there_everything_can_be_removed() {
    let image = Image::new(1100, &[('b', "size=1024")]);
    let fs = image.open();
    furnish(&fs);
    let file = make(&fs, "preallocated");
    fill(&fs, file);
    let size = fs.stat(file).unwrap().size;
    let failed = (0..size).step_by(2048).find_map(|at| fs.write_at(file, at, &[7; 1024]).err());
    assert!(matches!(failed, Some(Error::NoSpace)), "the case that is meant: {failed:?}");
    assert!(matches!(fs.sync(), Err(Error::NoSpace)), "what is behind that cannot be written out either");
    kernel_steps(&image, 1024);
    fs.truncate(file, 0).unwrap();
    empty(&fs, &["preallocated".into()]);
    image.close(fs);
}

/// As above, without the truncation, and the power fails: recovery and the kernel go on with the image as it is.
#[test]
fn an_image_without_the_reserve_pool_that_the_power_cut_is_opened_and_emptied() {
    let image = Image::new(1100, &[('b', "size=1024")]);
    let fs = image.open();
    furnish(&fs);
    let (file, held) = (make(&fs, "preallocated"), make(&fs, "held"));
    fs.write_at(held, 0, &[5; 10_000]).unwrap();
    fs.sync().unwrap();
    let reference = fs.reference(held).unwrap();
    fs.unlink(fs.root(), b"held", &Caller::root()).unwrap();
    fill(&fs, file);
    let size = fs.stat(file).unwrap().size;
    (0..size).step_by(2048).find_map(|at| fs.write_at(file, at, &[7; 1024]).err()).expect("the reserve pool is empty");
    let _ = fs.sync();
    std::mem::forget(reference);
    drop(fs);
    kernel_steps(&image, 1024);
    let fs = image.open();
    empty(&fs, &["preallocated".into()]);
    image.close(fs);
}

/// An inode without a name that cannot be freed keeps nobody from the image.
#[test]
fn an_image_with_an_inode_that_there_is_no_space_to_free_is_opened() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let held = make(&fs, "held");
    fs.write_at(held, 0, &[5; 10_000]).unwrap();
    fs.sync().unwrap();
    let reference = fs.reference(held).unwrap();
    fs.unlink(fs.root(), b"held", &Caller::root()).unwrap();
    fs.sync().unwrap();
    let (before, (_, free)) = (fs.statfs(), fs.mount().space.inodes());
    std::mem::forget(reference);
    drop(fs);
    let fs = image.open_with(MountOptions { error_tags: vec![(REFUSE_REMOVAL, 1)], ..MountOptions::default() });
    assert_eq!(fs.mount().space.inodes().1, free, "it waits");
    fs.sync().unwrap();
    let after = fs.statfs();
    assert_eq!(fs.mount().space.inodes().1, free + 1, "a sync has freed it");
    assert!(after.free_blocks >= before.free_blocks + 3);
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    kernel.unmount();
}

/// A cut in the middle of a record whose end is shared in many pieces, in more links than one: each frees the part at
/// the record's end, so that none has to cut it in two.
#[test]
fn without_the_reserve_pool_a_file_that_is_shared_in_pieces_is_truncated_within_an_extent() {
    const BLOCKS: u64 = 400;
    let image = Image::new(64, &[('d', "agcount=1")]);
    let fs = image.open();
    let (file, clone, block) = (make(&fs, "file"), make(&fs, "clone"), block_bytes(&fs));
    fs.write_at(file, 0, &vec![7; (BLOCKS * block) as usize]).unwrap();
    fs.fsync(file).unwrap();
    for at in (0..BLOCKS).rev().step_by(2).take(40) {
        fs.clone_range(file, at * block, clone, at * block, block).unwrap();
    }
    fs.sync().unwrap();
    let taken = take_reserve(&fs);
    let size = SetAttr { size: Some(10 * block), ..SetAttr::default() };
    fs.set_attr(file, &size, &Caller::root()).unwrap();
    let stat = fs.stat(file).unwrap();
    assert_eq!((stat.size, stat.blocks * 512), (10 * block, 10 * block));
    fs.mount().journal.check().unwrap();
    fs.mount().space.give_back_blocks(taken);
    image.close(fs);
}
