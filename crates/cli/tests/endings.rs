//! What people meet at the end of a mount: an image that was deleted, a server that died, other mount namespaces; and a
//! mount by `mount.fuse`.

mod common;

use common::mounts::{Prepared, prepared, prepared_for_root, server_of, signal, wait_for_end};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{kernel_mount, skip};

fn within(time: Duration, is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn is_mounted(prepared: &Prepared) -> bool {
    xfskit_fuse::mount_at(&prepared.dir.canonicalize().unwrap_or_else(|_| prepared.dir.clone())).unwrap().is_some()
}

#[test]
fn an_image_that_is_deleted_under_its_mount_is_warned_of_and_can_be_saved() {
    let Some(prepared) = prepared_for_root() else { return };
    let (log, saved) = (prepared.scratch.file("log"), prepared.scratch.file("saved.img"));
    prepared.line(&format!("mount --log-file {} IMAGE DIR", log.display()));
    fs::write(prepared.dir.join("file"), "contents").unwrap();
    fs::remove_file(&prepared.image).unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    assert!(within(Duration::from_secs(10), || said().contains("was deleted while it is mounted")), "{}", said());
    let message = said();
    let (_, place) = message.split_once("--sparse=always ").expect("the way to save it");
    let place = place.split(' ').next().unwrap();
    assert!(Command::new("sync").arg("-f").arg(&prepared.dir).status().unwrap().success());
    prepared.line("mount -o remount,ro IMAGE DIR");
    assert!(Command::new("cp").args(["--sparse=always", place]).arg(&saved).status().unwrap().success());
    let output = common::xfskit(["umount".as_ref(), prepared.dir.as_os_str()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.contains("is not there any more"), "{error}");
    let Some(kernel) = kernel_mount(&saved) else { return };
    assert_eq!(fs::read_to_string(kernel.path().join("file")).unwrap(), "contents");
    kernel.unmount();
}

#[test]
fn an_image_that_is_deleted_afterwards_is_no_matter() {
    let Some(prepared) = prepared() else { return };
    let log = prepared.scratch.file("log");
    prepared.line(&format!("mount --log-file {} IMAGE DIR", log.display()));
    let server = server_of(&prepared.image);
    prepared.line("umount DIR");
    fs::remove_file(&prepared.image).unwrap();
    wait_for_end(server);
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
}

/// `/dev/fuse` as udev makes it, which every user may open, for the time of a test.
struct EveryonesFuse(fs::Permissions);

impl EveryonesFuse {
    fn new() -> Self {
        let before = fs::metadata("/dev/fuse").unwrap().permissions();
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).unwrap();
        Self(before)
    }
}

impl Drop for EveryonesFuse {
    fn drop(&mut self) {
        let _ = fs::set_permissions("/dev/fuse", self.0.clone());
    }
}

/// fusermount3 unmounts only what it may look at.
#[test]
fn the_mount_of_a_server_that_died_goes_away_for_every_user() {
    let Some(prepared) = prepared_for_root() else { return };
    let _usable = EveryonesFuse::new();
    for user in [0, 65_534] {
        for path in [prepared.scratch.path(), &prepared.dir, &prepared.image] {
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut mount = Command::new("setpriv");
        let user = user.to_string();
        mount.args(["--reuid", &user, "--regid", &user, "--clear-groups", env!("CARGO_BIN_EXE_xfskit")]);
        mount.args(["mount", "-o", "auto_unmount"]).arg(&prepared.image).arg(&prepared.dir);
        let output = mount.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{user}: {error}");
        assert!(is_mounted(&prepared));
        signal(server_of(&prepared.image), "-KILL");
        assert!(within(Duration::from_secs(10), || !is_mounted(&prepared)), "user {user}: the dead mount stays");
    }
}

#[test]
fn an_unmount_that_waits_for_other_namespaces_says_so() {
    let Some(prepared) = prepared_for_root() else { return };
    prepared.line("mount IMAGE DIR");
    let mut other = Command::new("unshare");
    let mut other = other.args(["-m", "--propagation", "private", "sleep", "60"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut umount = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    let umount = umount.arg("umount").arg(&prepared.dir).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    other.kill().unwrap();
    other.wait().unwrap();
    let output = umount.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("other mount namespaces") && error.contains(&format!("{} (sleep)", other.id())), "{error}");
}

/// mount(8) calls it where the type has no helper of its own.
#[test]
fn mount_fuse_starts_the_server() {
    let Some(prepared) = prepared_for_root() else { return };
    if Command::new("mount.fuse3").arg("-V").output().is_err() {
        return skip("this machine has no mount.fuse3");
    }
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_xfskit"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    for options in ["rw,wsync", "ro"] {
        let mut mount = Command::new("mount.fuse3");
        mount.arg(&prepared.image).arg(&prepared.dir).args(["-t", "fuse.xfskit", "-o", options]).env("PATH", &path);
        let output = mount.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(prepared.dir.to_str().unwrap())).unwrap();
        assert!(line.contains("nosuid,nodev") && line.contains(&options[..2]), "{line}");
        prepared.line("umount DIR");
    }
}
