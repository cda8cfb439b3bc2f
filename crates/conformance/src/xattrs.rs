//! Extended attributes, ACLs, and the label.

use crate::errno::{E2BIG, EEXIST, EINVAL, ENODATA, EOPNOTSUPP, EPERM, ERANGE};
use crate::given::{cases, dir, file, refused, stat};
use xfskit_vfs::{Caller, InodeNumber, NewFile, SetMode, Volume, XattrChange};

cases!(Volume:
    an_attribute_is_set_found_listed_and_removed,
    an_attribute_may_have_to_be_there_or_not,
    an_attributes_name_is_as_long_as_the_limit_and_no_longer,
    a_value_is_as_long_as_the_limit_and_no_longer,
    many_attributes_are_kept,
    a_name_space_that_there_is_not_is_refused,
    an_attribute_has_a_name_behind_its_prefix,
    users_have_attributes_of_files_and_directories_alone,
    a_batch_is_done_as_a_whole_or_not_at_all,
    an_access_acl_sets_the_mode,
    a_default_acl_is_handed_down,
    what_is_no_acl_is_refused,
    a_label_is_as_long_as_the_limit_and_no_longer,
);

fn set(v: &dyn Volume, inode: InodeNumber, name: &[u8], value: &[u8]) -> xfskit_vfs::Result<()> {
    v.set_xattr(inode, name, value, SetMode::Any, &Caller::root())
}

fn names(v: &dyn Volume, inode: InodeNumber) -> Vec<Vec<u8>> {
    let mut names = v.list_xattrs(inode).unwrap();
    names.sort();
    names
}

fn an_attribute_is_set_found_listed_and_removed(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    assert!(names(v, made).is_empty());
    let all = [b"security.one".as_slice(), b"trusted.one", b"user.one", b"user.two"];
    for name in all {
        refused(v.get_xattr(made, name), ENODATA);
        set(v, made, name, name).unwrap();
    }
    assert_eq!(names(v, made), all);
    for name in all {
        assert_eq!(v.get_xattr(made, name).unwrap(), name);
        set(v, made, name, b"").unwrap();
        assert_eq!(v.get_xattr(made, name).unwrap(), b"");
        v.remove_xattr(made, name, &Caller::root()).unwrap();
        refused(v.get_xattr(made, name), ENODATA);
        refused(v.remove_xattr(made, name, &Caller::root()), ENODATA);
    }
    assert!(names(v, made).is_empty());
}

fn an_attribute_may_have_to_be_there_or_not(v: &dyn Volume) {
    let (made, root) = (dir(v, v.root(), b"dir"), Caller::root());
    refused(v.set_xattr(made, b"user.a", b"1", SetMode::Replace, &root), ENODATA);
    v.set_xattr(made, b"user.a", b"1", SetMode::Create, &root).unwrap();
    refused(v.set_xattr(made, b"user.a", b"2", SetMode::Create, &root), EEXIST);
    assert_eq!(v.get_xattr(made, b"user.a").unwrap(), b"1");
    v.set_xattr(made, b"user.a", b"2", SetMode::Replace, &root).unwrap();
    assert_eq!(v.get_xattr(made, b"user.a").unwrap(), b"2");
}

fn an_attributes_name_is_as_long_as_the_limit_and_no_longer(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    let most = [b"user.".as_slice(), &vec![b'n'; v.limits().xattr_name_bytes]].concat();
    let longer = [most.as_slice(), b"n"].concat();
    set(v, made, &most, b"value").unwrap();
    assert_eq!((v.get_xattr(made, &most).unwrap(), names(v, made)), (b"value".to_vec(), vec![most]));
    refused(set(v, made, &longer, b"value"), ERANGE);
    refused(v.get_xattr(made, &longer), ERANGE);
    refused(v.remove_xattr(made, &longer, &Caller::root()), ERANGE);
}

fn a_value_is_as_long_as_the_limit_and_no_longer(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    let most: Vec<_> = (0..v.limits().xattr_value_bytes).map(|at| (at / 7) as u8).collect();
    let longer = vec![1; most.len() + 1];
    set(v, made, b"user.long", &most).unwrap();
    assert_eq!(v.get_xattr(made, b"user.long").unwrap(), most);
    refused(set(v, made, b"user.long", &longer), E2BIG);
    refused(set(v, made, b"user.longer", &longer), E2BIG);
    assert_eq!(v.get_xattr(made, b"user.long").unwrap(), most);
    set(v, made, b"user.long", b"short").unwrap();
    assert_eq!(v.get_xattr(made, b"user.long").unwrap(), b"short");
}

fn many_attributes_are_kept(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    let name = |number: usize| format!("user.attribute {number:03}").into_bytes();
    for number in 0..300 {
        set(v, made, &name(number), &vec![number as u8; number * 3]).unwrap();
    }
    assert_eq!(names(v, made), (0..300).map(name).collect::<Vec<_>>());
    for number in 0..300 {
        assert_eq!(v.get_xattr(made, &name(number)).unwrap(), vec![number as u8; number * 3]);
        if number % 2 == 0 {
            v.remove_xattr(made, &name(number), &Caller::root()).unwrap();
        }
    }
    assert_eq!(names(v, made).len(), 150);
}

fn a_name_space_that_there_is_not_is_refused(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    for name in [b"other.a".as_slice(), b"plain", b"system.other"] {
        refused(set(v, made, name, b"value"), EOPNOTSUPP);
        refused(v.get_xattr(made, name), EOPNOTSUPP);
        refused(v.remove_xattr(made, name, &Caller::root()), EOPNOTSUPP);
    }
}

fn an_attribute_has_a_name_behind_its_prefix(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    for name in [b"user.".as_slice(), b"trusted.", b"security."] {
        refused(set(v, made, name, b"value"), EINVAL);
    }
}

fn users_have_attributes_of_files_and_directories_alone(v: &dyn Volume) {
    let made = v.symlink(v.root(), b"link", b"target", &Caller::root()).unwrap().inode;
    refused(set(v, made, b"user.a", b"b"), EPERM);
    set(v, made, b"trusted.a", b"b").unwrap();
    assert_eq!(v.get_xattr(made, b"trusted.a").unwrap(), b"b");
    assert_eq!(v.read_link(made).unwrap(), b"target");
}

fn a_batch_is_done_as_a_whole_or_not_at_all(v: &dyn Volume) {
    let (made, root) = (file(v, v.root(), b"file"), Caller::root());
    let change = |name: &str, value: Option<&str>| XattrChange { name: name.into(), value: value.map(Into::into) };
    let two = [change("user.a", Some("1")), change("trusted.b", Some("2"))];
    v.change_xattrs(made, &two, SetMode::Create, &root).unwrap();
    assert_eq!(names(v, made), [b"trusted.b".to_vec(), b"user.a".to_vec()]);
    let wrong = [change("user.c", Some("3")), change("user.a", Some("4"))];
    refused(v.change_xattrs(made, &wrong, SetMode::Create, &root), EEXIST);
    refused(v.change_xattrs(made, &[change("user.a", None), change("user.d", None)], SetMode::Any, &root), ENODATA);
    assert_eq!(names(v, made), [b"trusted.b".to_vec(), b"user.a".to_vec()]);
    let moved = [change("user.a", None), change("user.a", Some("5")), change("trusted.b", None)];
    v.change_xattrs(made, &moved, SetMode::Any, &root).unwrap();
    assert_eq!((names(v, made), v.get_xattr(made, b"user.a").unwrap()), (vec![b"user.a".to_vec()], b"5".to_vec()));
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// An ACL as Linux shows it: the owner may do all, user 1000 may read, and others nothing.
fn acl() -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [(1u16, 7u16, u32::MAX), (2, 4, 1000), (4, 5, u32::MAX), (16, 5, u32::MAX)] {
        bytes.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    bytes.extend([32, 0, 0, 0, 255, 255, 255, 255]);
    bytes
}

fn an_access_acl_sets_the_mode(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    if !v.limits().acls {
        refused(set(v, made, ACCESS, &acl()), EOPNOTSUPP);
        return refused(v.get_xattr(made, ACCESS), EOPNOTSUPP);
    }
    refused(v.get_xattr(made, ACCESS), ENODATA);
    set(v, made, ACCESS, &acl()).unwrap();
    assert_eq!((v.get_xattr(made, ACCESS).unwrap(), stat(v, made).permissions.bits()), (acl(), 0o750));
    v.remove_xattr(made, ACCESS, &Caller::root()).unwrap();
    refused(v.get_xattr(made, ACCESS), ENODATA);
}

fn a_default_acl_is_handed_down(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    if !v.limits().acls {
        return refused(set(v, top, DEFAULT, &acl()), EOPNOTSUPP);
    }
    set(v, top, DEFAULT, &acl()).unwrap();
    let new = NewFile { umask: 0o077, ..NewFile::file(0o666) };
    let made = v.create(top, b"file", &new, &Caller::root()).unwrap();
    assert_eq!(made.permissions.bits(), 0o640);
    assert!(v.get_xattr(made.inode, ACCESS).is_ok());
    refused(v.get_xattr(made.inode, DEFAULT), ENODATA);
    let below = dir(v, top, b"below");
    assert_eq!(v.get_xattr(below, DEFAULT).unwrap(), acl());
}

fn what_is_no_acl_is_refused(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    if !v.limits().acls {
        return refused(set(v, made, ACCESS, b"\x02\0\0\0junk"), EOPNOTSUPP);
    }
    refused(set(v, made, ACCESS, b"\x02\0\0\0junk"), EINVAL);
    refused(set(v, made, ACCESS, &acl()[..28]), EINVAL);
    refused(set(v, made, DEFAULT, &acl()), 13);
}

fn a_label_is_as_long_as_the_limit_and_no_longer(v: &dyn Volume) {
    let most = vec![b'l'; v.limits().label_bytes];
    v.set_label(&most).unwrap();
    assert_eq!(v.label(), most);
    refused(v.set_label(&[most.as_slice(), b"l"].concat()), EINVAL);
    assert_eq!(v.label(), most);
    v.set_label(b"").unwrap();
    assert_eq!(v.label(), b"");
}
