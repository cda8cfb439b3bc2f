//! Modes, owners, times, flags, and what they forbid.

use crate::errno::{EINVAL, EPERM, EXDEV};
use crate::given::{OLD, PLAIN, age, bytes, cases, chmod, chown, dir, file, file_with, refused, rename, stat, user};
use xfskit_vfs::{
    Caller, Fallocate, InodeNumber, NewFile, Permissions, SetAttr, SetMode, SetTime, Timestamp, Volume, xflags,
};

cases!(Volume:
    attributes_are_set_and_read,
    an_owner_is_not_the_largest_number,
    a_time_has_less_than_a_second_of_nanoseconds,
    a_new_owner_gets_no_privileges,
    who_is_not_in_the_group_sets_no_set_group_id,
    contents_that_change_take_privileges_away,
    a_change_of_a_file_shows_in_its_times,
    a_change_of_a_directory_shows_in_its_times,
    a_sticky_directory_keeps_the_files_of_others,
    an_immutable_file_stays_as_it_is,
    an_append_only_file_is_only_added_to,
    an_immutable_directory_keeps_its_names,
    flags_are_set_and_read,
    only_the_owner_sets_flags_and_only_root_protects,
    a_project_that_is_handed_down_lets_no_other_in,
);

fn attributes_are_set_and_read(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    let (atime, mtime) = (OLD, Timestamp { seconds: 1_500_000_000, nanoseconds: 999_999_999 });
    let change = SetAttr {
        permissions: Some(Permissions::new(0o4711)),
        uid: Some(1001),
        gid: Some(u32::MAX - 1),
        atime: Some(SetTime::To(atime)),
        mtime: Some(SetTime::To(mtime)),
        ..SetAttr::default()
    };
    let set = v.set_attr(made, &change, &Caller::root()).unwrap();
    assert_eq!((set.permissions.bits(), set.uid, set.gid), (0o4711, 1001, u32::MAX - 1));
    assert_eq!((set.atime, set.mtime), (atime, mtime));
    assert_eq!(stat(v, made), set);
    let now = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
    let touched = v.set_attr(made, &now, &Caller::root()).unwrap();
    assert!(touched.atime > atime && touched.mtime == mtime);
}

fn an_owner_is_not_the_largest_number(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    for (uid, gid) in [(Some(u32::MAX), None), (None, Some(u32::MAX))] {
        refused(v.set_attr(made, &SetAttr { uid, gid, ..SetAttr::default() }, &Caller::root()), EINVAL);
    }
    assert_eq!((stat(v, made).uid, stat(v, made).gid), (0, 0));
}

fn a_time_has_less_than_a_second_of_nanoseconds(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    let wrong = Some(SetTime::To(Timestamp { seconds: 1, nanoseconds: 1_000_000_000 }));
    refused(v.set_attr(made, &SetAttr { atime: wrong, ..SetAttr::default() }, &Caller::root()), EINVAL);
    refused(v.set_attr(made, &SetAttr { mtime: wrong, ..SetAttr::default() }, &Caller::root()), EINVAL);
}

fn a_new_owner_gets_no_privileges(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    chmod(v, made, 0o6755);
    chown(v, made, 1000, 1000);
    assert_eq!(stat(v, made).permissions.bits(), 0o755);
    // Without the right to execute, the group's bit means something else.
    chmod(v, made, 0o6745);
    chown(v, made, 1001, 1001);
    assert_eq!(stat(v, made).permissions.bits(), 0o2745);
    let below = dir(v, v.root(), b"dir");
    chmod(v, below, 0o6755);
    chown(v, below, 1000, 1000);
    assert_eq!(stat(v, below).permissions.bits(), 0o6755);
}

fn who_is_not_in_the_group_sets_no_set_group_id(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    chown(v, made, 1000, 50);
    let change = SetAttr { permissions: Some(Permissions::new(0o2755)), ..SetAttr::default() };
    assert_eq!(v.set_attr(made, &change, &user(1000)).unwrap().permissions.bits(), 0o755);
    let member = Caller { groups: vec![50], ..user(1000) };
    assert_eq!(v.set_attr(made, &change, &member).unwrap().permissions.bits(), 0o2755);
}

fn contents_that_change_take_privileges_away(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    assert!(!v.drop_privileges(made, None).unwrap());
    chmod(v, made, 0o6755);
    assert!(v.drop_privileges(made, None).unwrap());
    assert_eq!(stat(v, made).permissions.bits(), 0o755);
    chmod(v, made, 0o2745);
    assert!(!v.drop_privileges(made, Some(&Caller::root())).unwrap());
    assert!(v.drop_privileges(made, Some(&user(1000))).unwrap());
    assert_eq!(stat(v, made).permissions.bits(), 0o745);
}

/// Does something to a file that was aged, and says which of its times then are new: modification, change.
fn times_changed(v: &dyn Volume, inode: InodeNumber, work: impl FnOnce()) -> (bool, bool) {
    age(v, inode);
    let before = stat(v, inode);
    // A clock may tick as rarely as a hundred times a second.
    std::thread::sleep(std::time::Duration::from_millis(12));
    work();
    let after = stat(v, inode);
    assert_eq!((after.atime, after.birth_time), (before.atime, before.birth_time));
    (after.mtime != before.mtime, after.ctime > before.ctime)
}

fn a_change_of_a_file_shows_in_its_times(v: &dyn Volume) {
    let made = file_with(v, b"file", b"contents");
    let root = Caller::root();
    let changed = |work: &dyn Fn()| times_changed(v, made, work);
    assert_eq!(changed(&|| v.write_at(made, 0, b"x").unwrap()), (true, true));
    assert_eq!(changed(&|| v.truncate(made, 3).unwrap()), (true, true));
    assert_eq!(changed(&|| v.fallocate(made, 0, 2, Fallocate::PunchHole).unwrap()), (true, true));
    assert_eq!(changed(&|| chmod(v, made, 0o600)), (false, true));
    assert_eq!(changed(&|| v.set_xattr(made, b"user.a", b"b", SetMode::Any, &root).unwrap()), (false, true));
    assert_eq!(changed(&|| v.remove_xattr(made, b"user.a", &root).unwrap()), (false, true));
    assert_eq!(changed(&|| _ = v.link(v.root(), b"two", made, &root).unwrap()), (false, true));
    assert_eq!(changed(&|| rename(v, (v.root(), b"two"), (v.root(), b"three"), PLAIN).unwrap()), (false, true));
    assert_eq!(changed(&|| v.unlink(v.root(), b"three", &root).unwrap()), (false, true));
    assert_eq!(changed(&|| drop(bytes(v, made))), (false, false));
}

fn a_change_of_a_directory_shows_in_its_times(v: &dyn Volume) {
    let (top, other) = (dir(v, v.root(), b"top"), dir(v, v.root(), b"other"));
    let root = Caller::root();
    let changed = |work: &dyn Fn()| times_changed(v, top, work);
    assert_eq!(changed(&|| _ = file(v, top, b"one")), (true, true));
    assert_eq!(changed(&|| _ = dir(v, top, b"dir")), (true, true));
    assert_eq!(changed(&|| rename(v, (top, b"one"), (top, b"two"), PLAIN).unwrap()), (true, true));
    assert_eq!(changed(&|| rename(v, (top, b"two"), (other, b"two"), PLAIN).unwrap()), (true, true));
    assert_eq!(changed(&|| rename(v, (other, b"two"), (top, b"one"), PLAIN).unwrap()), (true, true));
    assert_eq!(changed(&|| v.unlink(top, b"one", &root).unwrap()), (true, true));
    assert_eq!(changed(&|| v.rmdir(top, b"dir", &root).unwrap()), (true, true));
    refused(v.lookup(top, b"none"), crate::errno::ENOENT);
    assert_eq!(changed(&|| refused(v.unlink(top, b"none", &root), crate::errno::ENOENT)), (false, false));
}

fn a_sticky_directory_keeps_the_files_of_others(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    chown(v, top, 1000, 1000);
    chmod(v, top, 0o1777);
    let make = |name: &[u8]| v.create(top, name, &NewFile::file(0o666), &user(1001)).unwrap();
    for name in [b"a".as_slice(), b"b", b"c", b"d"] {
        make(name);
    }
    v.create(top, b"dir", &NewFile::dir(0o777), &user(1001)).unwrap();
    let (stranger, to) = (user(1002), v.root());
    chmod(v, to, 0o777);
    refused(v.unlink(top, b"a", &stranger), EPERM);
    refused(v.rmdir(top, b"dir", &stranger), EPERM);
    refused(v.rename(top, b"a", to, b"a", PLAIN, &stranger), EPERM);
    v.create(top, b"strange", &NewFile::file(0o666), &stranger).unwrap();
    refused(v.rename(top, b"strange", top, b"a", PLAIN, &stranger), EPERM);
    v.unlink(top, b"a", &user(1001)).unwrap();
    v.unlink(top, b"b", &user(1000)).unwrap();
    v.unlink(top, b"c", &Caller::root()).unwrap();
    v.rename(top, b"d", top, b"e", PLAIN, &user(1001)).unwrap();
}

/// The flags of an inode; that it has attributes, the filesystem's own among them, is none that anyone sets.
fn flags_of(v: &dyn Volume, inode: InodeNumber) -> u32 {
    v.flags(inode).unwrap().xflags & !xflags::HASATTR
}

/// Sets and clears flags.
fn set_flags(v: &dyn Volume, inode: InodeNumber, set: u32, clear: u32) {
    let mut flags = v.flags(inode).unwrap();
    flags.xflags = flags.xflags & !clear | set;
    v.set_flags(inode, &flags, &Caller::root()).unwrap();
}

fn an_immutable_file_stays_as_it_is(v: &dyn Volume) {
    let made = file_with(v, b"file", b"contents");
    file(v, v.root(), b"other");
    set_flags(v, made, xflags::IMMUTABLE, 0);
    let (root, top) = (Caller::root(), v.root());
    refused(v.write_at(made, 0, b"x"), EPERM);
    refused(v.append(made, b"x"), EPERM);
    refused(v.truncate(made, 0), EPERM);
    refused(v.fallocate(made, 0, 4096, Fallocate::Allocate), EPERM);
    refused(v.unlink(top, b"file", &root), EPERM);
    refused(v.link(top, b"two", made, &root), EPERM);
    refused(rename(v, (top, b"file"), (top, b"two"), PLAIN), EPERM);
    refused(rename(v, (top, b"other"), (top, b"file"), PLAIN), EPERM);
    refused(v.set_attr(made, &SetAttr { uid: Some(1), ..SetAttr::default() }, &root), EPERM);
    let now = Some(SetTime::Now);
    refused(v.set_attr(made, &SetAttr { atime: now, mtime: now, ..SetAttr::default() }, &root), EPERM);
    refused(v.set_xattr(made, b"user.a", b"b", SetMode::Any, &root), EPERM);
    assert_eq!(bytes(v, made), b"contents");
    set_flags(v, made, 0, xflags::IMMUTABLE);
    v.unlink(top, b"file", &root).unwrap();
}

fn an_append_only_file_is_only_added_to(v: &dyn Volume) {
    let made = file_with(v, b"file", b"contents");
    set_flags(v, made, xflags::APPEND, 0);
    let (root, top) = (Caller::root(), v.root());
    assert_eq!(v.append(made, b" and more").unwrap(), 8);
    refused(v.write_at(made, 0, b"x"), EPERM);
    refused(v.truncate(made, 0), EPERM);
    refused(v.fallocate(made, 0, 4, Fallocate::PunchHole), EPERM);
    refused(v.unlink(top, b"file", &root), EPERM);
    refused(v.link(top, b"two", made, &root), EPERM);
    refused(rename(v, (top, b"file"), (top, b"two"), PLAIN), EPERM);
    refused(v.set_attr(made, &SetAttr { uid: Some(1), ..SetAttr::default() }, &root), EPERM);
    let now = Some(SetTime::Now);
    v.set_attr(made, &SetAttr { atime: now, mtime: now, ..SetAttr::default() }, &root).unwrap();
    assert_eq!(bytes(v, made), b"contents and more");
    set_flags(v, made, 0, xflags::APPEND);
    v.unlink(top, b"file", &root).unwrap();
}

fn an_immutable_directory_keeps_its_names(v: &dyn Volume) {
    let (top, root) = (dir(v, v.root(), b"top"), Caller::root());
    file(v, top, b"file");
    let other = file(v, v.root(), b"other");
    set_flags(v, top, xflags::IMMUTABLE, 0);
    refused(v.create(top, b"new", &NewFile::file(0o644), &root), EPERM);
    refused(v.link(top, b"new", other, &root), EPERM);
    refused(v.unlink(top, b"file", &root), EPERM);
    refused(rename(v, (top, b"file"), (v.root(), b"file"), PLAIN), EPERM);
    refused(rename(v, (v.root(), b"other"), (top, b"new"), PLAIN), EPERM);
    refused(v.rmdir(v.root(), b"top", &root), EPERM);
    set_flags(v, top, xflags::APPEND, xflags::IMMUTABLE);
    file(v, top, b"new");
    refused(v.unlink(top, b"new", &root), EPERM);
    set_flags(v, top, 0, xflags::APPEND);
    v.unlink(top, b"new", &root).unwrap();
}

fn flags_are_set_and_read(v: &dyn Volume) {
    let (made, top) = (file(v, v.root(), b"file"), dir(v, v.root(), b"dir"));
    assert!(stat(v, made).is_plain);
    let mut flags = v.flags(made).unwrap();
    flags.project = 7;
    v.set_flags(made, &flags, &Caller::root()).unwrap();
    assert_eq!((v.flags(made).unwrap().project, stat(v, made).project), (7, 7));
    assert!(!stat(v, made).is_plain);
    set_flags(v, top, xflags::PROJINHERIT | xflags::NOSYMLINKS, 0);
    assert_eq!(flags_of(v, top), xflags::PROJINHERIT | xflags::NOSYMLINKS);
    refused(v.symlink(top, b"link", b"target", &Caller::root()), EPERM);
    set_flags(v, top, 0, xflags::PROJINHERIT | xflags::NOSYMLINKS);
    v.symlink(top, b"link", b"target", &Caller::root()).unwrap();
    flags.xflags = xflags::EXTSZINHERIT;
    refused(v.set_flags(made, &flags, &Caller::root()), EINVAL);
}

fn only_the_owner_sets_flags_and_only_root_protects(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    chown(v, made, 1000, 1000);
    let mut flags = v.flags(made).unwrap();
    refused(v.set_flags(made, &flags, &user(1001)), EPERM);
    v.set_flags(made, &flags, &user(1000)).unwrap();
    flags.xflags |= xflags::IMMUTABLE;
    refused(v.set_flags(made, &flags, &user(1000)), EPERM);
}

fn a_project_that_is_handed_down_lets_no_other_in(v: &dyn Volume) {
    let (top, made) = (dir(v, v.root(), b"top"), file(v, v.root(), b"file"));
    let mut flags = v.flags(top).unwrap();
    (flags.project, flags.xflags) = (7, xflags::PROJINHERIT);
    v.set_flags(top, &flags, &Caller::root()).unwrap();
    assert_eq!(stat(v, file(v, top, b"own")).project, 7);
    let below = dir(v, top, b"below");
    assert_eq!((flags_of(v, below), stat(v, below).project), (xflags::PROJINHERIT, 7));
    refused(v.link(top, b"new", made, &Caller::root()), EXDEV);
    refused(rename(v, (v.root(), b"file"), (top, b"new"), PLAIN), EXDEV);
    rename(v, (top, b"own"), (below, b"own"), PLAIN).unwrap();
    rename(v, (below, b"own"), (v.root(), b"own"), PLAIN).unwrap();
}
