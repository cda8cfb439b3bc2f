//! Images on a Ceph cluster, by qemu-nbd: the server of a mount is killed; and one hangs, is fenced, and wakes up after
//! another mount has taken over. What was acknowledged is there, and the first mount changes nothing any more.

mod common;

use common::mounts::signal;
use common::{fails, ok};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::skip;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/ceph");

/// A cluster; it ends with the test.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    /// `None`, after printing the reason, where Ceph is not installed.
    fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || fs::metadata("/usr/bin/ceph-osd").is_err() {
            skip("Ceph is not installed (scripts/ceph install)");
            return None;
        }
        // The names of sockets are short.
        let cluster = Self { folder: tempfile::Builder::new().prefix("c").tempdir_in("/tmp").unwrap() };
        cluster.script(&["start"], &[]);
        Some(cluster)
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("c")
    }

    fn script(&self, verb: &[&str], rest: &[&str]) {
        let output = Command::new(SCRIPT).args(verb).arg(self.dir()).args(rest).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{verb:?} {rest:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn serve(&self, image: &str, name: &str) -> Server {
        let socket = self.folder.path().join(name);
        let export = format!("rbd:rbd/{image}:conf={}", self.dir().join("ceph.conf").display());
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-e", "4", "-f", "raw", "-k"]).arg(&socket).arg(export).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        await_that("the server listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        Server { child, address: format!("nbd+unix:///?socket={}", socket.display()).into() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(Command::new(SCRIPT).arg("stop").arg(self.dir()).status());
    }
}

struct Server {
    child: Child,
    address: PathBuf,
}

impl Server {
    fn signal(&self, name: &str) {
        signal(self.child.id().try_into().unwrap(), name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A mount point, unmounted in the end.
struct Place(PathBuf);

impl Place {
    fn new(cluster: &Cluster, name: &str, server: &Server) -> Self {
        let place = cluster.folder.path().join(name);
        fs::create_dir(&place).unwrap();
        ok(&format!("mount --others-kept-out IMAGE {}", place.display()), &server.address);
        Self(place)
    }

    fn unmount(&self) -> (i32, String) {
        fails(&format!("umount {}", self.0.display()), Path::new(""))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status());
    }
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn write(path: &Path, contents: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()
}

/// Writes files until one fails; returns how many were acknowledged.
fn write_until_refused(place: &Path) -> usize {
    (0..).find(|number| write(&place.join(number.to_string()), &number.to_string()).is_err()).unwrap()
}

#[test]
fn a_server_on_ceph_that_is_killed_leaves_what_was_acknowledged() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.script(&["image"], &["disk", "512M"]);
    let server = cluster.serve("disk", "a");
    ok("mkfs -q --others-kept-out IMAGE", &server.address);
    let place = Place::new(&cluster, "m", &server);
    let writer = {
        let place = place.0.clone();
        std::thread::spawn(move || write_until_refused(&place))
    };
    await_that("files are written", || place.0.join("20").exists());
    server.signal("-KILL");
    let acknowledged = writer.join().unwrap();
    assert_ne!(place.unmount().0, 0);
    drop(server);

    let server = cluster.serve("disk", "b");
    ok("--others-kept-out log replay IMAGE", &server.address);
    assert!(ok("check IMAGE", &server.address).ends_with("no faults\n"));
    for number in 0..acknowledged {
        assert_eq!(ok(&format!("cat IMAGE /{number}"), &server.address), number.to_string());
    }
}

#[test]
fn a_fenced_server_that_wakes_up_changes_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.script(&["image"], &["disk", "512M"]);
    let first = cluster.serve("disk", "a");
    ok("mkfs -q --others-kept-out IMAGE", &first.address);
    let place = Place::new(&cluster, "m", &first);
    write(&place.0.join("first"), "of the first").unwrap();
    first.signal("-STOP");
    cluster.script(&["fence"], &["disk"]);

    let second = cluster.serve("disk", "b");
    let other = Place::new(&cluster, "n", &second);
    assert_eq!(fs::read_to_string(other.0.join("first")).unwrap(), "of the first");
    write(&other.0.join("second"), "of the second").unwrap();

    first.signal("-CONT");
    assert!(write(&place.0.join("late"), "of the first").is_err());
    assert_ne!(place.unmount().0, 0);

    write(&other.0.join("third"), "of the second").unwrap();
    assert_eq!(other.unmount().0, 0);
    assert!(ok("check IMAGE", &second.address).ends_with("no faults\n"));
    assert_eq!(ok("ls IMAGE /", &second.address), "first\nsecond\nthird\n");
}
