//! Names: making, finding, listing and removing.

use crate::errno::{EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY};
use crate::given::{PLAIN, cases, chmod, chown, dir, file, list, refused, rename, stat, user};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use xfskit_vfs::{Caller, FileType, LastLink, NewFile, Permissions, Volume};

cases!(Volume:
    a_new_filesystem_is_an_empty_directory,
    a_file_of_each_type_is_made_and_found,
    a_name_is_as_long_as_the_limit_and_no_longer,
    a_target_is_as_long_as_the_limit_and_no_longer,
    a_name_holds_any_byte_but_a_slash_and_a_zero,
    a_name_is_not_empty_and_holds_no_slash,
    a_name_that_is_there_is_not_made_again,
    what_is_not_there_is_not_found,
    only_a_directory_has_names,
    an_empty_directory_is_removed,
    dot_and_dotdot_are_not_removed,
    nothing_is_made_in_a_removed_directory,
    a_directory_counts_its_subdirectories,
    a_listing_shows_every_name_once_and_goes_on_at_each_cookie,
    a_listing_goes_on_while_names_go,
    a_path_leads_through_links,
    a_path_that_leads_in_circles_is_refused,
    permissions_have_twelve_bits,
    a_device_number_is_a_device_nodes,
    a_umask_takes_permissions_away,
    a_set_group_id_directory_hands_down_its_group,
);

fn a_new_filesystem_is_an_empty_directory(v: &dyn Volume) {
    let root = stat(v, v.root());
    assert_eq!((root.inode, root.file_type, root.links), (v.root(), FileType::Dir, 2));
    assert!(list(v, v.root()).is_empty());
    for name in [b".".as_slice(), b".."] {
        assert_eq!(v.lookup(v.root(), name).unwrap().inode, v.root());
    }
    assert!(v.is_in_use(v.root()).unwrap());
}

fn a_file_of_each_type_is_made_and_found(v: &dyn Volume) {
    let new = |file_type| NewFile::new(file_type, Permissions::new(0o640));
    let all = [
        NewFile::file(0o640),
        NewFile::dir(0o640),
        NewFile::symlink(b"target"),
        NewFile { device: 0x0103, ..new(FileType::CharDevice) },
        NewFile { device: 0x0801, ..new(FileType::BlockDevice) },
        new(FileType::Fifo),
        new(FileType::Socket),
    ];
    for (number, new) in all.iter().enumerate() {
        let name = format!("file {number}");
        let made = v.create(v.root(), name.as_bytes(), new, &Caller::root()).unwrap();
        assert_eq!((made.file_type, made.device), (new.file_type, new.device));
        assert_eq!((made.uid, made.gid, made.links), (0, 0, if new.file_type.is_dir() { 2 } else { 1 }));
        if !new.file_type.is_symlink() {
            assert_eq!(made.permissions, new.permissions);
        }
        assert_eq!(v.lookup(v.root(), name.as_bytes()).unwrap(), made);
        assert_eq!(stat(v, made.inode), made);
        assert!(v.is_in_use(made.inode).unwrap());
        if new.file_type.is_symlink() {
            assert_eq!(v.read_link(made.inode).unwrap(), b"target");
            assert_eq!(made.size, 6);
        } else {
            refused(v.read_link(made.inode), EINVAL);
        }
    }
    for entry in v.list_dir(v.root()).unwrap() {
        let found = v.lookup(v.root(), &entry.name).unwrap();
        assert_eq!(entry.inode, found.inode);
        assert!(entry.file_type.is_none_or(|file_type| file_type == found.file_type));
    }
}

fn a_name_is_as_long_as_the_limit_and_no_longer(v: &dyn Volume) {
    let (most, root) = (vec![b'n'; v.limits().name_bytes], v.root());
    let longer = [most.as_slice(), b"n"].concat();
    let made = file(v, root, &most);
    assert_eq!(v.lookup(root, &most).unwrap().inode, made);
    assert_eq!(list(v, root), std::slice::from_ref(&most));
    refused(v.create(root, &longer, &NewFile::file(0o644), &Caller::root()), ENAMETOOLONG);
    refused(v.create(root, &longer, &NewFile::dir(0o755), &Caller::root()), ENAMETOOLONG);
    refused(v.lookup(root, &longer), ENAMETOOLONG);
    refused(v.link(root, &longer, made, &Caller::root()), ENAMETOOLONG);
    refused(v.unlink(root, &longer, &Caller::root()), ENAMETOOLONG);
    refused(v.rmdir(root, &longer, &Caller::root()), ENAMETOOLONG);
    refused(rename(v, (root, &most), (root, &longer), PLAIN), ENAMETOOLONG);
    refused(rename(v, (root, &longer), (root, b"a"), PLAIN), ENAMETOOLONG);
    v.unlink(root, &most, &Caller::root()).unwrap();
}

fn a_target_is_as_long_as_the_limit_and_no_longer(v: &dyn Volume) {
    let most = vec![b't'; v.limits().symlink_bytes];
    let made = v.symlink(v.root(), b"link", &most, &Caller::root()).unwrap();
    assert_eq!((v.read_link(made.inode).unwrap(), made.size), (most.clone(), most.len() as u64));
    refused(v.symlink(v.root(), b"longer", &[most.as_slice(), b"t"].concat(), &Caller::root()), ENAMETOOLONG);
    refused(v.lookup(v.root(), b"longer"), ENOENT);
}

fn a_name_holds_any_byte_but_a_slash_and_a_zero(v: &dyn Volume) {
    let mut names: Vec<_> = (1..=255).filter(|byte| ![b'/', b'.'].contains(byte)).map(|byte| vec![byte]).collect();
    names.extend([b"...".to_vec(), b".. ".to_vec(), b"\xff\xfe\n".to_vec()]);
    names.sort();
    for name in &names {
        file(v, v.root(), name);
    }
    assert_eq!(list(v, v.root()), names);
    for name in &names {
        v.unlink(v.root(), name, &Caller::root()).unwrap();
    }
    assert!(list(v, v.root()).is_empty());
}

fn a_name_is_not_empty_and_holds_no_slash(v: &dyn Volume) {
    for name in [b"".as_slice(), b"a/b", b"/", b"a\0b"] {
        refused(v.lookup(v.root(), name), EINVAL);
        refused(v.create(v.root(), name, &NewFile::file(0o644), &Caller::root()), EINVAL);
    }
}

fn a_name_that_is_there_is_not_made_again(v: &dyn Volume) {
    let other = file(v, v.root(), b"other");
    file(v, v.root(), b"file");
    dir(v, v.root(), b"dir");
    for name in [b"file".as_slice(), b"dir", b".", b".."] {
        refused(v.create(v.root(), name, &NewFile::dir(0o755), &Caller::root()), EEXIST);
        refused(v.create(v.root(), name, &NewFile::file(0o644), &Caller::root()), EEXIST);
        refused(v.symlink(v.root(), name, b"target", &Caller::root()), EEXIST);
        refused(v.link(v.root(), name, other, &Caller::root()), EEXIST);
    }
}

fn what_is_not_there_is_not_found(v: &dyn Volume) {
    refused(v.lookup(v.root(), b"none"), ENOENT);
    refused(v.unlink(v.root(), b"none", &Caller::root()), ENOENT);
    refused(v.rmdir(v.root(), b"none", &Caller::root()), ENOENT);
    refused(rename(v, (v.root(), b"none"), (v.root(), b"other"), PLAIN), ENOENT);
    refused(v.resolve(b"/none", LastLink::Follow), ENOENT);
}

fn only_a_directory_has_names(v: &dyn Volume) {
    let other = file(v, v.root(), b"other");
    let plain = file(v, v.root(), b"file");
    refused(v.lookup(plain, b"name"), ENOTDIR);
    refused(v.create(plain, b"name", &NewFile::file(0o644), &Caller::root()), ENOTDIR);
    refused(v.link(plain, b"name", other, &Caller::root()), ENOTDIR);
    refused(v.unlink(plain, b"name", &Caller::root()), ENOTDIR);
    refused(v.rmdir(plain, b"name", &Caller::root()), ENOTDIR);
    refused(rename(v, (plain, b"name"), (v.root(), b"a"), PLAIN), ENOTDIR);
    refused(rename(v, (v.root(), b"other"), (plain, b"name"), PLAIN), ENOTDIR);
    refused(v.list_dir(plain), ENOTDIR);
    refused(v.rmdir(v.root(), b"file", &Caller::root()), ENOTDIR);
    refused(v.resolve(b"/file/", LastLink::Follow), ENOTDIR);
    refused(v.resolve(b"/file/name", LastLink::Follow), ENOTDIR);
}

fn an_empty_directory_is_removed(v: &dyn Volume) {
    let made = dir(v, v.root(), b"dir");
    file(v, made, b"file");
    refused(v.rmdir(v.root(), b"dir", &Caller::root()), ENOTEMPTY);
    refused(v.unlink(v.root(), b"dir", &Caller::root()), EISDIR);
    v.unlink(made, b"file", &Caller::root()).unwrap();
    v.rmdir(v.root(), b"dir", &Caller::root()).unwrap();
    refused(v.lookup(v.root(), b"dir"), ENOENT);
    assert!(list(v, v.root()).is_empty());
}

fn dot_and_dotdot_are_not_removed(v: &dyn Volume) {
    let made = dir(v, v.root(), b"dir");
    refused(v.rmdir(made, b".", &Caller::root()), EINVAL);
    refused(v.rmdir(made, b"..", &Caller::root()), ENOTEMPTY);
}

fn nothing_is_made_in_a_removed_directory(v: &dyn Volume) {
    let made = dir(v, v.root(), b"dir");
    let other = file(v, v.root(), b"file");
    v.add_reference(made).unwrap();
    v.rmdir(v.root(), b"dir", &Caller::root()).unwrap();
    assert_eq!(stat(v, made).links, 0);
    refused(v.create(made, b"name", &NewFile::file(0o644), &Caller::root()), ENOENT);
    refused(v.create(made, b"name", &NewFile::dir(0o755), &Caller::root()), ENOENT);
    refused(v.link(made, b"name", other, &Caller::root()), ENOENT);
    refused(rename(v, (v.root(), b"file"), (made, b"name"), PLAIN), ENOENT);
    v.drop_references(made, 1).unwrap();
}

fn a_directory_counts_its_subdirectories(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    file(v, top, b"file");
    assert_eq!(stat(v, top).links, 2);
    for number in 0..5 {
        let below = dir(v, top, format!("dir {number}").as_bytes());
        assert_eq!((stat(v, top).links, stat(v, below).links), (3 + number, 2));
        assert_eq!(v.lookup(below, b"..").unwrap().inode, top);
    }
    v.rmdir(top, b"dir 3", &Caller::root()).unwrap();
    assert_eq!(stat(v, top).links, 6);
}

fn a_listing_shows_every_name_once_and_goes_on_at_each_cookie(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    let mut names = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
    for number in 0..600 {
        let name = format!("a file with the number {number}").into_bytes();
        file(v, top, &name);
        names.insert(name);
    }
    let mut shown = Vec::new();
    v.read_dir(top, 0, &mut |entry| {
        shown.push((entry.name.to_vec(), entry.next_cookie));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(shown.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>(), names);
    assert_eq!(shown.len(), names.len(), "every name is shown once");
    for (at, (_, cookie)) in shown.iter().enumerate().step_by(37) {
        let mut rest = Vec::new();
        v.read_dir(top, *cookie, &mut |entry| {
            rest.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(rest.iter().eq(shown[at + 1..].iter().map(|(name, _)| name)), "from cookie {cookie}");
    }
}

fn a_listing_goes_on_while_names_go(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    for number in 0..300 {
        file(v, top, format!("file {number}").as_bytes());
    }
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let mut batch = Vec::new();
        v.read_dir(top, cookie, &mut |entry| {
            if !entry.name.starts_with(b".") {
                batch.push(entry.name.to_vec());
            }
            cookie = entry.next_cookie;
            if batch.len() == 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        if batch.is_empty() {
            break;
        }
        for name in &batch {
            v.unlink(top, name, &Caller::root()).unwrap();
            removed += 1;
        }
    }
    assert_eq!((removed, list(v, top).len()), (300, 0));
}

fn a_path_leads_through_links(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    let below = dir(v, top, b"below");
    let plain = file(v, below, b"file");
    let link = v.symlink(v.root(), b"link", b"top/below", &Caller::root()).unwrap().inode;
    v.symlink(top, b"up", b"/link/../below/file", &Caller::root()).unwrap();
    let resolve = |path: &str, last| v.resolve(path.as_bytes(), last).unwrap().inode;
    assert_eq!(resolve("/", LastLink::Follow), v.root());
    assert_eq!(resolve("/top//below/./file", LastLink::Follow), plain);
    assert_eq!(resolve("/link/file", LastLink::Keep), plain);
    assert_eq!(resolve("/top/up", LastLink::Follow), plain);
    assert_eq!(resolve("/link", LastLink::Keep), link);
    assert_eq!(resolve("/link/", LastLink::Keep), below);
    assert_eq!(resolve("/../top/below/..", LastLink::Follow), top);
}

fn a_path_that_leads_in_circles_is_refused(v: &dyn Volume) {
    v.symlink(v.root(), b"one", b"other", &Caller::root()).unwrap();
    v.symlink(v.root(), b"other", b"one", &Caller::root()).unwrap();
    refused(v.resolve(b"/one", LastLink::Follow), ELOOP);
    v.resolve(b"/one", LastLink::Keep).unwrap();
}

fn permissions_have_twelve_bits(v: &dyn Volume) {
    let made = v.create(v.root(), b"all", &NewFile::file(0o7777), &Caller::root()).unwrap();
    assert_eq!(made.permissions.bits(), 0o7777);
    refused(v.create(v.root(), b"more", &NewFile::file(0o10_777), &Caller::root()), EINVAL);
}

fn a_device_number_is_a_device_nodes(v: &dyn Volume) {
    let new = NewFile { device: 0x0103, ..NewFile::file(0o644) };
    refused(v.create(v.root(), b"file", &new, &Caller::root()), EINVAL);
    refused(v.lookup(v.root(), b"file"), ENOENT);
}

fn a_umask_takes_permissions_away(v: &dyn Volume) {
    let new = NewFile { umask: 0o027, ..NewFile::file(0o4777) };
    let made = v.create(v.root(), b"file", &new, &Caller::root()).unwrap();
    assert_eq!(made.permissions.bits(), 0o4750);
}

fn a_set_group_id_directory_hands_down_its_group(v: &dyn Volume) {
    let top = dir(v, v.root(), b"top");
    chown(v, top, 0, 50);
    chmod(v, top, 0o2777);
    let below = v.create(top, b"dir", &NewFile::dir(0o755), &user(1000)).unwrap();
    assert_eq!((below.uid, below.gid, below.permissions.bits()), (1000, 50, 0o2755));
    let plain = v.create(top, b"file", &NewFile::file(0o644), &user(1000)).unwrap();
    assert_eq!((plain.uid, plain.gid, plain.permissions.bits()), (1000, 50, 0o644));
    // Who is not in the group does not make programs that run as it.
    let foreign = v.create(top, b"program", &NewFile::file(0o2755), &user(1000)).unwrap();
    assert_eq!((foreign.gid, foreign.permissions.bits()), (50, 0o755));
    let member = Caller { groups: vec![50], ..user(1000) };
    let own = v.create(top, b"own", &NewFile::file(0o2755), &member).unwrap();
    assert_eq!((own.gid, own.permissions.bits()), (50, 0o2755));
    let roots = v.create(top, b"root's", &NewFile::file(0o2755), &Caller::root()).unwrap();
    assert_eq!((roots.gid, roots.permissions.bits()), (50, 0o2755));
}
