//! Intents of parent pointers: their regions, what the kernel makes of them, and that one that is logged anew
//! keeps the old pointer and the new one apart.

use crate::acl::acl;
use crate::stress::{Image, Watchdog, fill_log};
use crate::{counted, intents, kernels_tree, logged_intents, make_file, set, xattr};
use std::sync::Arc;
use xfskit_engine::dir;
use xfskit_engine::error::Result;
use xfskit_engine::error_tags::LARP;
use xfskit_engine::item::LogVector;
use xfskit_engine::mount::Mount;
use xfskit_engine::parent;
use xfskit_engine::trans::deferred::{StepResult, Turn, Work};
use xfskit_engine::trans::{Reservation, Transaction};
use xfskit_engine::{Caller, RenameFlags, SetMode, Volume, XattrChange};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::FileType;
use xfskit_ondisk::log_items::{AttrIntent, AttrVerb, encode_done};
use xfskit_ondisk::log_record::item_type;

/// The intents of attributes in the log have so many regions each.
fn assert_regions(image: &Image, regions: &[usize]) {
    let Some(logged) = logged_intents(image, "ATTRI:  #regs") else { return };
    let found: Vec<usize> = logged
        .iter()
        .map(|line| {
            let count = line.split("#regs: ").nth(1).and_then(|rest| rest.split_whitespace().next());
            count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        })
        .collect();
    assert_eq!(found, regions, "{logged:?}");
}

/// A pointer that the inode has no room for: the old one goes and the new one is set, in one transaction. What would be
/// left for an intent is a plain set, but nothing is left.
#[test]
fn a_replace_that_finds_no_room_is_one_transaction() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", &[1; 200]);
    let long = "a name that is much too long to be beside the value ".repeat(4);
    let count = counted(&fs, || {
        fs.rename(fs.root(), b"file", fs.root(), long.as_bytes(), RenameFlags::default(), &Caller::root()).unwrap();
    });
    count.expect(&[("attr_fell_no_room", 1), ("transactions", 1), ("intents_whited_out", 0), ("attr_fast_path", 0)]);
    assert_eq!(fs.parents(inode).unwrap(), [(fs.root(), long.clone().into_bytes())]);
    let count = counted(&fs, || fs.sync().unwrap());
    count.expect(&[("intents_logged", 0)]);
    drop(fs);
    // The kernel replays the transaction, and xfs_repair compares the pointer with the name.
    let Some(tree) = kernels_tree(&image) else { return };
    assert!(tree.iter().any(|entry| entry.path.to_str() == Some(long.as_str())));
}

/// Stops after the first link of `work`, and lets the kernel do the rest.
fn stopped(prepare: impl Fn(&Volume), work: impl Fn(&Volume)) -> Image {
    let image = Image::new(64, &[]);
    let fs = image.open_with(intents());
    make_file(&fs, "file");
    prepare(&fs);
    fs.sync().unwrap();
    fs.mount().error_tags.arm(LARP, 1);
    work(&fs);
    assert!(fs.mount().journal.check().is_err(), "the point between the links was passed");
    drop(fs);
    image
}

/// A replace that an intent describes has five regions: the header, both names, both values. A set has three. The
/// attributes leave no room for the new pointer in the inode, so to finish it takes a tree.
#[test]
fn the_kernel_finishes_a_replace_of_five_regions_and_a_set_of_three_that_find_no_room() {
    let fill = |fs: &Volume| set(fs, fs.lookup(fs.root(), b"file").unwrap().inode, "user.a", &[1; 200]);
    let long = "a name that is much too long to be beside the value ".repeat(4);
    let replaced = stopped(fill, |fs| {
        let _ = fs.rename(fs.root(), b"file", fs.root(), long.as_bytes(), RenameFlags::default(), &Caller::root());
    });
    assert_regions(&replaced, &[5]);
    let linked = stopped(fill, |fs| {
        let _ = fs.link(fs.root(), long.as_bytes(), fs.lookup(fs.root(), b"file").unwrap().inode, &Caller::root());
    });
    assert_regions(&linked, &[3]);
    for (image, links) in [(replaced, 1), (linked, 2)] {
        let Some(tree) = kernels_tree(&image) else { return };
        let found = tree.iter().find(|entry| entry.path.to_str() == Some(long.as_str())).expect("the new name");
        assert_eq!(found.links, links);
        let fs = image.open();
        assert_eq!(fs.parents(fs.lookup(fs.root(), long.as_bytes()).unwrap().inode).unwrap().len(), links as usize);
        image.close(fs);
    }
}

/// A batch may change one ACL twice. The second change must find what the first has done, although both have intents
/// that commit together.
#[test]
fn a_queued_update_is_done_before_another_of_the_same_attribute() {
    let image = Image::new(64, &[]);
    let fs = image.open_with(intents());
    let name = b"system.posix_acl_access".to_vec();
    let mut other = acl();
    other[14] = 3;
    let change = |value: Option<&Vec<u8>>| XattrChange { name: name.clone(), value: value.cloned() };
    let cases = [[Some(&acl()), Some(&other)], [Some(&other), None], [None, Some(&other)]];
    for (number, values) in cases.into_iter().enumerate() {
        let inode = make_file(&fs, &format!("file {number}"));
        if values[0].is_none() {
            set(&fs, inode, "system.posix_acl_access", &acl());
        }
        fs.change_xattrs(inode, &values.map(change), SetMode::Any, &Caller::root()).unwrap();
        assert_eq!(fs.get_xattr(inode, &name).ok().as_ref(), values[1], "{number}");
    }
    fs.sync().unwrap();
    drop(fs);
    let Some(tree) = kernels_tree(&image) else { return };
    for (number, values) in cases.into_iter().enumerate() {
        let found = xattr(&tree, &format!("file {number}"), "system.posix_acl_access");
        assert_eq!(found, values[1].map(Vec::as_slice), "{number}");
    }
}

/// An update that writes much log with other transactions, and then stops the filesystem at the next point between two
/// links.
struct FillsLog {
    fs: Arc<Volume>,
    inode: InodeNumber,
}

impl Work for FillsLog {
    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        let (inode, nothing): (_, &[u8]) = (self.inode, &[]);
        let (name, value): (&[u8], &[u8]) = (b"filler", &[7; 500]);
        let verb = AttrVerb::Set;
        let intent = AttrIntent {
            id,
            verb,
            inode,
            generation: 0,
            namespace: 0,
            name,
            value,
            new_name: nothing,
            new_value: nothing,
        };
        intent.encode(|region| copy.push(region));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::ATTRD, id));
    }

    fn step(&mut self, _: &mut Transaction) -> Result<StepResult> {
        fill_log(&self.fs, self.inode)?;
        self.fs.mount().error_tags.arm(LARP, 1);
        Ok(StepResult::Done)
    }

    fn reserve(&self, _: &Mount) -> Reservation {
        Reservation::default()
    }

    fn error_tag(&self) -> &'static str {
        LARP
    }
}

/// The intent of a rename waits behind another piece of work, and is logged anew when its chain has to wait for space.
/// The kernel finishes it from the second copy.
#[test]
fn an_intent_that_is_logged_anew_keeps_old_and_new_apart() {
    let watchdog = Watchdog::new("an intent that is logged anew", 60);
    let image = Image::new(64, &[('b', "size=1024"), ('d', "agcount=2")]);
    let fs = Arc::new(image.open_with(intents()));
    let (inode, other) = (make_file(&fs, "old name"), make_file(&fs, "other"));
    fs.link(fs.root(), b"second name", inode, &Caller::root()).unwrap();
    fs.mount().announce_attr_intents().unwrap();
    let (_, size) = fs.mount().journal.usage();
    let link = Reservation { log_bytes: size as u32 / 3, log_count: 1, blocks: 30, ..Default::default() };
    let mut tx = fs.mount().transaction(link).unwrap();
    let (root_inode, child_inode) = (fs.mount().inode(fs.root()).unwrap(), fs.mount().inode(inode).unwrap());
    let (root, child) = (tx.join_inode(&root_inode), tx.join_inode(&child_inode));
    tx.defer(Turn::First, vec![0], Box::new(FillsLog { fs: Arc::clone(&fs), inode: other }));
    dir::remove(&mut tx, root, b"old name").unwrap();
    dir::add(&mut tx, root, b"quite another name", inode, FileType::Regular).unwrap();
    parent::replace(&mut tx, (root, b"old name"), (root, b"quite another name"), child).unwrap();
    assert!(tx.commit().is_err(), "the filesystem stops before the pointer is replaced");
    assert_eq!(fs.mount().counters.intents_relogged.get(), 1, "that of the pointer");
    drop((root_inode, child_inode));
    drop(Arc::into_inner(fs).expect("the work is done"));
    let kernel = kernels_tree(&image);
    drop(watchdog);
    let Some(tree) = kernel else { return };
    let names: Vec<_> = tree
        .iter()
        .filter(|entry| entry.links == 2 && entry.contents.is_some())
        .filter_map(|entry| entry.path.to_str())
        .collect();
    assert_eq!(names, ["quite another name", "second name"]);
    let fs = image.open();
    let mut pointers: Vec<_> = fs.parents(inode).unwrap().into_iter().map(|(_, name)| name).collect();
    pointers.sort();
    assert_eq!(pointers, [&b"quite another name"[..], b"second name"]);
    image.close(fs);
}
