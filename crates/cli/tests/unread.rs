//! Of disks with tables, LVM2 and headers, no more than signatures is read before rights are given up. The disks are
//! made by sfdisk, lvm2 and qemu-img; what the commands do is seen by strace.

mod common;

use common::disks::{GPT, Group, MIB, have, run, table};
use common::mounts::{prepared, server_of, wait_for_end};
use common::trace::{SIGNATURE_BYTES, Traced, strace, traced};
use common::{fails, ok};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xfskit_testkit::{Scratch, scratch, skip};

/// A disk: its operand, its files, the processes that read a header of it, and those that serve it.
struct Disk {
    operand: String,
    files: Vec<PathBuf>,
    headers: usize,
    served: usize,
}

fn gpt(scratch: &Scratch) -> Disk {
    let disk = table(scratch, "gpt.img", GPT, MIB);
    Disk { operand: format!("{}#2", disk.display()), files: vec![disk], headers: 0, served: 0 }
}

/// Two layers of qcow2 on a raw disk with a table.
fn qcow2(scratch: &Scratch) -> Disk {
    let base = table(scratch, "base.img", GPT, MIB);
    let (middle, top) = (scratch.file("middle.qcow2"), scratch.file("top.qcow2"));
    for (image, below, format) in [(&middle, "base.img", "raw"), (&top, "middle.qcow2", "qcow2")] {
        run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", format, "-b", below, image.to_str().unwrap()]);
    }
    Disk { operand: format!("{}#2", top.display()), files: vec![top, middle, base], headers: 2, served: 0 }
}

/// A raw image as a vmdk with flat extents.
fn vmdk(scratch: &Scratch, image: &Path) -> Disk {
    let (disk, extent) = (scratch.file("flat.vmdk"), scratch.file("flat-flat.vmdk"));
    let options = ["convert", "-O", "vmdk", "-o", "subformat=monolithicFlat"];
    run("qemu-img", &[&options[..], &[image.to_str().unwrap(), disk.to_str().unwrap()]].concat());
    Disk { operand: disk.display().to_string(), files: vec![disk, extent], headers: 1, served: 0 }
}

/// Disks that qemu-nbd reads: by its descriptor, a header of qcow2 below another one, and a signature.
fn served(scratch: &Scratch) -> [Disk; 3] {
    let raw = table(scratch, "raw.img", GPT, MIB);
    let [sparse, base, top, vdi] = ["sparse.vmdk", "zstd.qcow2", "above.qcow2", "a.vdi"].map(|name| scratch.file(name));
    let options = ["-c", "-O", "qcow2", "-o", "compression_type=zstd"];
    for (to, options) in [(&sparse, &["-O", "vmdk"][..]), (&base, &options[..]), (&vdi, &["-O", "vdi"])] {
        let files = [raw.to_str().unwrap(), to.to_str().unwrap()];
        run("qemu-img", &[&["convert"], options, &files].concat());
    }
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "zstd.qcow2", top.to_str().unwrap()]);
    [(vec![sparse], 1), (vec![top, base], 2), (vec![vdi], 0)].map(|(files, headers)| Disk {
        operand: format!("{}#2", files[0].display()),
        files,
        headers,
        served: 1,
    })
}

fn verify(traced: &Traced, disk: &Disk, what: &str) {
    assert_eq!((traced.entered, traced.served), (1 + disk.headers, disk.served), "{what}");
    assert!(traced.before.is_empty(), "{what}: {:#?}", traced.before);
    assert!(traced.refused.is_empty(), "{what}: {:#?}", traced.refused);
    // The contents of a disk that is served are only read by qemu-nbd.
    assert!(traced.read_after > SIGNATURE_BYTES || disk.served > 0, "{what}");
}

/// Traces lines, in which `DISK` is the operand.
fn run_lines(disk: &Disk, lines: &[&str], scratch: &Scratch) {
    for line in lines {
        let arguments: Vec<String> = line.split(' ').map(|word| word.replace("DISK", &disk.operand)).collect();
        let Some(traced) = traced(&arguments, &disk.files, &scratch.file("calls")) else {
            return skip("this machine has no strace");
        };
        verify(&traced, disk, &format!("{line}: {}", disk.operand));
    }
}

#[test]
fn commands_read_no_table_and_no_header_before_they_give_up_their_rights() {
    if !have(&["qemu-img", "sfdisk", "mkfs.ext4"]) {
        return;
    }
    let scratch = scratch();
    let lines = ["mkfs -q --small DISK", "touch DISK /new", "ls DISK /", "info DISK", "check DISK"];
    for disk in [gpt(&scratch), qcow2(&scratch)] {
        run_lines(&disk, &lines, &scratch);
    }
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    let fill = format!("mkfs -q --small -f DISK --from {}", source.display());
    run_lines(&qcow2(&scratch), &[&fill, "cat DISK /file"], &scratch);
    let image = scratch.file("image.img");
    ok("mkfs -q --size 300M IMAGE", &image);
    run_lines(&vmdk(&scratch, &image), &["ls DISK /", "info DISK"], &scratch);
}

#[test]
fn commands_read_nothing_of_disks_that_qemu_reads() {
    if !have(&["qemu-img", "qemu-nbd", "sfdisk", "mkfs.ext4"]) {
        return;
    }
    let scratch = scratch();
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    let fill = format!("mkfs -q --small -f DISK --from {}", source.display());
    let lines = ["mkfs -q --small DISK", "touch DISK /new", "ls DISK /", "info DISK", "check DISK", &fill];
    for disk in served(&scratch) {
        run_lines(&disk, &lines, &scratch);
    }
}

#[test]
fn commands_read_no_metadata_of_lvm_before_they_give_up_their_rights() {
    if !have(&["lvm", "losetup"]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = scratch();
    let group = Group::new(&scratch, &[]);
    let disk =
        Disk { operand: format!("{}#lv=vg/data", group.operand()), files: group.disks.clone(), headers: 0, served: 0 };
    run_lines(&disk, &["mkfs -q --small DISK", "touch DISK /new", "ls DISK /"], &scratch);
}

/// An external journal is a disk of its own; here on a partition, and behind a header.
#[test]
fn an_external_journal_is_not_read_before_either() {
    if !have(&["qemu-img", "sfdisk", "mkfs.ext4"]) {
        return;
    }
    let scratch = scratch();
    let (data, log) = (gpt(&scratch), scratch.file("log.qcow2"));
    run("qemu-img", &["create", "-q", "-f", "qcow2", log.to_str().unwrap(), "64M"]);
    let disk = Disk { files: [data.files, vec![log.clone()]].concat(), headers: 1, ..data };
    let source = scratch.file("source");
    fs::create_dir(&source).unwrap();
    let log = log.display();
    let make = format!("mkfs -q --small -l logdev={log},size=16m DISK");
    let lines = [make.clone(), format!("{make} -f --from {}", source.display()), format!("ls --logdev {log} DISK /")];
    run_lines(&disk, &lines.each_ref().map(String::as_str), &scratch);
    if !have(&["qemu-nbd"]) {
        return;
    }
    let log = scratch.file("log.vmdk");
    run("qemu-img", &["create", "-q", "-f", "vmdk", log.to_str().unwrap(), "64M"]);
    let data = gpt(&scratch);
    let disk = Disk { files: [data.files, vec![log.clone()]].concat(), headers: 1, served: 1, ..data };
    let log = format!("{}#whole", log.display());
    let make = format!("mkfs -q --small -f -l logdev={log},size=16m DISK");
    run_lines(&disk, &[make.as_str(), &format!("ls --logdev {log} DISK /")], &scratch);
}

fn mounted(disk: &Disk, options: &str) {
    let Some(at) = prepared() else { return };
    let calls = at.scratch.file("calls");
    let mut command = strace(&calls);
    command.arg(env!("CARGO_BIN_EXE_xfskit")).args(["mount", "-f", "-o", options, &disk.operand]).arg(&at.dir);
    let Ok(mut child) = command.stdin(Stdio::null()).spawn() else { return skip("this machine has no strace") };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !fs::read_to_string("/proc/self/mounts").unwrap().contains(at.dir.to_str().unwrap()) {
        assert!(std::time::Instant::now() < end && child.try_wait().unwrap().is_none(), "no mount");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(fs::read_dir(&at.dir).unwrap().count() > 0);
    at.line("umount DIR");
    assert!(child.wait().unwrap().success());
    let what = format!("mount -o {options} {}", disk.operand);
    let traced = Traced::of(&calls, &disk.files);
    assert_eq!((traced.entered, traced.served), (1 + disk.headers, disk.served), "{what}");
    assert!(traced.before.is_empty(), "{what}: {:#?}", traced.before);
    assert!(traced.read_after > SIGNATURE_BYTES || disk.served > 0, "{what}");
}

#[test]
fn a_mount_reads_no_table_and_no_header_before_it_gives_up_its_rights() {
    if !have(&["qemu-img", "sfdisk", "mkfs.ext4"]) {
        return;
    }
    let scratch = scratch();
    for disk in [gpt(&scratch), qcow2(&scratch)] {
        ok("mkfs -q --small IMAGE", Path::new(&disk.operand));
        ok("mkdir IMAGE /dir", Path::new(&disk.operand));
        mounted(&disk, "rw");
        mounted(&disk, "ro");
    }
    for disk in served(&scratch).iter().filter(|_| have(&["qemu-nbd"])) {
        ok("mkfs -q --small IMAGE", Path::new(&disk.operand));
        ok("mkdir IMAGE /dir", Path::new(&disk.operand));
        mounted(disk, "rw");
        mounted(disk, "ro");
    }
    let image = scratch.file("image.img");
    ok("mkfs -q --size 300M IMAGE", &image);
    ok("mkdir IMAGE /dir", &image);
    mounted(&vmdk(&scratch, &image), "ro");
}

/// A mount and a log on two partitions of one disk, which is opened once.
#[test]
fn a_mount_has_its_journal_on_the_same_disk() {
    let Some(at) = prepared().filter(|_| have(&["sfdisk", "mkfs.ext4"])) else { return };
    let disk = gpt(&at.scratch);
    let log = disk.files[0].display().to_string() + "#1";
    ok(&format!("mkfs -q --small -f -l logdev={log},size=16m IMAGE"), Path::new(&disk.operand));
    ok(&format!("mount -o logdev={log} IMAGE {}", at.dir.display()), Path::new(&disk.operand));
    fs::write(at.dir.join("file"), "contents").unwrap();
    let server = server_of(&disk.files[0]);
    at.line("umount DIR");
    wait_for_end(server);
    assert_eq!(ok(&format!("cat --logdev {log} IMAGE /file"), Path::new(&disk.operand)), "contents");
}

/// What the process says that reads a header is taken for names, and what is wrong with a header is reported by the
/// one that opens the disk.
#[test]
fn damage_in_a_header_is_reported_as_before() {
    if !have(&["qemu-img"]) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.file("disk.qcow2");
    let create = || run("qemu-img", &["create", "-q", "-f", "qcow2", disk.to_str().unwrap(), "300M"]);
    // The version, the size of a cluster, the length of the name of a backing file and its place.
    for (offset, bytes, expected) in [
        (4, [0, 0, 0, 9], "version 9"),
        (20, [0, 0, 0, 60], "the size of a cluster"),
        (8, [0xff; 4], ""),
        (16, [0xff; 4], ""),
    ] {
        create();
        fs::File::options().write(true).open(&disk).unwrap().write_all_at(&bytes, offset).unwrap();
        let (_, why) = fails("info IMAGE", &disk);
        assert!(why.contains(expected) && !why.contains("without an answer"), "{offset}: {why}");
    }
    run("qemu-img", &["create", "-q", "-u", "-f", "qcow2", "-b", "missing", "-F", "raw", disk.to_str().unwrap(), "9M"]);
    let (_, why) = fails("info IMAGE", &disk);
    assert!(why.contains("missing: no such image"), "{why}");
}

/// A header process that an attacker has taken over can neither open nor write, nor is it given more than the disk.
#[test]
fn the_process_that_reads_headers_has_the_disk_alone() {
    if !have(&["qemu-img"]) {
        return;
    }
    let scratch = scratch();
    let (disk, calls) = (qcow2(&scratch), scratch.file("calls"));
    ok("mkfs -q --small IMAGE", Path::new(&disk.operand));
    let mut command = strace(&calls);
    command.arg(env!("CARGO_BIN_EXE_xfskit")).args(["touch", &disk.operand, "/new"]).env("SECRET", "of the user");
    if command.output().is_err() {
        return skip("this machine has no strace");
    }
    let text = fs::read_to_string(&calls).unwrap();
    let starts: Vec<&str> = text.lines().filter(|line| line.contains("execve(\"/proc/self/exe\"")).collect();
    assert_eq!(starts.len(), 2, "{starts:?}");
    for start in starts {
        assert!(start.contains("[\"xfskit-header\"]") && start.contains("/* 0 vars */"), "{start}");
        let process = format!("{} ", start.split_whitespace().next().unwrap());
        let opened: Vec<&str> =
            text.lines().filter(|line| line.starts_with(&process) && line.contains("/proc/self/fd/0\"")).collect();
        let is_read_only = |line: &&&str| line.contains("O_RDONLY");
        assert!(opened.len() == 1 && opened.iter().all(|line| is_read_only(&line)), "{opened:?}");
    }
    assert!(Command::new(env!("CARGO_BIN_EXE_xfskit")).arg("xfskit-header").output().unwrap().status.code() == Some(2));
}

/// A file with a lock stays open in a command, for it may be there to last as long; the header process does not get it,
/// and it does not stay when the command has ended.
#[test]
fn the_process_that_reads_headers_has_no_file_with_a_lock_and_ends_with_the_command() {
    if !have(&["qemu-img", "bash", "flock", "strace"]) {
        return;
    }
    let scratch = scratch();
    let (disk, calls) = (qcow2(&scratch), scratch.file("calls"));
    ok("mkfs -q --small IMAGE", Path::new(&disk.operand));
    // The first filter of system calls is the header process's: there it is held.
    let line = "exec 9> lock; flock 9; exec strace -f -o calls -e trace=seccomp -e inject=seccomp:delay_enter=600s \
                \"$0\" ls \"$1\" /";
    let mut command = Command::new("bash");
    command.args(["-ec", line, env!("CARGO_BIN_EXE_xfskit"), &disk.operand]).current_dir(scratch.path());
    let mut strace = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let child_of = |process: u32| -> Option<u32> {
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
        children.split_whitespace().last()?.parse().ok()
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let (command, header) = loop {
        let found = child_of(strace.id()).and_then(|command| Some((command, child_of(command)?)));
        let name = found.map(|(_, header)| fs::read_to_string(format!("/proc/{header}/cmdline")).unwrap_or_default());
        let is_held = || fs::read_to_string(&calls).is_ok_and(|calls| calls.contains("seccomp("));
        if let Some(found) = found.filter(|_| name.is_some_and(|name| name == "xfskit-header\0") && is_held()) {
            break found;
        }
        assert!(std::time::Instant::now() < end && strace.try_wait().unwrap().is_none(), "no header process");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let files = |process: u32| -> Vec<PathBuf> {
        let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).collect()
    };
    let lock = scratch.file("lock").canonicalize().unwrap();
    assert!(files(command).contains(&lock) && !files(header).contains(&lock), "{:?}", files(header));
    assert!(Command::new("kill").args(["-KILL", &command.to_string()]).status().unwrap().success());
    // While strace holds it, the signal waits.
    let is_to_end = || {
        let status = fs::read_to_string(format!("/proc/{header}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ") || status.contains("ShdPnd:\t0000000000000100")
    };
    while !is_to_end() {
        assert!(std::time::Instant::now() < end, "the header process stays");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    strace.kill().unwrap();
    strace.wait().unwrap();
}

/// Root's server keeps no right to open what is another user's alone; a user's command has no more than the user.
#[test]
fn private_disks_are_used_by_root_and_by_their_owner() {
    const OWNER: u32 = 65534;
    if !have(&["qemu-img", "sfdisk", "mkfs.ext4", "setpriv"]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(at) = prepared() else { return };
    let folder = at.scratch.file("private");
    fs::create_dir(&folder).unwrap();
    let disk = qcow2(&at.scratch);
    let files: Vec<PathBuf> = disk.files.iter().map(|file| folder.join(file.file_name().unwrap())).collect();
    for (file, to) in disk.files.iter().zip(&files) {
        fs::rename(file, to).unwrap();
    }
    for (path, mode) in files.iter().map(|file| (file, 0o600)).chain([(&folder, 0o700)]) {
        chown(path, Some(OWNER), Some(OWNER)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(at.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let operand = format!("{}#2", files[0].display());
    let as_owner = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_xfskit")]);
        let output = command.args(line.split(' ').map(|word| word.replace("DISK", &operand))).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    as_owner("mkfs -q --small DISK");
    as_owner("touch DISK /by-its-owner");
    ok("touch IMAGE /by-root", Path::new(&operand));
    for options in ["ro", "rw"] {
        ok(&format!("mount -o {options} IMAGE {}", at.dir.display()), Path::new(&operand));
        assert_eq!(fs::read_dir(&at.dir).unwrap().count(), 2);
        at.line("umount DIR");
    }
    assert_eq!(as_owner("ls DISK /"), "by-its-owner\nby-root\n");
}

/// The process is held between its look at the image and the rules of files, and another file takes the name.
#[test]
fn a_file_that_takes_the_name_of_an_image_is_not_opened() {
    if !have(&["strace"]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = scratch();
    let (image, other, aside) = (scratch.file("a.img"), scratch.file("b.img"), scratch.file("aside"));
    ok("mkfs -q --size 300M IMAGE", &image);
    ok("mkfs -q --size 300M IMAGE", &other);
    let before = fs::read(&other).unwrap();
    let mut command = strace(&scratch.file("calls"));
    command.args(["-e", "inject=capset:delay_enter=2s", env!("CARGO_BIN_EXE_xfskit"), "touch"]);
    let mut child = command.arg(&image).arg("/new").stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let has_it_open = || {
        let process = fs::read_to_string(&children).unwrap();
        let files = fs::read_dir(format!("/proc/{}/fd", process.trim())).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == image)
    };
    while !has_it_open() {
        assert!(child.try_wait().unwrap().is_none(), "it has not opened the image");
    }
    fs::rename(&image, &aside).unwrap();
    fs::rename(&other, &image).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Permission denied"), "{said}");
    assert!(fs::read(&image).unwrap() == before);
    assert_eq!(ok("ls IMAGE /", &aside), "");
}
