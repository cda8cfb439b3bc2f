//! Sizes that are only claimed take no time, and a signal ends whatever reads an image.

mod common;

use common::disks::have;
use common::mounts::{prepared, signal};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, scratch, skip};

/// Long for a command that reads nothing, short for one that reads exabytes.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// How long a signal may take.
const STOPS_WITHIN: Duration = Duration::from_secs(4);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits for the end; kills what does not end.
fn ends(child: &mut Child, within: Duration, what: &str) -> ExitStatus {
    let end = Instant::now() + within;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A descriptor of 2^63 bytes of zeros.
fn vmdk_of_zeros(scratch: &Scratch) -> PathBuf {
    let path = scratch.file("zeros.vmdk");
    let text = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
                RW 18014398509481983 ZERO\n";
    fs::write(&path, text).unwrap();
    path
}

/// A sparse file of as many bytes as the host takes, up to 1 PiB.
fn sparse(scratch: &Scratch) -> PathBuf {
    let path = scratch.file("sparse.img");
    let file = File::create(&path).unwrap();
    let sizes = (30..=50).rev().map(|log| 1 << log);
    sizes.map(|size| file.set_len(size)).find(io::Result::is_ok).expect("room for a sparse file").unwrap();
    path
}

#[test]
fn what_is_not_there_takes_no_time_to_be_read() {
    let scratch = scratch();
    let mut images = vec![vmdk_of_zeros(&scratch), sparse(&scratch)];
    if have(&["qemu-img"]) {
        let path = scratch.file("sparse.qcow2");
        let arguments = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", path.to_str().unwrap(), "1P"];
        common::disks::run("qemu-img", &arguments);
        images.push(path);
    }
    for image in images {
        for line in ["info", "ls", "check", "find"] {
            let mut child = command(&[line, image.to_str().unwrap()]).spawn().unwrap();
            let status = ends(&mut child, ENDS_WITHIN, &format!("{line} of {}", image.display()));
            assert!(!status.success(), "{line} of {}: there is nothing", image.display());
        }
    }
    if !have(&["nbdkit"]) {
        return;
    }
    // A server that says where its holes are, and one that says nothing.
    for options in [&["-U", "-"][..], &["--no-sr", "-U", "-"]] {
        let run = format!("'{}' info \"$uri\"", env!("CARGO_BIN_EXE_xfskit"));
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(options).args(["memory", "6E", "--run", &run]).stdout(Stdio::null()).stderr(Stdio::null());
        let status = ends(&mut nbdkit.spawn().unwrap(), ENDS_WITHIN, "info of a server of 6 EiB");
        assert!(!status.success());
    }
}

/// Tables can lead every part of a disk to the same data: what there is to read is what the file has.
#[test]
fn data_that_is_there_once_is_not_read_for_ever() {
    if !have(&["qemu-img"]) {
        return;
    }
    let scratch = scratch();
    let path = scratch.file("same.qcow2");
    let arguments = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=64k", path.to_str().unwrap(), "1T"];
    common::disks::run("qemu-img", &arguments);
    let mut bytes = fs::read(&path).unwrap();
    let l1 = u64::from_be_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let entries = u32::from_be_bytes(bytes[36..40].try_into().unwrap()) as usize;
    // An L2 table behind the file, all of whose entries lead to the cluster behind it, and all entries to the table.
    let table = bytes.len().next_multiple_of(64 << 10);
    // Zeros, so that who looks whether the disk is empty finds nothing.
    bytes.resize(table + (128 << 10), 0);
    let (place, data) = ((1 << 63) | table as u64, (1 << 63) | (table as u64 + (64 << 10)));
    bytes[table..table + (64 << 10)].chunks_mut(8).for_each(|entry| entry.copy_from_slice(&data.to_be_bytes()));
    bytes[l1..l1 + 8 * entries].chunks_mut(8).for_each(|entry| entry.copy_from_slice(&place.to_be_bytes()));
    fs::write(&path, bytes).unwrap();
    for line in ["info", "check"] {
        let mut child = command(&[line, path.to_str().unwrap()]).spawn().unwrap();
        assert!(!ends(&mut child, ENDS_WITHIN, &format!("{line} of a disk of the same data")).success());
    }
    let mut child = command(&["mkfs", "-q", path.to_str().unwrap()]).spawn().unwrap();
    ends(&mut child, ENDS_WITHIN, "mkfs of a disk of the same data");
}

/// A server whose reads take so long that a search takes minutes.
struct Slow {
    server: Child,
    address: String,
}

impl Slow {
    fn start(scratch: &Scratch) -> Self {
        let socket = scratch.file("slow.sock");
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(&socket).args(["--filter=delay", "memory", "1T", "rdelay=200ms"]);
        let server = command.stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + ENDS_WITHIN;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < end, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { server, address: format!("nbd+unix:///?socket={}", socket.display()) }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

#[test]
fn one_signal_ends_a_command_that_reads() {
    if !have(&["nbdkit"]) {
        return;
    }
    let scratch = scratch();
    let slow = Slow::start(&scratch);
    let (source, target) = (format!("{}:/", slow.address), scratch.file("out"));
    let lines = [
        vec!["info", slow.address.as_str()],
        vec!["check", slow.address.as_str()],
        vec!["cp", "-r", source.as_str(), target.to_str().unwrap()],
        vec!["--others-kept-out", "touch", slow.address.as_str(), "/new"],
    ];
    for line in lines {
        let mut child = command(&line).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        if child.try_wait().unwrap().is_none() {
            signal(i32::try_from(child.id()).unwrap(), "-TERM");
        }
        let status = ends(&mut child, STOPS_WITHIN + Duration::from_secs(5), &line.join(" "));
        assert!(!status.success(), "{line:?}");
    }
}

/// The processes of a mount of an image.
fn processes(image: &str) -> Vec<i32> {
    let found = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("cmdline")).ok()?;
        (line.contains("--server") && line.contains(image)).then_some(process)
    });
    found.collect()
}

#[test]
fn one_signal_ends_a_mount_that_is_still_opened() {
    if !have(&["nbdkit"]) {
        return;
    }
    let Some(mount) = prepared() else { return };
    for only_parent in [true, false] {
        let slow = Slow::start(&mount.scratch);
        let dir = mount.dir.to_str().unwrap();
        let mut child = command(&["mount", "-o", "ro", &slow.address, dir]).spawn().unwrap();
        let end = Instant::now() + ENDS_WITHIN;
        while processes(&slow.address).len() < 2 {
            assert!(Instant::now() < end, "no server");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(700));
        let mut servers = processes(&slow.address);
        servers.sort_unstable();
        // The parent was started first.
        let asked = if only_parent { &servers[..1] } else { &servers[1..] };
        asked.iter().for_each(|process| signal(*process, "-TERM"));
        let end = Instant::now() + STOPS_WITHIN;
        while !processes(&slow.address).is_empty() {
            if Instant::now() > end {
                processes(&slow.address).iter().for_each(|process| signal(*process, "-KILL"));
                panic!("a server of an image that is still opened does not end (the parent was asked: {only_parent})");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!ends(&mut child, STOPS_WITHIN, "mount").success());
        fs::remove_file(mount.scratch.file("slow.sock")).unwrap();
    }
    if mount.image.metadata().is_err() {
        skip("the image is gone");
    }
}
