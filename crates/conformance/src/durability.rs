//! What a reopening and a crash leave.

use crate::Make;
use crate::errno::{EINVAL, ENOENT};
use crate::given::{PLAIN, bytes, cases, dir, file, file_with, list, refused, rename};
use xfskit_vfs::{Caller, NewFile, SetMode, SyncKind, Volume};

cases!(Media:
    what_was_done_is_there_when_the_filesystem_is_opened_again,
    a_file_without_a_name_is_gone_when_the_filesystem_is_opened_again,
    what_was_synced_survives_a_crash,
    what_was_fsynced_survives_a_crash,
    fsyncs_are_begun_and_waited_for_together,
    a_point_of_another_filesystem_is_refused,
);

/// A tree to find again.
fn fill(v: &dyn Volume) {
    let top = dir(v, v.root(), b"dir");
    let made = file_with(v, b"file", b"contents");
    v.set_xattr(made, b"user.a", b"b", SetMode::Any, &Caller::root()).unwrap();
    v.link(top, b"link", made, &Caller::root()).unwrap();
    v.symlink(top, b"symlink", b"target", &Caller::root()).unwrap();
    v.set_label(b"label").unwrap();
}

fn look(v: &dyn Volume) {
    assert_eq!(list(v, v.root()), [b"dir".to_vec(), b"file".to_vec()]);
    let (top, made) = (v.lookup(v.root(), b"dir").unwrap().inode, v.lookup(v.root(), b"file").unwrap());
    assert_eq!((made.links, bytes(v, made.inode)), (2, b"contents".to_vec()));
    assert_eq!(v.get_xattr(made.inode, b"user.a").unwrap(), b"b");
    assert_eq!(v.lookup(top, b"link").unwrap(), made);
    assert_eq!(v.read_link(v.lookup(top, b"symlink").unwrap().inode).unwrap(), b"target");
    assert_eq!(v.label(), b"label");
}

fn what_was_done_is_there_when_the_filesystem_is_opened_again(make: Make<'_>) {
    let medium = make();
    let volume = medium.open();
    fill(&*volume);
    look(&*volume);
    volume.unmount().unwrap();
    look(&*medium.open());
}

fn a_file_without_a_name_is_gone_when_the_filesystem_is_opened_again(make: Make<'_>) {
    let medium = make();
    let v = medium.open();
    let free = v.statfs().unwrap().free_blocks;
    let made = file_with(&*v, b"file", &vec![1; 4 << 20]);
    v.add_reference(made).unwrap();
    v.unlink(v.root(), b"file", &Caller::root()).unwrap();
    v.tmpfile(v.root(), &NewFile::file(0o644), &Caller::root()).unwrap();
    v.unmount().unwrap();
    let v = medium.open();
    assert!(list(&*v, v.root()).is_empty());
    let now = v.statfs().unwrap();
    assert!((now.free_blocks + 64) >= free, "{now:?}, and {free} were free");
}

fn what_was_synced_survives_a_crash(make: Make<'_>) {
    let medium = make();
    let volume = medium.open();
    fill(&*volume);
    volume.sync().unwrap();
    look(&*medium.after_crash().open());
}

fn what_was_fsynced_survives_a_crash(make: Make<'_>) {
    let medium = make();
    let v = medium.open();
    let (old, new) = (file_with(&*v, b"file", b"old"), file_with(&*v, b"new", b"new"));
    v.fsync(old).unwrap();
    v.fsync(new).unwrap();
    rename(&*v, (v.root(), b"new"), (v.root(), b"file"), PLAIN).unwrap();
    v.append(new, b" and more").unwrap();
    v.fsync(new).unwrap();
    v.fsync(v.root()).unwrap();
    let v = medium.after_crash().open();
    assert_eq!(bytes(&*v, v.lookup(v.root(), b"file").unwrap().inode), b"new and more");
    refused(v.lookup(v.root(), b"new"), ENOENT);
}

fn fsyncs_are_begun_and_waited_for_together(make: Make<'_>) {
    let medium = make();
    let v = medium.open();
    let mut point = xfskit_vfs::SyncPoint::default();
    v.await_durable(point).unwrap();
    for name in [b"one".as_slice(), b"two", b"three"] {
        let made = file_with(&*v, name, name);
        point = point.and(v.begin_fsync(made, SyncKind::Full).unwrap());
        point = point.and(v.begin_fsync(made, SyncKind::Data).unwrap());
    }
    v.await_durable(point).unwrap();
    v.await_durable(point).unwrap();
    let v = medium.after_crash().open();
    for name in [b"one".as_slice(), b"two", b"three"] {
        assert_eq!(bytes(&*v, v.lookup(v.root(), name).unwrap().inode), name);
    }
}

fn a_point_of_another_filesystem_is_refused(make: Make<'_>) {
    let media = [make(), make()];
    let [one, two] = [media[0].open(), media[1].open()];
    let points = [&one, &two].map(|v| v.begin_fsync(file(&**v, v.root(), b"file"), SyncKind::Full).unwrap());
    refused(one.await_durable(points[1]), EINVAL);
    refused(two.await_durable(points[0].and(points[1])), EINVAL);
    one.await_durable(points[0]).unwrap();
}
