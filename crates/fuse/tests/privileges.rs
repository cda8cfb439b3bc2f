//! Set-ID bits and ACLs when other users change a file, compared with the kernel's XFS.

mod common;

use common::{NOBODY, both, has, run};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use xfskit_fuse::WriteCache;

/// Runs a script with setpriv on a new file of the given mode; returns the mode afterwards, and whether it succeeded.
fn after(dir: &Path, mode: u32, who: &[&str], script: &str) -> (u32, bool) {
    let path = dir.join("file");
    fs::write(&path, vec![b'x'; 8192]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let mut command = Command::new("setpriv");
    let output = command.args(who).args(["sh", "-c", script, "sh"]).arg(&path).output().unwrap();
    let found = (fs::metadata(&path).unwrap().mode() & 0o7777, output.status.success());
    fs::remove_file(&path).unwrap();
    found
}

const FALLOCATE: &str = "fallocate -l 20000 \"$1\"";
const PUNCH: &str = "fallocate -p -l 4096 \"$1\"";
const TRUNCATE: &str = ": > \"$1\"";
const WRITE: &str = "echo more >> \"$1\"";

/// This holds for the set-group-ID bit of files that are not executable too.
#[test]
fn who_is_not_in_the_group_takes_its_bit_away() {
    let Some((fixture, kernel, _image)) = both(WriteCache::Back) else { return };
    let member = ["--reuid", "65534", "--regid", "0", "--clear-groups"];
    for mode in [0o2666, 0o6777, 0o4666, 0o6666] {
        for (who, script) in [(&NOBODY, FALLOCATE), (&NOBODY, PUNCH), (&NOBODY, TRUNCATE), (&member, FALLOCATE)] {
            let kernels = after(kernel.path(), mode, who, script);
            assert_eq!(after(&fixture.path(""), mode, who, script), kernels, "{mode:o} {who:?} {script}");
        }
    }
    kernel.unmount();
    fixture.judge(|_| ());
}

#[test]
fn without_the_cache_writes_do_so_too() {
    let Some((fixture, kernel, _image)) = both(WriteCache::Through) else { return };
    for mode in [0o2666, 0o6777, 0o4666] {
        for script in [WRITE, FALLOCATE, TRUNCATE] {
            let kernels = after(kernel.path(), mode, &NOBODY, script);
            assert_eq!(after(&fixture.path(""), mode, &NOBODY, script), kernels, "{mode:o} {script}");
        }
    }
    kernel.unmount();
    fixture.judge(|_| ());
}

/// Root without the capability is treated like any other user.
#[test]
fn root_without_the_capability_keeps_no_bits() {
    let Some((fixture, kernel, _image)) = both(WriteCache::Back) else { return };
    let who = ["--inh-caps", "-fsetid", "--bounding-set", "-fsetid"];
    for script in [TRUNCATE, FALLOCATE] {
        let kernels = after(kernel.path(), 0o6777, &who, script);
        assert_eq!(kernels, (0o777, true));
        assert_eq!(after(&fixture.path(""), 0o6777, &who, script), kernels, "{script}");
        assert_eq!(after(&fixture.path(""), 0o6777, &["--no-new-privs"], script), (0o6777, true));
    }
    kernel.unmount();
    fixture.judge(|_| ());
}

/// The kernel must forget the ACL that it has cached.
#[test]
fn an_acl_that_is_removed_by_its_name_on_disk_grants_nothing() {
    if !has("setfacl") || !has("setfattr") {
        return;
    }
    let Some((fixture, kernel, _image)) = both(WriteCache::Back) else { return };
    for dir in [kernel.path(), &fixture.path("")] {
        let path = dir.join("file");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        run("setfacl", &["-m", "u:65534:r"], &path);
        let may_read = || Command::new("setpriv").args(NOBODY).arg("cat").arg(&path).output().unwrap().status.success();
        assert!(may_read(), "{}", path.display());
        run("setfattr", &["-x", "trusted.SGI_ACL_FILE"], &path);
        assert!(!may_read(), "{}", path.display());
    }
    kernel.unmount();
    fixture.judge(|_| ());
}
