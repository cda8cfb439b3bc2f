//! What a new file inherits from a default ACL is part of the transaction that makes it.

use crate::stress::{DIR, FILE, Image};
use crate::{counted, make, set};
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use xfskit_testkit::{TreeEntry, kernel_mount};

/// An ACL in the form for users, with a named user.
pub fn acl() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [(1_u16, 7_u16, u32::MAX), (2, 5, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX)] {
        bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes.extend([0x20, 0, 1, 0, 0xff, 0xff, 0xff, 0xff]);
    bytes
}

#[test]
fn a_file_under_a_default_acl_takes_one_transaction() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let dir = make(&fs, fs.root(), "dir", DIR | 0o755);
    set(&fs, dir, "system.posix_acl_default", &acl());
    // Its chunk of inodes is there already.
    make(&fs, dir, "first", FILE | 0o666);
    // An access ACL besides the parent pointer; a directory gets a default ACL as well.
    for (name, mode, attributes) in [("our file", FILE | 0o666, 2), ("our dir", DIR | 0o777, 3)] {
        let count = counted(&fs, || _ = make(&fs, dir, name, mode));
        count.expect(&[("transactions", 1), ("attr_fast_path", attributes), ("intents_whited_out", 0)]);
    }
    let count = counted(&fs, || fs.sync().unwrap());
    count.expect(&[("intents_logged", 0)]);
    drop(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let file = kernel.path().join("dir/its file");
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(file).unwrap();
    DirBuilder::new().mode(0o777).create(kernel.path().join("dir/its dir")).unwrap();
    let tree = kernel.into_tree();
    image.assert_sound();
    let of = |path: &str| -> TreeEntry {
        tree.iter().find(|entry| entry.path.to_str() == Some(path)).unwrap_or_else(|| panic!("{path}")).clone()
    };
    for kind in ["file", "dir"] {
        let (ours, kernels) = (of(&format!("dir/our {kind}")), of(&format!("dir/its {kind}")));
        // On the disk, an entry without a name may have any number.
        let acls = |entry: &TreeEntry| -> Vec<_> {
            entry.xattrs.iter().filter(|(name, _)| name.starts_with("system.")).cloned().collect()
        };
        assert_eq!((ours.mode, acls(&ours)), (kernels.mode, acls(&kernels)), "{kind}");
        assert!(!acls(&ours).is_empty());
    }
}
