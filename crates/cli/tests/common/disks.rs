//! Disks as sfdisk, lvm2 and qemu-img make them, and what these programs say of them.
#![allow(dead_code)] // Each test uses a part.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xfskit_testkit::{Scratch, skip};

pub const MIB: u64 = 1 << 20;

/// Whether all these programs are installed; if not, says that the test is skipped.
pub fn have(programs: &[&str]) -> bool {
    let is_there = |program: &&&str| {
        let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok()
    };
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        skip(&format!("this machine has no {missing:?}"));
    }
    missing.is_empty()
}

/// Runs a program with input, and returns what it prints.
pub fn run_with(program: &str, arguments: &[&str], input: &str) -> String {
    use std::io::Write;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs a program, and returns what it prints.
pub fn run(program: &str, arguments: &[&str]) -> String {
    run_with(program, arguments, "")
}

/// Partitions of 32 MiB (ext4) and 64 MiB, in GPT.
pub const GPT: &str = "label: gpt\nstart=1MiB,size=32MiB,name=boot\nstart=34MiB,size=64MiB,name=root\n";
/// A primary partition of 64 MiB, and logical ones of 32 MiB (ext4) and of 64 MiB.
pub const MBR: &str = "label: dos\nstart=1MiB,size=64MiB,type=83\nstart=66MiB,type=f\n\
    start=67MiB,size=32MiB,type=83\nstart=100MiB,size=64MiB,type=83\n";

/// A raw disk with a table, and ext4 in one of its partitions.
pub fn table(scratch: &Scratch, name: &str, table: &str, ext4: u64) -> PathBuf {
    let disk = scratch.image(name, 168 * MIB);
    run_with("sfdisk", &["-q", disk.to_str().unwrap()], table);
    let filesystem = scratch.image("ext4.img", 32 * MIB);
    run("mkfs.ext4", &["-q", "-L", "boot", filesystem.to_str().unwrap()]);
    copy(&filesystem, &disk, ext4, 32 * MIB);
    disk
}

/// Copies the start of one file into another one.
pub fn copy(from: &Path, to: &Path, offset: u64, length: u64) {
    let (from, to) = (File::open(from).unwrap(), File::options().write(true).create(true).truncate(false).open(to));
    let to = to.unwrap();
    let mut bytes = vec![0; MIB as usize];
    for at in (0..length).step_by(bytes.len()) {
        from.read_exact_at(&mut bytes, at).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            to.write_all_at(&bytes, offset + at).unwrap();
        }
    }
}

/// The disk in a virtual disk, as qemu-img reads it, after `qemu-img check` has found no error.
pub fn raw(scratch: &Scratch, image: &Path) -> PathBuf {
    if image.extension().is_none_or(|extension| extension != "qcow2") {
        return image.into();
    }
    run("qemu-img", &["check", "-q", image.to_str().unwrap()]);
    let raw = scratch.file("converted.img");
    run("qemu-img", &["convert", "-O", "raw", image.to_str().unwrap(), raw.to_str().unwrap()]);
    raw
}

/// What sfdisk says of a disk.
pub fn sfdisk(disk: &Path) -> serde_json::Value {
    let text = run("sfdisk", &["--json", disk.to_str().unwrap()]);
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["partitiontable"].take()
}

/// The contents of a partition, which lies where sfdisk says.
pub fn partition(scratch: &Scratch, disk: &Path, number: u64) -> PathBuf {
    let table = sfdisk(disk);
    let node = format!("{}{number}", disk.display());
    let found = table["partitions"].as_array().unwrap().iter().find(|partition| partition["node"] == node.as_str());
    let sectors = |name: &str| found.unwrap()[name].as_u64().unwrap() * 512;
    part(scratch, disk, &[(0, sectors("start"), sectors("size"))])
}

/// Pieces of a disk, each with its place in the result, its place on the disk and its length.
fn part(scratch: &Scratch, disk: &Path, pieces: &[(u64, u64, u64)]) -> PathBuf {
    let out = scratch.file("part.img");
    let _ = std::fs::remove_file(&out);
    let (to, from) = (File::create(&out).unwrap(), File::open(disk).unwrap());
    for (at, offset, length) in pieces {
        let mut bytes = vec![0; *length as usize];
        from.read_exact_at(&mut bytes, *offset).unwrap();
        to.write_all_at(&bytes, *at).unwrap();
    }
    out
}

/// A group of LVM2 with one volume of 64 MiB on two disks, as lvm2 makes it without the device mapper.
pub struct Group {
    pub disks: Vec<PathBuf>,
    /// Where the volume's chunks lie: the place in the volume, the disk, the place there, the length.
    chunks: Vec<(u64, usize, u64, u64)>,
}

impl Group {
    /// `options` are those of lvcreate.
    pub fn new(scratch: &Scratch, options: &[&str]) -> Self {
        let disks: Vec<PathBuf> = ["a", "b"].iter().map(|name| scratch.image(name, 96 * MIB)).collect();
        let attach = |disk: &PathBuf| run("losetup", &["-f", "--show", disk.to_str().unwrap()]).trim().to_owned();
        let loops: Vec<String> = disks.iter().map(attach).collect();
        let filter: String = loops.iter().map(|device| format!("\"a|^{device}$|\",")).collect();
        let config = format!(
            "devices{{scan=[\"/dev\"] use_devicesfile=0 filter=[{filter}\"r|.*|\"] obtain_device_list_from_udev=0 \
             external_device_info_source=\"none\"}} backup{{backup=0 archive=0}} \
             activation{{udev_sync=0 udev_rules=0}} global{{event_activation=0 locking_dir=\"{}\"}}",
            scratch.file("lock").display()
        );
        let lvm = |command: &str, arguments: &[&str]| {
            run("lvm", &[&[command, "--driverloaded", "n", "--config", &config], arguments].concat())
        };
        lvm("pvcreate", &[&loops[0], &loops[1]]);
        lvm("vgcreate", &["vg", &loops[0], &loops[1]]);
        lvm("lvcreate", &[&["-an", "-Zn", "-Wn", "-n", "data", "-L", "64M"], options, &["vg"]].concat());
        let format = ["--noheadings", "--units", "b", "--nosuffix", "--separator", ";", "-o"];
        let pvs = lvm("pvs", &[&format[..], &["pv_name,pe_start"]].concat());
        let lvs = lvm(
            "lvs",
            &[&["--segments"], &format[..], &["seg_start,stripe_size,seg_size,devices", "vg/data"]].concat(),
        );
        let start = |device: &str| -> u64 {
            let line = pvs.lines().map(str::trim).find(|line| line.starts_with(&format!("{device};"))).unwrap();
            line.split(';').nth(1).unwrap().parse().unwrap()
        };
        let mut chunks = Vec::new();
        for line in lvs.lines() {
            let fields: Vec<&str> = line.trim().split(';').collect();
            let [first, stripe, size] = [0, 1, 2].map(|field| fields[field].parse::<u64>().unwrap());
            let stripe = if stripe == 0 { size } else { stripe };
            let places: Vec<(usize, u64)> = fields[3]
                .split(',')
                .map(|place| {
                    let (device, extent) = place.trim_end_matches(')').split_once('(').unwrap();
                    let number = loops.iter().position(|own| own == device).unwrap();
                    (number, start(device) + extent.parse::<u64>().unwrap() * 4 * MIB)
                })
                .collect();
            for chunk in 0..size / stripe {
                let (disk, base) = places[chunk as usize % places.len()];
                let offset = base + chunk / places.len() as u64 * stripe;
                chunks.push((first + chunk * stripe, disk, offset, stripe));
            }
        }
        loops.iter().for_each(|device| drop(run("losetup", &["-d", device])));
        Self { disks, chunks }
    }

    /// The disks as an operand.
    pub fn operand(&self) -> String {
        format!("{},{}", self.disks[1].display(), self.disks[0].display())
    }

    /// The contents of the volume, which lie where lvm2 says.
    pub fn volume(&self, scratch: &Scratch) -> PathBuf {
        let out = scratch.file("part.img");
        let _ = std::fs::remove_file(&out);
        let to = File::create(&out).unwrap();
        let disks: Vec<File> = self.disks.iter().map(|disk| File::open(disk).unwrap()).collect();
        for (at, disk, offset, length) in &self.chunks {
            let mut bytes = vec![0; *length as usize];
            disks[*disk].read_exact_at(&mut bytes, *offset).unwrap();
            to.write_all_at(&bytes, *at).unwrap();
        }
        out
    }
}
