//! Virtual disks that are not read here: qemu-nbd reads and writes them, with the files of the disk and no others, and
//! ends with the command. qemu-img judges what was written.

use crate::common::disks::{GPT, MIB, have, partition, run, table};
use crate::common::{fails, ok, words};
use crate::{PROGRAMS, operand};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, reference, scratch};

/// Format, options of qemu-img, and whether it is written.
const FORMATS: [(&str, &str, bool); 7] = [
    ("vmdk", "", true),
    ("vmdk", "subformat=streamOptimized", false),
    ("vdi", "", true),
    ("vhdx", "", true),
    ("vpc", "", true),
    ("qcow2", "extended_l2=on", true),
    ("qcow2", "compression_type=zstd", true),
];

fn convert(from: &Path, to: &Path, format: &str, options: &str) {
    let mut arguments = vec!["convert", "-O", format];
    if options.contains("zstd") {
        arguments.push("-c");
    }
    arguments.extend((!options.is_empty()).then_some(["-o", options]).iter().flatten());
    run("qemu-img", &[&arguments[..], &[from.to_str().unwrap(), to.to_str().unwrap()]].concat());
}

/// A disk with a filesystem in its second partition.
fn disk(scratch: &Scratch) -> PathBuf {
    let disk = table(scratch, "gpt", GPT, MIB);
    ok("mkfs IMAGE -q --small", &operand(&disk, "#2"));
    ok("mkdir IMAGE /dir", &operand(&disk, "#2"));
    disk
}

/// The processes of qemu-nbd that have a file open, or are about to.
fn helpers(name: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_one = |process: &fs::DirEntry| {
        let open = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let has = open.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.ends_with(name));
        has && fs::read(process.path().join("cmdline"))
            .is_ok_and(|line| line.windows(8).any(|part| part == b"qemu-nbd"))
    };
    processes.filter(is_one).count()
}

#[test]
fn each_format_is_read_and_written() {
    if !have(&PROGRAMS) || !have(&["qemu-nbd"]) {
        return;
    }
    let scratch = scratch();
    let disk = disk(&scratch);
    for (format, options, is_written) in FORMATS {
        let image = scratch.file("served");
        convert(&disk, &image, format, options);
        let part = operand(&image, "#2");
        assert_eq!(ok("ls IMAGE /", &part), "dir\n", "{format} {options}");
        let tree = ok("info IMAGE", &image);
        assert!(tree.contains(&format!("{format} (read by qemu-nbd)")) && tree.contains("journal clean"), "{tree}");
        if is_written {
            let contents = vec![b'x'; 100_000];
            let written = crate::common::with_input("write IMAGE /dir/file", &part, &contents);
            assert!(written.status.success(), "{format} {options}: {}", String::from_utf8_lossy(&written.stderr));
            let raw = scratch.file("converted.img");
            run("qemu-img", &["convert", "-f", format, "-O", "raw", image.to_str().unwrap(), raw.to_str().unwrap()]);
            let alone = partition(&scratch, &raw, 2);
            assert_eq!(ok("cat IMAGE /dir/file", &alone).len(), contents.len());
            if let Some(reference) = reference() {
                reference.repair_finds_nothing(&alone);
            }
        } else {
            assert_eq!(fails("touch IMAGE /new", &part).0, 7, "{format} {options}");
        }
        assert_eq!(helpers("served"), 0, "{format}: a process is left");
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_chain_is_resolved_and_shown() {
    if !have(&PROGRAMS) || !have(&["qemu-nbd"]) {
        return;
    }
    let scratch = scratch();
    let disk = disk(&scratch);
    let [base, middle, top] = ["base.qcow2", "middle.qcow2", "top.qcow2"].map(|name| scratch.file(name));
    convert(&disk, &base, "qcow2", "compression_type=zstd");
    for (below, above) in [("base.qcow2", &middle), ("middle.qcow2", &top)] {
        let above = above.to_str().unwrap();
        run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", below, "-F", "qcow2", above]);
    }
    let before = fs::read(&base).unwrap();
    ok("touch IMAGE /dir/new", &operand(&top, "#2"));
    assert_eq!(ok("ls IMAGE /dir", &operand(&top, "#2")), "new\n");
    let tree = ok("info IMAGE", &top);
    for file in [&base, &middle] {
        assert!(tree.contains(&format!("on {}", file.display())), "{tree}");
    }
    assert!(fs::read(&base).unwrap() == before);
    run("qemu-img", &["check", "-q", top.to_str().unwrap()]);
}

/// What the files of a disk may name is decided before the program is started.
#[test]
fn no_other_file_is_opened() {
    if !have(&PROGRAMS) || !have(&["qemu-nbd"]) {
        return;
    }
    let scratch = scratch();
    let disk = disk(&scratch);
    // A sparse vmdk of no size, whose descriptor names a file of the host.
    let image = scratch.file("hostile.vmdk");
    convert(&disk, &image, "vmdk", "");
    let mut bytes = fs::read(&image).unwrap();
    let sectors = fs::metadata(&disk).unwrap().len() / 512;
    let text = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW \
         {sectors} FLAT \"{}\" 0\n",
        disk.display()
    );
    bytes[512..512 + 4096].fill(0);
    bytes[512..512 + text.len()].copy_from_slice(text.as_bytes());
    for capacity in [0, sectors] {
        bytes[12..20].copy_from_slice(&capacity.to_le_bytes());
        fs::write(&image, &bytes).unwrap();
        let output = crate::common::xfskit(words("find IMAGE", &operand(&image, "#2")));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(capacity > 0 || !output.status.success(), "another file is read: {text}");
    }
    // One that lies on another disk, which only its descriptor says.
    let text = text.replace("ffffffff", "11111111");
    bytes[512..512 + text.len()].copy_from_slice(text.as_bytes());
    fs::write(&image, &bytes).unwrap();
    assert_eq!(fails("ls IMAGE /", &image).0, 7);
    // Names that are no files of this host.
    let above = scratch.file("above.qcow2");
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-u",
            "-f",
            "qcow2",
            "-o",
            "extended_l2=on",
            "-b",
            "nbd:127.0.0.1:9",
            "-F",
            "raw",
            above.to_str().unwrap(),
            "64M",
        ],
    );
    let (code, text) = fails("ls IMAGE /", &above);
    assert!(code == 7, "{code} {text}");
}

#[test]
fn it_ends_with_the_command_however_that_ends() {
    if !have(&PROGRAMS) || !have(&["qemu-nbd"]) {
        return;
    }
    let scratch = scratch();
    let disk = disk(&scratch);
    let image = scratch.file("killed.vhdx");
    convert(&disk, &image, "vhdx", "");
    let part = operand(&image, "#2");
    assert!(crate::common::with_input("write IMAGE /dir/large", &part, &[1; 1 << 20]).status.success());
    for signal in ["-KILL", "-TERM"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        // Nobody reads what it writes, so that it waits.
        let mut child = command.arg("cat").arg(&part).arg("/dir/large").stdout(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while helpers("killed.vhdx") == 0 {
            assert!(Instant::now() < end, "no qemu-nbd");
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        child.wait().unwrap();
        while helpers("killed.vhdx") > 0 {
            assert!(Instant::now() < end, "qemu-nbd stays after {signal}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(ok("ls IMAGE /", &part), "dir\n");
    let left = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let sockets = left.filter(|entry| entry.path().join("nbd").exists()).count();
    assert_eq!(sockets, 0, "a socket is left");
}

#[test]
fn without_it_the_message_says_the_way_by_hand() {
    if !have(&["qemu-img"]) {
        return;
    }
    let scratch = scratch();
    let image = scratch.file("a.vdi");
    run("qemu-img", &["create", "-q", "-f", "vdi", image.to_str().unwrap(), "64M"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
    let output = command.env("PATH", scratch.path()).args(["ls"]).arg(&image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(7) && text.contains("serve it with: qemu-nbd"), "{text}");
    let (code, text) = fails("--no-helpers ls IMAGE", &image);
    assert!(code == 7 && text.contains("serve it with: qemu-nbd"), "{text}");
    // What qemu-nbd says of a disk that it cannot read is passed on.
    let broken = scratch.file("broken.vhdx");
    let bytes = [&b"vhdxfile"[..], &[0; 1 << 20]].concat();
    fs::write(&broken, bytes).unwrap();
    if have(&["qemu-nbd"]) {
        let (code, text) = fails("ls IMAGE", &broken);
        assert!(code == 7 && text.contains("qemu-nbd does not serve"), "{text}");
    }
}
