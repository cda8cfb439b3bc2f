//! Renames of all kinds.

use crate::errno::{EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EOPNOTSUPP, ESTALE};
use crate::given::{
    EXCHANGE, NO_REPLACE, PLAIN, WHITEOUT, bytes, cases, dir, file, file_with, list, refused, rename, stat,
};
use xfskit_vfs::{Caller, FileType, RenameFlags, Volume};

cases!(Volume:
    a_name_moves_within_a_directory_and_between_two,
    a_directory_moves_with_its_parent,
    a_rename_replaces_a_file,
    a_rename_replaces_an_empty_directory,
    a_rename_replaces_only_its_own_kind,
    a_rename_of_two_names_of_a_file_does_nothing,
    a_replaced_file_stays_while_it_has_references,
    a_rename_can_refuse_to_replace,
    an_exchange_swaps_names,
    an_exchange_of_a_file_and_a_directory_counts_links,
    an_exchange_needs_two_names_and_no_other_flag,
    a_rename_can_leave_a_whiteout,
    no_directory_comes_below_itself,
    dot_and_dotdot_are_not_renamed,
);

fn a_name_moves_within_a_directory_and_between_two(v: &dyn Volume) {
    let (root, below) = (v.root(), dir(v, v.root(), b"dir"));
    let made = file_with(v, b"file", b"contents");
    rename(v, (root, b"file"), (root, b"other"), PLAIN).unwrap();
    refused(v.lookup(root, b"file"), ENOENT);
    rename(v, (root, b"other"), (below, b"third"), PLAIN).unwrap();
    assert_eq!((list(v, root), list(v, below)), (vec![b"dir".to_vec()], vec![b"third".to_vec()]));
    assert_eq!((v.lookup(below, b"third").unwrap().inode, bytes(v, made)), (made, b"contents".to_vec()));
    assert_eq!(stat(v, made).links, 1);
}

fn a_directory_moves_with_its_parent(v: &dyn Volume) {
    let (one, two) = (dir(v, v.root(), b"one"), dir(v, v.root(), b"two"));
    let moved = dir(v, one, b"moved");
    file(v, moved, b"file");
    rename(v, (one, b"moved"), (two, b"here"), PLAIN).unwrap();
    assert_eq!(v.lookup(moved, b"..").unwrap().inode, two);
    assert_eq!((stat(v, one).links, stat(v, two).links, stat(v, moved).links), (2, 3, 2));
    assert_eq!(list(v, moved), [b"file".to_vec()]);
}

fn a_rename_replaces_a_file(v: &dyn Volume) {
    let (new, old) = (file_with(v, b"new", b"new"), file_with(v, b"file", b"old"));
    v.link(v.root(), b"further", old, &Caller::root()).unwrap();
    rename(v, (v.root(), b"new"), (v.root(), b"file"), PLAIN).unwrap();
    assert_eq!(v.lookup(v.root(), b"file").unwrap().inode, new);
    assert_eq!((stat(v, old).links, bytes(v, old)), (1, b"old".to_vec()));
    rename(v, (v.root(), b"file"), (v.root(), b"further"), PLAIN).unwrap();
    refused(v.stat(old), ESTALE);
    assert_eq!(list(v, v.root()), [b"further".to_vec()]);
}

fn a_rename_replaces_an_empty_directory(v: &dyn Volume) {
    let (one, two) = (dir(v, v.root(), b"one"), dir(v, v.root(), b"two"));
    file(v, one, b"file");
    // POSIX has both numbers; of Linux's filesystems, XFS has this and the others that.
    let full = rename(v, (v.root(), b"two"), (v.root(), b"one"), PLAIN).unwrap_err().errno();
    assert!([EEXIST, ENOTEMPTY].contains(&full), "refused by {full}");
    let links = stat(v, v.root()).links;
    rename(v, (v.root(), b"one"), (v.root(), b"two"), PLAIN).unwrap();
    assert_eq!(v.lookup(v.root(), b"two").unwrap().inode, one);
    assert_eq!(stat(v, v.root()).links, links - 1);
    refused(v.stat(two), ESTALE);
}

fn a_rename_replaces_only_its_own_kind(v: &dyn Volume) {
    dir(v, v.root(), b"dir");
    file(v, v.root(), b"file");
    refused(rename(v, (v.root(), b"dir"), (v.root(), b"file"), PLAIN), ENOTDIR);
    refused(rename(v, (v.root(), b"file"), (v.root(), b"dir"), PLAIN), EISDIR);
}

fn a_rename_of_two_names_of_a_file_does_nothing(v: &dyn Volume) {
    let made = file(v, v.root(), b"one");
    v.link(v.root(), b"two", made, &Caller::root()).unwrap();
    rename(v, (v.root(), b"one"), (v.root(), b"two"), PLAIN).unwrap();
    rename(v, (v.root(), b"one"), (v.root(), b"one"), PLAIN).unwrap();
    assert_eq!((stat(v, made).links, list(v, v.root()).len()), (2, 2));
}

fn a_replaced_file_stays_while_it_has_references(v: &dyn Volume) {
    let old = file_with(v, b"file", b"old");
    file_with(v, b"new", b"new");
    v.add_reference(old).unwrap();
    rename(v, (v.root(), b"new"), (v.root(), b"file"), PLAIN).unwrap();
    assert_eq!((stat(v, old).links, bytes(v, old)), (0, b"old".to_vec()));
    v.drop_references(old, 1).unwrap();
    refused(v.stat(old), ESTALE);
}

fn a_rename_can_refuse_to_replace(v: &dyn Volume) {
    let made = file(v, v.root(), b"one");
    file(v, v.root(), b"two");
    refused(rename(v, (v.root(), b"one"), (v.root(), b"two"), NO_REPLACE), EEXIST);
    refused(rename(v, (v.root(), b"one"), (v.root(), b"one"), NO_REPLACE), EEXIST);
    rename(v, (v.root(), b"one"), (v.root(), b"three"), NO_REPLACE).unwrap();
    assert_eq!(v.lookup(v.root(), b"three").unwrap().inode, made);
}

fn an_exchange_swaps_names(v: &dyn Volume) {
    let (one, two) = (dir(v, v.root(), b"one"), dir(v, v.root(), b"two"));
    let (a, b) = (file(v, one, b"a"), file(v, two, b"b"));
    rename(v, (one, b"a"), (two, b"b"), EXCHANGE).unwrap();
    assert_eq!((v.lookup(one, b"a").unwrap().inode, v.lookup(two, b"b").unwrap().inode), (b, a));
    rename(v, (v.root(), b"one"), (v.root(), b"two"), EXCHANGE).unwrap();
    assert_eq!(v.lookup(v.root(), b"one").unwrap().inode, two);
    assert_eq!((stat(v, a).links, stat(v, b).links), (1, 1));
}

fn an_exchange_of_a_file_and_a_directory_counts_links(v: &dyn Volume) {
    let (one, two) = (dir(v, v.root(), b"one"), dir(v, v.root(), b"two"));
    let (moved, plain) = (dir(v, one, b"dir"), file(v, two, b"file"));
    rename(v, (one, b"dir"), (two, b"file"), EXCHANGE).unwrap();
    assert_eq!((stat(v, one).links, stat(v, two).links), (2, 3));
    assert_eq!(v.lookup(moved, b"..").unwrap().inode, two);
    assert_eq!((v.lookup(one, b"dir").unwrap().inode, v.lookup(two, b"file").unwrap().inode), (plain, moved));
}

fn an_exchange_needs_two_names_and_no_other_flag(v: &dyn Volume) {
    file(v, v.root(), b"one");
    file(v, v.root(), b"two");
    refused(rename(v, (v.root(), b"one"), (v.root(), b"none"), EXCHANGE), ENOENT);
    refused(rename(v, (v.root(), b"none"), (v.root(), b"one"), EXCHANGE), ENOENT);
    for flags in [RenameFlags { no_replace: true, ..EXCHANGE }, RenameFlags { whiteout: true, ..EXCHANGE }] {
        refused(rename(v, (v.root(), b"one"), (v.root(), b"two"), flags), EINVAL);
    }
}

fn a_rename_can_leave_a_whiteout(v: &dyn Volume) {
    let (made, below) = (file(v, v.root(), b"file"), dir(v, v.root(), b"dir"));
    if !v.limits().whiteout {
        return refused(rename(v, (v.root(), b"file"), (below, b"file"), WHITEOUT), EOPNOTSUPP);
    }
    rename(v, (v.root(), b"file"), (below, b"file"), WHITEOUT).unwrap();
    assert_eq!(v.lookup(below, b"file").unwrap().inode, made);
    let left = v.lookup(v.root(), b"file").unwrap();
    assert_eq!((left.file_type, left.device, left.links), (FileType::CharDevice, 0, 1));
    file(v, v.root(), b"other");
    rename(v, (v.root(), b"other"), (below, b"file"), WHITEOUT).unwrap();
    refused(v.stat(made), ESTALE);
    assert_eq!(v.lookup(v.root(), b"other").unwrap().file_type, FileType::CharDevice);
}

fn no_directory_comes_below_itself(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    let below = dir(v, top, b"below");
    let deep = dir(v, below, b"deep");
    file(v, deep, b"file");
    for (at, name) in [(top, b"new"), (below, b"new"), (deep, b"new")] {
        refused(rename(v, (v.root(), b"top"), (at, name), PLAIN), EINVAL);
    }
    refused(rename(v, (v.root(), b"top"), (deep, b"file"), EXCHANGE), EINVAL);
    refused(rename(v, (deep, b"file"), (v.root(), b"top"), EXCHANGE), EINVAL);
    refused(rename(v, (deep, b"file"), (below, b"deep"), PLAIN), ENOTEMPTY);
    refused(rename(v, (below, b"deep"), (v.root(), b"top"), PLAIN), ENOTEMPTY);
}

fn dot_and_dotdot_are_not_renamed(v: &dyn Volume) {
    let below = dir(v, v.root(), b"dir");
    for name in [b".".as_slice(), b".."] {
        refused(rename(v, (below, name), (v.root(), b"new"), PLAIN), EINVAL);
        refused(rename(v, (v.root(), b"dir"), (below, name), PLAIN), EINVAL);
    }
}
