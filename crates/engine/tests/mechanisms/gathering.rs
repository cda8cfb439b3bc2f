//! The gathering checkpoint: what it counts, and that new metadata waits for it where it gives up the same blocks.

use crate::stress::{DIR, FILE, Image};
use crate::{counted, make, make_file, set};
use xfskit_engine::{Caller, Permissions, SetAttr, SetMode};

#[test]
fn an_item_is_logged_once_and_relogged_until_its_checkpoint_is_written() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let file = make_file(&fs, "file");
    fs.sync().unwrap();
    let change = |mode| {
        let change = SetAttr { permissions: Some(Permissions::new(mode)), ..Default::default() };
        counted(&fs, || fs.set_attr(file, &change, &Caller::root()).map(drop).unwrap())
    };
    change(0o600).expect(&[("items_logged", 1), ("items_relogged", 0)]);
    change(0o640).expect(&[("items_logged", 0), ("items_relogged", 1)]);
    fs.sync().unwrap();
    change(0o600).expect(&[("items_logged", 1), ("items_relogged", 0)]);
    image.close(fs);
}

/// A leaf of attributes goes, and its block becomes another file's: the record that cancels it must be in the log
/// before. No other new block waits.
#[test]
fn only_a_block_that_was_given_up_lately_waits_for_the_checkpoint() {
    let image = Image::new(64, &[('d', "agcount=2")]);
    let fs = image.open();
    // Directories are spread over the allocation groups.
    let dirs = (0..8).map(|number| make(&fs, fs.root(), &format!("dir {number}"), DIR | 0o755));
    let dir = dirs.max_by_key(|dir| dir.0).expect("there are eight");
    let [first, second, third] = ["first", "second", "third"].map(|name| make_file(&fs, name));
    let far = make(&fs, dir, "far", FILE | 0o644);
    let set_long = |file| counted(&fs, || set(&fs, file, "user.a", &[7; 3000]));
    let remove = |file| fs.remove_xattr(file, b"user.a", SetMode::Any, &Caller::root()).unwrap();
    fs.sync().unwrap();
    set_long(first).expect(&[("checkpoints", 0)]);
    fs.sync().unwrap();
    remove(first);
    set_long(far).expect(&[("checkpoints", 0)]);
    set_long(second).expect(&[("checkpoints", 1)]);
    fs.sync().unwrap();
    remove(second);
    fs.sync().unwrap();
    set_long(third).expect(&[("checkpoints", 0)]);
    image.close(fs);
}

/// No call asks for a checkpoint, and the log is far from full.
#[test]
fn a_commit_writes_the_checkpoint_that_has_grown_large() {
    let image = Image::new(160, &[('l', "size=16m")]);
    let fs = image.open();
    let count = counted(&fs, || (0..24_000).for_each(|number| _ = make_file(&fs, &format!("file {number}"))));
    assert!(count.get("checkpoints") > 0, "{count:?}");
    assert_eq!(count.get("tail_pushes"), 0);
    image.close(fs);
}
