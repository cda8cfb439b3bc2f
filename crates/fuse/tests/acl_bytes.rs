//! ACLs are stored as the kernel stores them, to the byte: the same commands on a mount by xfskit and on the kernel's.

mod common;

use common::{has, mounted, run};
use std::path::Path;
use xfskit_testkit::kernel_mount;

/// ACLs of all kinds of entries, set, inherited, changed by chmod and taken away in part.
const CHANGE: &str = "umask 027 && mkdir acls && cd acls && touch a b c d && mkdir dir
    setfacl -m u:1234:rwx,g:77:r-x,g:5:-w- a
    setfacl -m m::r-x b
    setfacl -m u:0:rwx,u:4294967294:r-- c && chmod 640 c
    setfacl -m u:9:rwx d && setfacl -b d
    setfacl -m d:u:5:r-x,d:g:6:rwx,d:m::rwx,u:8:rwx dir
    touch dir/file && mkdir dir/sub && touch dir/sub/file && ln -s file dir/link && mkfifo dir/pipe
    setfacl -k dir/sub && setfacl -x u:8 dir";

const LIST: &str = "getfattr -R -h -d -m '^(trusted.SGI|system.posix)' -e hex acls | sort";

fn stored(folder: &Path) -> String {
    run("bash", &["-ec", &format!("cd \"$1\"\n({CHANGE})\n{LIST}"), "bash"], folder)
}

#[test]
fn acls_have_the_kernels_bytes() {
    if !rustix::process::geteuid().is_root() || !has("setfacl") || !has("getfattr") {
        return;
    }
    let Some(fixture) = mounted() else { return };
    let ours = stored(&fixture.path(""));
    assert!(ours.matches("trusted.SGI_ACL_FILE").count() > 5, "{ours}");
    let scratch = fixture.unmount();
    let image = scratch.file("a.img");
    let Some(kernel) = kernel_mount(&image) else { return };
    // As the kernel reads them.
    assert_eq!(run("bash", &["-ec", &format!("cd \"$1\"\n{LIST}"), "bash"], kernel.path()), ours);
    // As it writes them.
    std::fs::rename(kernel.path().join("acls"), kernel.path().join("ours")).unwrap();
    assert_eq!(stored(kernel.path()), ours);
    kernel.unmount();
}
