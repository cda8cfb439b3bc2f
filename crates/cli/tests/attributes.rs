//! What `ls -l`, `ls -Z`, `stat` and `xattr dump` show of labels, ACLs, attributes and flags, compared with GNU's ls,
//! getfattr, getfacl and xfs_io on the kernel's mount.

mod common;

use common::{image, ok, words, xfskit};
use std::path::Path;
use xfskit_testkit::scratch;

/// A backup by `xattr dump` that lacks what one might expect says so.
#[test]
fn a_dump_says_what_it_left_out() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("touch IMAGE /a /b /c", &image);
    for (path, name) in [("/a", "user.x"), ("/a", "trusted.y"), ("/b", "trusted.z"), ("/b", "security.selinux")] {
        ok(&format!("xattr set IMAGE {path} {name} value"), &image);
    }
    let said = |line: &str| {
        let output = xfskit(words(line, Path::new(&image)));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let line = "xfskit: left out, since they do not begin with user.: 3 attributes of 2 files; -m - shows all\n";
    assert_eq!(said("xattr dump -R IMAGE /"), line);
    assert!(said("xattr dump IMAGE /a").contains(": 1 attribute of 1 file;"));
    for quiet in [
        "xattr dump IMAGE /c",
        "xattr dump -R IMAGE / -m -",
        "xattr dump -R IMAGE / -m user.",
        "--json xattr dump -R IMAGE /",
    ] {
        assert_eq!(said(quiet), "", "{quiet}");
    }
}
