//! The replace in place: an attribute of the same lengths stays where it is, any other goes to the end.

use crate::stress::Image;
use crate::{counted, kernels_tree, make_file, set, xattr};
use rustix::fs::listxattr;
use std::path::Path;
use xfskit_engine::{Caller, RenameFlags, Volume};
use xfskit_testkit::kernel_mount;

/// The names of a file's attributes in the order in which the inode has them.
fn kernels_order(file: &Path) -> Vec<String> {
    let mut names = [0; 4096];
    let length = listxattr(file, &mut names[..]).unwrap();
    let names = String::from_utf8(names[..length].to_vec()).unwrap();
    names.split_terminator('\0').map(str::to_owned).collect()
}

fn our_order(fs: &Volume) -> Vec<String> {
    let inode = fs.lookup(fs.root(), b"file").unwrap().inode;
    fs.list_xattrs(inode).unwrap().into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn a_value_of_the_same_length_stays_where_it_is() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let inode = make_file(&fs, "file");
    set(&fs, inode, "user.a", b"one");
    set(&fs, inode, "user.b", b"two");
    let count = counted(&fs, || set(&fs, inode, "user.a", b"six"));
    count.expect(&[("attr_in_place", 1), ("attr_fast_path", 1), ("transactions", 1)]);
    assert_eq!(our_order(&fs), ["user.a", "user.b"]);
    fs.sync().unwrap();
    drop(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    assert_eq!(kernels_order(&kernel.path().join("file")), ["user.a", "user.b"]);
    kernel.unmount();
    let tree = kernels_tree(&image).unwrap();
    assert_eq!(xattr(&tree, "file", "user.a"), Some(&b"six"[..]));
}

#[test]
fn a_value_of_another_length_goes_to_the_end() {
    for value in [&b"three"[..], b"3", b""] {
        let image = Image::new(64, &[]);
        let fs = image.open();
        let inode = make_file(&fs, "file");
        set(&fs, inode, "user.a", b"one");
        set(&fs, inode, "user.b", b"two");
        let count = counted(&fs, || set(&fs, inode, "user.a", value));
        count.expect(&[("attr_in_place", 0), ("attr_fast_path", 1), ("transactions", 1)]);
        assert_eq!(our_order(&fs), ["user.b", "user.a"]);
        fs.sync().unwrap();
        drop(fs);
        let Some(tree) = kernels_tree(&image) else { return };
        assert_eq!(xattr(&tree, "file", "user.a"), Some(value));
    }
}

#[test]
fn a_parent_pointer_of_a_name_of_the_same_length_stays_where_it_is() {
    for (new_name, in_place) in [("other", 1), ("another", 0), ("o", 0)] {
        let image = Image::new(64, &[]);
        let fs = image.open();
        let inode = make_file(&fs, "first");
        fs.link(fs.root(), b"secnd", inode, &Caller::root()).unwrap();
        let rename = |from: &str, to: &str| {
            let (root, none) = (fs.root(), RenameFlags::default());
            fs.rename(root, from.as_bytes(), root, to.as_bytes(), none, &Caller::root()).unwrap();
        };
        let count = counted(&fs, || rename("first", new_name));
        count.expect(&[("attr_in_place", in_place), ("attr_fast_path", 1), ("transactions", 1)]);
        count.expect(&[("intents_whited_out", 0)]);
        let names: Vec<_> = fs.parents(inode).unwrap().into_iter().map(|(_, name)| name).collect();
        let mut expected = [new_name.as_bytes(), b"secnd"];
        if in_place == 0 {
            expected.reverse();
        }
        assert_eq!(names, expected);
        fs.sync().unwrap();
        drop(fs);
        // xfs_repair compares the pointers with the names.
        let Some(tree) = kernels_tree(&image) else { return };
        assert!(tree.iter().any(|entry| entry.path.to_str() == Some(new_name) && entry.links == 2));
    }
}
