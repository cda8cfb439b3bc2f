//! Inodes without a name that are freed together.

use crate::stress::Image;
use crate::{counted, kernels_tree, make_file, set};
use xfskit_engine::{Caller, Error, MountOptions, Volume};
use xfskit_ondisk::InodeNumber;

const GROUP: usize = 32;

fn opened() -> (Image, Volume) {
    let image = Image::new(400, &[]);
    let fs = image.open_with(MountOptions::default());
    (image, fs)
}

/// Makes files with an attribute each, and holds them while they lose their names.
fn held(fs: &Volume, count: usize) -> Vec<InodeNumber> {
    let hold = |n: usize| {
        let name = format!("file{n}");
        let inode = make_file(fs, &name);
        set(fs, inode, "user.a", &[7; 64]);
        fs.add_reference(inode).unwrap();
        fs.unlink(fs.root(), name.as_bytes(), &Caller::root()).unwrap();
        inode
    };
    (0..count).map(hold).collect()
}

fn let_go(fs: &Volume, inodes: &[InodeNumber]) {
    inodes.iter().for_each(|inode| fs.drop_references_lazily(*inode, 1).unwrap());
}

fn is_gone(fs: &Volume, inode: InodeNumber) -> bool {
    matches!(fs.stat(inode), Err(Error::Stale(_)))
}

#[test]
fn a_group_of_nameless_inodes_is_freed_in_one_transaction() {
    let (image, fs) = opened();
    let before = fs.statfs();
    // More than two chunks, so that whole chunks go with a group.
    let inodes = held(&fs, 5 * GROUP);
    let work = counted(&fs, || let_go(&fs, &inodes));
    assert!((5..=10).contains(&work.get("transactions")), "{work:?}");
    assert!(inodes.iter().all(|inode| is_gone(&fs, *inode)));
    let after = fs.statfs();
    assert_eq!((before.free_blocks, before.free_inodes), (after.free_blocks, after.free_inodes));
    fs.sync().unwrap();
    drop(fs);
    kernels_tree(&image);
}

#[test]
fn fewer_nameless_inodes_wait_until_they_are_asked_for() {
    let (image, fs) = opened();
    let inodes = held(&fs, 3);
    counted(&fs, || let_go(&fs, &inodes)).expect(&[("transactions", 0)]);
    assert!(inodes.iter().all(|inode| fs.stat(*inode).unwrap().links == 0));
    // One that is held again is not freed with the others, but when it is let go.
    fs.add_reference(inodes[1]).unwrap();
    counted(&fs, || fs.free_waiting().unwrap()).expect(&[("transactions", 1)]);
    assert_eq!([0, 1, 2].map(|n| is_gone(&fs, inodes[n])), [true, false, true]);
    let_go(&fs, &inodes[1..2]);
    fs.sync().unwrap();
    assert!(is_gone(&fs, inodes[1]));
    let_go(&fs, &held(&fs, 2));
    fs.unmount().unwrap();
    image.assert_sound();
}

#[test]
fn nameless_inodes_with_contents_do_not_wait() {
    let (_image, fs) = opened();
    for (name, is_written_out) in [("in memory", false), ("with blocks", true)] {
        let inode = make_file(&fs, name);
        fs.write_at(inode, 0, &[1; 10_000]).unwrap();
        if is_written_out {
            fs.sync().unwrap();
        }
        fs.add_reference(inode).unwrap();
        fs.unlink(fs.root(), name.as_bytes(), &Caller::root()).unwrap();
        let_go(&fs, &[inode]);
        assert!(is_gone(&fs, inode), "{name}");
    }
}

/// They are on the unlinked lists, where recovery looks.
#[test]
fn a_crash_leaves_nameless_inodes_that_wait_to_recovery() {
    let (image, fs) = opened();
    let inodes = held(&fs, 5);
    let_go(&fs, &inodes);
    // It makes what was done durable, and frees nothing: a sync of all would.
    fs.fsync(fs.root()).unwrap();
    assert!(!is_gone(&fs, inodes[0]));
    drop(fs);
    kernels_tree(&image);
}
