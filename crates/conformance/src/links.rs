//! Files with several names, and without any.

use crate::errno::{EEXIST, EISDIR, EMLINK, ENOENT, EPERM, ESTALE};
use crate::given::{bytes, cases, dir, file, file_with, list, refused, stat};
use xfskit_vfs::{Caller, NewFile, Timestamp, Volume, WholeFile};

/// Most links that a case makes.
const MAX_LINKS_TRIED: u32 = 100_000;

cases!(Volume:
    a_file_has_as_many_links_as_names,
    a_directory_has_one_name,
    a_file_has_as_many_links_as_the_limit_and_no_more,
    a_file_without_a_name_stays_while_it_has_references,
    a_look_up_can_take_a_reference,
    a_number_without_a_file_is_stale,
    a_file_made_without_a_name_gets_one,
    a_file_made_without_a_name_goes_with_its_reference,
    a_link_can_replace_a_file,
    small_files_are_made_together,
);

fn a_file_has_as_many_links_as_names(v: &dyn Volume) {
    let made = file_with(v, b"one", b"contents");
    let below = dir(v, v.root(), b"dir");
    let linked = v.link(below, b"two", made, &Caller::root()).unwrap();
    assert_eq!((linked.inode, linked.links), (made, 2));
    assert_eq!(v.lookup(below, b"two").unwrap().inode, made);
    v.unlink(v.root(), b"one", &Caller::root()).unwrap();
    assert_eq!((stat(v, made).links, bytes(v, made)), (1, b"contents".to_vec()));
    v.unlink(below, b"two", &Caller::root()).unwrap();
    refused(v.stat(made), ESTALE);
}

fn a_directory_has_one_name(v: &dyn Volume) {
    let made = dir(v, v.root(), b"dir");
    refused(v.link(v.root(), b"other", made, &Caller::root()), EPERM);
    refused(v.link(made, b"itself", made, &Caller::root()), EPERM);
}

fn a_file_has_as_many_links_as_the_limit_and_no_more(v: &dyn Volume) {
    let most = v.limits().links;
    let made = file(v, v.root(), b"file");
    // Some limits are too far to go there.
    for number in 1..most.min(MAX_LINKS_TRIED).min(if most > MAX_LINKS_TRIED { 1000 } else { most }) {
        v.link(v.root(), number.to_string().as_bytes(), made, &Caller::root()).unwrap();
    }
    if most <= MAX_LINKS_TRIED {
        assert_eq!(stat(v, made).links, most);
        refused(v.link(v.root(), b"more", made, &Caller::root()), EMLINK);
    }
}

fn a_file_without_a_name_stays_while_it_has_references(v: &dyn Volume) {
    let made = file_with(v, b"file", b"contents");
    v.add_reference(made).unwrap();
    v.add_reference(made).unwrap();
    v.unlink(v.root(), b"file", &Caller::root()).unwrap();
    assert_eq!(stat(v, made).links, 0);
    v.drop_references(made, 1).unwrap();
    v.write_at(made, 8, b" and more").unwrap();
    assert_eq!(bytes(v, made), b"contents and more");
    v.drop_references(made, 1).unwrap();
    refused(v.stat(made), ESTALE);
}

fn a_look_up_can_take_a_reference(v: &dyn Volume) {
    file(v, v.root(), b"file");
    let found = v.lookup_reference(v.root(), b"file").unwrap();
    v.unlink(v.root(), b"file", &Caller::root()).unwrap();
    assert_eq!(stat(v, found.inode).links, 0);
    v.forget(found.inode, 1).unwrap();
    v.free_inactive().unwrap();
    refused(v.stat(found.inode), ESTALE);
}

fn a_number_without_a_file_is_stale(v: &dyn Volume) {
    let made = file(v, v.root(), b"file");
    v.unlink(v.root(), b"file", &Caller::root()).unwrap();
    assert!(!v.is_in_use(made).unwrap());
    refused(v.stat(made), ESTALE);
    refused(v.read_at(made, 0, &mut [0]), ESTALE);
    refused(v.write_at(made, 0, b"x"), ESTALE);
    refused(v.truncate(made, 1), ESTALE);
    refused(v.lookup(made, b"x"), ESTALE);
    refused(v.list_dir(made), ESTALE);
    refused(v.flags(made), ESTALE);
    refused(v.list_xattrs(made), ESTALE);
    refused(v.get_xattr(made, b"user.a"), ESTALE);
    refused(v.add_reference(made), ESTALE);
    refused(v.link(v.root(), b"again", made, &Caller::root()), ESTALE);
    v.fsync(made).unwrap();
}

fn a_file_made_without_a_name_gets_one(v: &dyn Volume) {
    let made = v.tmpfile(v.root(), &NewFile::file(0o600), &Caller::root()).unwrap();
    assert_eq!((made.links, made.permissions.bits()), (0, 0o600));
    assert!(list(v, v.root()).is_empty());
    v.write_at(made.inode, 0, b"complete").unwrap();
    assert_eq!(v.link(v.root(), b"file", made.inode, &Caller::root()).unwrap().links, 1);
    v.drop_references(made.inode, 1).unwrap();
    assert_eq!(bytes(v, v.lookup(v.root(), b"file").unwrap().inode), b"complete");
}

fn a_file_made_without_a_name_goes_with_its_reference(v: &dyn Volume) {
    let made = v.tmpfile(v.root(), &NewFile::file(0o600), &Caller::root()).unwrap().inode;
    v.write_at(made, 0, b"in vain").unwrap();
    v.drop_references(made, 1).unwrap();
    refused(v.stat(made), ESTALE);
}

fn a_link_can_replace_a_file(v: &dyn Volume) {
    let (old, new) = (file_with(v, b"file", b"old"), file_with(v, b"new", b"new"));
    dir(v, v.root(), b"dir");
    v.check_replaceable(v.root(), b"file", &Caller::root()).unwrap();
    v.link_over(v.root(), b"file", new, &Caller::root()).unwrap();
    assert_eq!(bytes(v, v.lookup(v.root(), b"file").unwrap().inode), b"new");
    assert_eq!(stat(v, new).links, 2);
    refused(v.stat(old), ESTALE);
    v.link_over(v.root(), b"file", new, &Caller::root()).unwrap();
    v.link_over(v.root(), b"third", new, &Caller::root()).unwrap();
    assert_eq!(stat(v, new).links, 3);
    refused(v.link_over(v.root(), b"dir", new, &Caller::root()), EISDIR);
    refused(v.check_replaceable(v.root(), b"none", &Caller::root()), ENOENT);
    assert_eq!(list(v, v.root()), [b"dir".to_vec(), b"file".to_vec(), b"new".to_vec(), b"third".to_vec()]);
}

fn small_files_are_made_together(v: &dyn Volume) {
    let time = Timestamp { seconds: 5, nanoseconds: 6 };
    let xattrs = [(b"user.a".to_vec(), b"b".to_vec())];
    let new = |name, contents| WholeFile {
        name,
        permissions: xfskit_vfs::Permissions::new(0o640),
        uid: 7,
        gid: 8,
        atime: time,
        mtime: time,
        xattrs: &xattrs,
        contents,
    };
    let files = [new(b"one".as_slice(), b"1".as_slice()), new(b"two", b"22"), new(b"empty", b"")];
    if !files.iter().all(|file| v.is_small(file)) {
        return;
    }
    let mut made = 0;
    while made < files.len() {
        made += v.make_files(v.root(), &files[made..]).unwrap().len();
    }
    for file in &files {
        let found = v.lookup(v.root(), file.name).unwrap();
        assert_eq!(bytes(v, found.inode), file.contents);
        assert_eq!((found.permissions.bits(), found.uid, found.gid, found.links), (0o640, 7, 8, 1));
        assert_eq!((found.atime, found.mtime), (time, time));
        assert_eq!(v.get_xattr(found.inode, b"user.a").unwrap(), b"b");
    }
    refused(v.make_files(v.root(), &[new(b"two", b""), new(b"other", b"")]), EEXIST);
    refused(v.make_files(v.root(), &[new(b"other", b""), new(b"other", b"")]), EEXIST);
    refused(v.lookup(v.root(), b"other"), ENOENT);
}
