//! Commands on whole disks: partitions, LVM2, qcow2, a server. The disks are made by sfdisk, lvm2 and qemu-img, and
//! what the commands write is read by qemu-img, xfs_repair and the kernel.

mod common;

use common::disks::{GPT, Group, MBR, MIB, copy, have, partition, raw, run, sfdisk, table};
use common::trees::{listing, make_tree};
use common::{fails, ok, xfskit};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch, skip};

const PROGRAMS: [&str; 3] = ["qemu-img", "sfdisk", "mkfs.ext4"];

fn operand(disk: &Path, part: &str) -> PathBuf {
    let mut text = disk.as_os_str().to_owned();
    text.push(part);
    text.into()
}

fn root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("owners, loop devices and the kernel's mount need root");
    }
    is_root
}

/// The tree without the root's own entry, which commands change.
fn below(root: &Path) -> Vec<String> {
    let lines = listing(root);
    lines.into_iter().filter(|line| !line.starts_with("/ ")).collect()
}

/// The first difference between two trees.
fn difference(ours: &[String], theirs: &[String]) -> String {
    let pair = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
    format!("{} and {} entries; {pair:?}", ours.len(), theirs.len())
}

/// What xfs_repair and the kernel say of a filesystem.
fn judge(image: &Path, expected: &[String], what: &str) {
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(image);
    }
    let Some(mount) = kernel_mount(image) else { return };
    let found = below(mount.path());
    mount.unmount();
    assert!(found == expected, "{what}: the kernel sees another tree: {}", difference(&found, expected));
}

/// Fills a part by mkfs, changes it and copies it out, and has the result judged. `extract` gets the filesystem out of
/// the disk by other programs.
fn exercise(scratch: &Scratch, name: &Path, extract: &dyn Fn() -> PathBuf) {
    let (source, copied, back) = (scratch.file("source"), scratch.file("copied"), scratch.file("back"));
    for folder in [&source, &copied, &back] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    let what = name.display().to_string();
    ok(&format!("mkfs IMAGE -f -q --small --from {}", source.display()), name);
    let expected = below(&source);
    judge(&extract(), &expected, &what);
    ok("mkdir IMAGE /new", name);
    ok("rm -r IMAGE /new /dir /big", name);
    ok(&format!("cp -a {}/. {what}:/", source.display()), name);
    assert!(ok("check IMAGE", name).ends_with("no faults\n"), "{what}");
    ok(&format!("cp -a {what}:/. {}", back.display()), name);
    let found = below(&back);
    assert!(found == expected, "{what}: the copy is another tree: {}", difference(&found, &expected));
    let tar = scratch.file("tree.tar");
    ok(&format!("export IMAGE /dir -o {}", tar.display()), name);
    fs::create_dir(&copied).unwrap();
    run("tar", &["-xf", tar.to_str().unwrap(), "-C", copied.to_str().unwrap()]);
    assert!(fs::read(copied.join("again")).unwrap() == fs::read(source.join("big")).unwrap());
    judge(&extract(), &expected, &what);
}

#[test]
fn a_partition_is_made_written_and_read() {
    if !have(&PROGRAMS) || !root() {
        return;
    }
    let scratch = scratch();
    for (label, layout, ext4, number) in [("gpt", GPT, 1, 2), ("mbr", MBR, 67, 6)] {
        let disk = table(&scratch, label, layout, ext4 * MIB);
        let others = fs::read(&disk).unwrap()[..32 * MIB as usize].to_vec();
        let name = operand(&disk, &format!("#{number}"));
        exercise(&scratch, &name, &|| partition(&scratch, &disk, number));
        // What is not the partition has not changed.
        if label == "gpt" {
            assert!(fs::read(&disk).unwrap()[..32 * MIB as usize] == others);
        }
        run("sfdisk", &["-q", "--verify", disk.to_str().unwrap()]);
    }
}

#[test]
fn a_logical_volume_is_made_written_and_read() {
    if !have(&["lvm", "losetup"]) || !root() {
        return;
    }
    for options in [&[][..], &["-i", "2", "-I", "64k"]] {
        let scratch = scratch();
        let group = Group::new(&scratch, options);
        let name = PathBuf::from(format!("{}#lv=vg/data", group.operand()));
        exercise(&scratch, &name, &|| group.volume(&scratch));
    }
}

#[test]
fn a_virtual_disk_is_made_written_and_read() {
    if !have(&PROGRAMS) || !root() {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt", GPT, MIB);
    for options in ["cluster_size=64k", "cluster_size=2M", "cluster_size=4k,lazy_refcounts=on"] {
        let image = scratch.file("a.qcow2");
        let arguments = ["convert", "-O", "qcow2", "-o", options, disk.to_str().unwrap(), image.to_str().unwrap()];
        run("qemu-img", &arguments);
        let name = operand(&image, "#partlabel=root");
        exercise(&scratch, &name, &|| partition(&scratch, &raw(&scratch, &image), 2));
    }
    // A chain: the base has the table, and what is written lies in the top.
    let (base, top) = (scratch.file("base.qcow2"), scratch.file("top.qcow2"));
    run("qemu-img", &["convert", "-c", "-O", "qcow2", disk.to_str().unwrap(), base.to_str().unwrap()]);
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", top.to_str().unwrap()]);
    let before = fs::read(&base).unwrap();
    exercise(&scratch, &operand(&top, "#2"), &|| partition(&scratch, &raw(&scratch, &top), 2));
    assert!(fs::read(&base).unwrap() == before, "the base has changed");
    // A filesystem that takes the whole virtual disk.
    let whole = scratch.file("whole.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", whole.to_str().unwrap(), "64M"]);
    exercise(&scratch, &whole, &|| raw(&scratch, &whole));
    assert!(ok("info IMAGE", &whole).contains("disk     =qcow2"));
}

#[test]
fn info_shows_what_sfdisk_and_blkid_say() {
    if !have(&PROGRAMS) || !have(&["blkid"]) {
        return;
    }
    let scratch = scratch();
    for (label, layout, ext4, xfs) in [("gpt", GPT, 1, 34), ("mbr", MBR, 67, 100)] {
        let disk = table(&scratch, label, layout, ext4 * MIB);
        let number = if label == "gpt" { 2 } else { 6 };
        ok("mkfs IMAGE -q --small -L data", &operand(&disk, &format!("#{number}")));
        let found: Value = serde_json::from_str(&ok("--json info IMAGE", &disk)).unwrap();
        let ours = &found["disks"][0]["table"];
        let theirs = sfdisk(&disk);
        assert_eq!(ours["kind"], theirs["label"]);
        let partitions = theirs["partitions"].as_array().unwrap();
        assert_eq!(ours["partitions"].as_array().unwrap().len(), partitions.len());
        for (ours, theirs) in ours["partitions"].as_array().unwrap().iter().zip(partitions) {
            assert_eq!(ours["offset"], json!(theirs["start"].as_u64().unwrap() * 512));
            assert_eq!(ours["size_bytes"], json!(theirs["size"].as_u64().unwrap() * 512));
            assert_eq!(ours["name"], theirs["name"]);
            if label == "gpt" {
                assert_eq!(ours["uuid"].as_str().unwrap(), theirs["uuid"].as_str().unwrap().to_lowercase());
                assert_eq!(ours["type"].as_str().unwrap(), theirs["type"].as_str().unwrap().to_lowercase());
            }
        }
        for (offset, index) in [(ext4, if label == "gpt" { 0 } else { 2 }), (xfs, if label == "gpt" { 1 } else { 3 })] {
            let offset = (offset * MIB).to_string();
            let blkid = run("blkid", &["-p", "-O", &offset, "-o", "export", disk.to_str().unwrap()]);
            let value = |key: &str| blkid.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            let contents = &ours["partitions"][index]["contents"];
            assert_eq!(contents["format"].as_str(), value("TYPE"), "{blkid}");
            assert_eq!(contents["label"].as_str(), value("LABEL"), "{blkid}");
            assert_eq!(contents["uuid"].as_str(), value("UUID"), "{blkid}");
        }
        let text = ok("info IMAGE", &disk);
        assert!(text.contains("xfs, label \"data\", journal clean, uuid ") && text.contains("ext4"), "{text}");
        // The only XFS is found without a part, and by what it is called.
        let uuid =
            found["disks"][0]["table"]["partitions"][number as usize - if label == "gpt" { 1 } else { 3 }]["contents"]
                ["uuid"]
                .as_str()
                .unwrap()
                .to_owned();
        assert_eq!(ok("ls IMAGE", &disk), "");
        for part in ["#label=data".into(), format!("#uuid={uuid}"), format!("#offset={xfs}M")] {
            assert!(ok("info IMAGE", &operand(&disk, &part)).contains("label    =\"data\""), "{part}");
        }
    }
}

#[test]
fn what_cannot_be_chosen_is_listed() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "mbr", MBR, 67 * MIB);
    let (code, text) = fails("ls IMAGE", &disk);
    assert!(code == 3 && text.contains("no XFS filesystem on it; there is:") && text.contains("#5"), "{code} {text}");
    ok("mkfs IMAGE -q --small -L one", &operand(&disk, "#1"));
    ok("mkfs IMAGE -q --small -L two", &operand(&disk, "#6"));
    let mount = format!("mount IMAGE {}", scratch.path().display());
    for line in ["ls IMAGE", "touch IMAGE /x", "log replay IMAGE", mount.as_str(), "export IMAGE"] {
        let (code, text) = fails(line, &disk);
        assert!(code == 2 && text.contains("label \"one\"") && text.contains("label \"two\""), "{line}: {code} {text}");
    }
    assert_eq!(fails("check IMAGE", &disk).0, 16);
    for (part, code, what) in [
        ("#7", 2, "no such part"),
        ("#2", 7, "extended partition"),
        ("#5", 3, "ext2, ext3 or ext4"),
        ("#nonsense", 2, "a part is #NUMBER"),
        ("#label=three", 2, "no such part"),
    ] {
        let got = fails("ls IMAGE", &operand(&disk, part));
        assert!(got.0 == code && got.1.contains(what), "{part}: {got:?}");
    }
    // A file of that very name wins.
    let (odd, other) = (operand(&disk, "#1"), scratch.file("other"));
    ok("mkfs IMAGE -q --small --size 32M -L odd", &other);
    fs::rename(&other, scratch.file("odd#1")).unwrap();
    ok("mkfs IMAGE -q --small --size 32M", &scratch.file("odd"));
    assert!(ok("info IMAGE", &scratch.file("odd#1")).contains("label    =\"odd\""));
    assert!(ok("info IMAGE", &odd).contains("label    =\"one\""));
}

#[test]
fn formats_that_are_not_handled_come_with_the_command_that_helps() {
    if !have(&PROGRAMS) || !have(&["qemu-nbd"]) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt", GPT, MIB);
    ok("mkfs IMAGE -q --small", &operand(&disk, "#2"));
    for (format, options) in [("vdi", ""), ("vhdx", ""), ("vmdk", ""), ("qcow2", "extended_l2=on")] {
        let image = scratch.file("a.image");
        let mut arguments = vec!["convert", "-O", format];
        arguments.extend((!options.is_empty()).then_some(["-o", options]).iter().flatten());
        run("qemu-img", &[&arguments[..], &[disk.to_str().unwrap(), image.to_str().unwrap()]].concat());
        let (code, text) = fails("ls IMAGE /", &image);
        assert!(code == 7 && text.contains("qemu-nbd"), "{format}: {code} {text}");
        // The command in the message, with another socket.
        let command = text.split("serve it with: ").nth(1).unwrap().split(';').next().unwrap();
        let socket = scratch.file("nbd.sock");
        let command = command.replace("/tmp/nbd.sock", socket.to_str().unwrap());
        let words: Vec<&str> = command.split(' ').collect();
        let server = Server::start(words[0], &words[1..], &socket);
        assert_eq!(ok("ls IMAGE /", &server.operand("#2")), "");
        drop(server);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn mkfs_looks_at_the_part_before_it_writes() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt", GPT, MIB);
    let image = scratch.file("a.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    for disk in [&disk, &image] {
        let before = fs::read(disk).unwrap();
        for (line, part, what) in [
            ("mkfs IMAGE --small", "#1", "ext2, ext3 or ext4"),
            ("mkfs IMAGE --small --from /etc", "#1", "ext2, ext3 or ext4"),
            ("mkfs IMAGE --small", "", "a GPT partition table"),
            ("mkfs IMAGE --small --size 1G", "#2", "leave --size out"),
            ("mkfs IMAGE --small -b size=3", "#2", "-b size"),
            ("mkfs IMAGE", "#2", "too small"),
        ] {
            let (code, text) = fails(line, &operand(disk, part));
            // A raw disk as a whole is a file as every other.
            assert!(code == 2 && text.contains(what), "{line} {part}: {code} {text}");
        }
        assert_eq!(fails("mkfs IMAGE --small", &operand(disk, "#3")).0, 2);
        assert!(fs::read(disk).unwrap() == before);
        ok("mkfs --small -q --into IMAGE", &operand(disk, "#2"));
        let (code, text) = fails("mkfs IMAGE --small", &operand(disk, "#2"));
        assert!(code == 2 && text.contains("#2: it holds an XFS"), "{code} {text}");
        ok("mkfs IMAGE --small -q -f", &operand(disk, "#2"));
    }
    for line in ["mkfs IMAGE --size 1G", "mkfs IMAGE --from /etc/alternatives"] {
        let (code, text) = fails(line, &scratch.file("new.qcow2"));
        assert!(code == 2 && text.contains("qemu-img create"), "{line}: {code} {text}");
        assert!(!scratch.file("new.qcow2").exists());
    }
    // No file is made under a name that means a part of a disk that is not there.
    let (code, text) = fails("mkfs IMAGE --size 1G", &scratch.file("none.img#3"));
    assert!(code == 6 && text.contains("none.img: no such"), "{code} {text}");
    assert!(!scratch.file("none.img#3").exists());
}

#[test]
fn two_parts_of_one_disk_are_used_at_once() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "mbr", MBR, 67 * MIB);
    let image = scratch.file("a.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    for disk in [&disk, &image] {
        let (one, six) = (operand(disk, "#1"), operand(disk, "#6"));
        ok("mkfs IMAGE -q --small --from /etc/alternatives", &one);
        ok("mkfs IMAGE -q --small", &six);
        ok(&format!("cp -r {}:/ {}:/copy", one.display(), six.display()), &one);
        assert_eq!(ok("ls IMAGE /", &one), ok("ls IMAGE /copy", &six));
        // A partition for the journal.
        let five = operand(disk, "#5");
        ok(&format!("mkfs IMAGE -f -q --small -l logdev={},size=8M", five.display()), &six);
        ok(&format!("mkdir --logdev {} IMAGE /with-log", five.display()), &six);
        assert_eq!(ok(&format!("ls --logdev {} IMAGE /", five.display()), &six), "with-log\n");
        let check = ok(&format!("check --logdev {} IMAGE", five.display()), &six);
        assert!(check.ends_with("no faults\n"), "{check}");
        let (code, text) = fails(&format!("mkdir --logdev {} IMAGE /x", operand(disk, "#whole").display()), &six);
        assert!(code == 4 && text.contains("in use by this program itself"), "{code} {text}");
    }
    run("qemu-img", &["check", "-q", image.to_str().unwrap()]);
}

/// A program that serves a disk. It ends with the test.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(program: &str, arguments: &[&str], socket: &Path) -> Self {
        let _ = fs::remove_file(socket);
        let child = Command::new(program).args(arguments).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "{program} {arguments:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket: socket.into() }
    }

    fn operand(&self, part: &str) -> PathBuf {
        format!("nbd+unix:///?socket={}{part}", self.socket.display()).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_disk_on_a_server_has_parts_too() {
    if !have(&PROGRAMS) || !have(&["qemu-nbd"]) || !root() {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt", GPT, MIB);
    let image = scratch.file("a.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    let socket = scratch.file("nbd.sock");
    let arguments = ["-t", "-e", "8", "-f", "qcow2", "-k", socket.to_str().unwrap(), image.to_str().unwrap()];
    let server = Server::start("qemu-nbd", &arguments, &socket);
    // It listens before it opens the disk, and answers behind that.
    ok("info IMAGE", &server.operand(""));
    // While QEMU has the disk, no one else gets it.
    let (code, text) = fails("ls IMAGE", &operand(&image, "#2"));
    assert!(code == 4 && text.contains("qemu-nbd"), "{code} {text}");
    assert_eq!(fails("mkfs IMAGE -q", &operand(&image, "#2")).0, 4);
    let (part, source) = (server.operand("#2"), scratch.file("source"));
    let (code, text) = fails("mkfs IMAGE --small -q", &part);
    assert!(code == 2 && text.contains("--others-kept-out"), "{code} {text}");
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    ok(&format!("mkfs IMAGE --others-kept-out --small -q --from {}", source.display()), &part);
    ok("mkdir IMAGE /new --others-kept-out", &part);
    ok("rm -r IMAGE /new --others-kept-out", &part);
    assert!(ok("info IMAGE", &server.operand("")).contains("#2"));
    assert!(ok("check IMAGE", &server.operand("")).ends_with("no faults\n"));
    drop(server);
    let expected = below(&source);
    judge(&partition(&scratch, &raw(&scratch, &image), 2), &expected, "on a server");
    // A server that does not know the format is named.
    let raw = ["-t", "-f", "raw", "-k", socket.to_str().unwrap(), image.to_str().unwrap()];
    let server = Server::start("qemu-nbd", &raw, &socket);
    let (code, text) = fails("ls IMAGE", &server.operand(""));
    assert!(code == 7 && text.contains("the export holds a qcow2 image"), "{code} {text}");
}

#[test]
fn a_part_is_mounted_and_its_disk_is_in_use() {
    let Some(prepared) = common::mounts::prepared_for_root() else { return };
    if !have(&PROGRAMS) {
        return;
    }
    let (scratch, dir) = (&prepared.scratch, &prepared.dir);
    let disk = table(scratch, "mbr", MBR, 67 * MIB);
    let image = scratch.file("a b.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    let run = |arguments: &[&OsStr]| {
        let output = xfskit(arguments);
        (output.status.code().unwrap(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let part = operand(&image, "#6");
    let word = OsStr::new;
    assert_eq!(run(&[word("mkfs"), word("--small"), word("-q"), part.as_os_str()]).0, 0);
    let mounted = run(&[word("mount"), part.as_os_str(), dir.as_os_str()]);
    assert_eq!(mounted.0, 0, "{}", mounted.1);
    fs::write(dir.join("file"), "here").unwrap();
    let source = common::disks::run("findmnt", &["-n", "-o", "SOURCE", dir.to_str().unwrap()]);
    assert_eq!(source.trim(), part.to_str().unwrap());
    for other in ["#1", "#6", ""] {
        let (code, text) = run(&[word("ls"), operand(&image, other).as_os_str()]);
        let cure = format!("xfskit umount {}", dir.display());
        assert!(code == 4 && text.contains(&cure), "{other}: {code} {text}");
    }
    let remount = run(&[word("mount"), word("-o"), word("remount,ro"), part.as_os_str(), dir.as_os_str()]);
    assert_eq!(remount.0, 0, "{}", remount.1);
    let wrong = run(&[word("mount"), word("-o"), word("remount,rw"), image.as_os_str(), dir.as_os_str()]);
    assert!(wrong.0 == 2 && wrong.1.contains("is mounted there"), "{wrong:?}");
    assert_eq!(run(&[word("umount"), dir.as_os_str()]).0, 0);
    assert_eq!(run(&[word("cat"), part.as_os_str(), word("/file")]).1, "here");
    common::disks::run("qemu-img", &["check", "-q", image.to_str().unwrap()]);
    // The helper of mount(8), with an operand as fstab has it.
    let helper = scratch.file("mount.fuse.xfskit");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_xfskit"), &helper).unwrap();
    let tab = scratch.file("fstab");
    fs::write(&tab, format!("{} {} fuse.xfskit ro 0 0\n", "/srv/disk.qcow2#6", dir.display())).unwrap();
    let named = common::disks::run("findmnt", &["--tab-file", tab.to_str().unwrap(), "-n", "-o", "SOURCE"]);
    assert_eq!(named.trim(), "/srv/disk.qcow2#6");
    let output = Command::new(&helper).arg(&part).arg(dir).args(["-o", "ro"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "here");
    assert_eq!(run(&[word("umount"), dir.as_os_str()]).0, 0);
}

/// A server that is killed leaves a dirty journal, and in qcow2 the mark of an unclean stop.
#[test]
fn a_killed_server_is_named_and_its_journal_replayed() {
    let Some(prepared) = common::mounts::prepared_for_root() else { return };
    if !have(&PROGRAMS) {
        return;
    }
    let (scratch, dir) = (&prepared.scratch, &prepared.dir);
    let disk = table(scratch, "gpt", GPT, MIB);
    ok("mkfs IMAGE -q --small", &operand(&disk, "#2"));
    let image = scratch.file("a.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    for disk in [&disk, &image] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xfskit"));
        let mut server = command.args(["mount", "-f"]).arg(operand(disk, "#2")).arg(dir).spawn().unwrap();
        while !fs::read_to_string("/proc/self/mounts").unwrap().contains(dir.to_str().unwrap()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::write(dir.join("file"), "durable").unwrap();
        fs::File::open(dir.join("file")).unwrap().sync_all().unwrap();
        // Its parent, which was started, would see the image closed.
        common::mounts::signal(common::mounts::server_of(disk), "-KILL");
        server.wait().unwrap();
        run("umount", &["-l", dir.to_str().unwrap()]);
        if disk == &image {
            let (code, text) = fails("ls IMAGE", disk);
            assert!(code == 7 && text.contains("qemu-img check -r all"), "{code} {text}");
            run("qemu-img", &["check", "-q", "-r", "all", image.to_str().unwrap()]);
        }
        let text = ok("info IMAGE", disk);
        assert!(text.contains("journal dirty"), "{text}");
        assert_eq!(ok("cat IMAGE /file", disk), "durable");
        assert!(ok("log print IMAGE", disk).contains("dirty from"));
        ok("log replay IMAGE", disk);
        assert!(ok("info IMAGE", disk).contains("journal clean"));
        let part = partition(scratch, &raw(scratch, disk), 2);
        let Some(mount) = kernel_mount(&part) else { return };
        assert_eq!(fs::read_to_string(mount.path().join("file")).unwrap(), "durable");
        mount.unmount();
    }
}

#[test]
fn a_copy_of_a_disk_that_was_cut_short_is_read() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "mbr", MBR, 67 * MIB);
    let six = operand(&disk, "#6");
    ok("mkfs IMAGE -q --small --from /etc/alternatives", &six);
    let short = scratch.image("short.img", 130 * MIB);
    copy(&disk, &short, 0, 130 * MIB);
    let text = ok("info IMAGE", &short);
    assert!(text.contains("warning: partition 6 reaches past the end of the disk"), "{text}");
    assert_eq!(fails("mkdir IMAGE /new", &operand(&short, "#6")).0, 7);
}

/// A partition grows into the room behind it, its table with it, and then the filesystem.
#[test]
fn a_partition_and_its_filesystem_grow() {
    if !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    for (name, lines, number) in [("gpt.img", GPT, 2), ("mbr.img", "label: dos\nstart=1MiB,size=64MiB,type=83\n", 1)] {
        let disk = table(&scratch, name, lines, if number == 2 { MIB } else { 100 * MIB });
        let part = operand(&disk, &format!("#{number}"));
        ok("mkfs IMAGE -f -q --small", &part);
        ok("mkdir IMAGE /kept", &part);
        let (code, message) = fails("admin grow IMAGE 10G", &part);
        assert!(code == 2 && message.contains("its limit"), "{code} {message}");
        assert!(ok("admin grow IMAGE +10M", &part).contains("become"), "{name}");
        let size = |disk: &Path| {
            let table = sfdisk(disk);
            table["partitions"][number as usize - 1]["size"].as_u64().unwrap() * 512
        };
        assert_eq!(size(&disk), 74 * MIB, "{name}");
        // Without a size it takes all the room that there is.
        assert!(ok("admin grow IMAGE", &part).contains("become"), "{name}");
        assert!(size(&disk) > 100 * MIB, "{name}");
        run("sfdisk", &["--verify", disk.to_str().unwrap()]);
        assert!(ok("admin grow IMAGE", &part).contains("as before"), "{name}");
        assert_eq!(ok("ls IMAGE /", &part), "kept\n");
        let extracted = partition(&scratch, &disk, number);
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&extracted);
        }
        if let Some(mount) = kernel_mount(&extracted) {
            assert!(mount.path().join("kept").is_dir());
            let space = rustix::fs::statvfs(mount.path()).unwrap();
            assert!(space.f_blocks * space.f_frsize > 80 * MIB, "{name}: the kernel sees {} blocks", space.f_blocks);
        }
    }
    let boot = operand(&scratch.file("gpt.img"), "#1");
    assert_ne!(fails("admin grow IMAGE", &boot).0, 0);
}

/// A part that is named by its first byte ends where the partition ends, and what lies between two before the next.
#[test]
fn an_offset_reaches_no_other_partition() {
    if !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt.img", GPT, MIB);
    let (root, boot) = (operand(&disk, "#2"), operand(&disk, "#offset=1M"));
    ok("mkfs IMAGE -f -q --small -L kept", &root);
    ok("mkfs IMAGE -f -q --small -L first", &boot);
    assert!(ok("admin grow IMAGE", &boot).contains("as before"));
    let (code, message) = fails("admin grow IMAGE 60M", &boot);
    assert!(code == 2 && message.contains("its limit"), "{code} {message}");
    assert!(ok("info IMAGE", &root).contains("\"kept\"") && ok("check IMAGE", &root).contains("no faults"));
    let (code, message) = fails("mkfs IMAGE -q --small", &operand(&disk, "#offset=33M"));
    assert!(code != 0, "{message}");
}

#[test]
fn partitions_that_overlap_are_named_and_not_written() {
    if !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.image("overlap.img", 168 * MIB);
    common::disks::run_with(
        "sfdisk",
        &["-q", "--force", disk.to_str().unwrap()],
        "label: dos\nstart=1MiB,size=80MiB\n",
    );
    common::disks::run_with("sfdisk", &["-q", "--force", "-a", disk.to_str().unwrap()], "start=90MiB,size=40MiB\n");
    ok("mkfs IMAGE -f -q --small", &operand(&disk, "#1"));
    // sfdisk makes no such table: the second entry's start is changed to 64 MiB.
    let mut bytes = fs::read(&disk).unwrap();
    bytes[446 + 16 + 8..446 + 16 + 12].copy_from_slice(&(64u32 * 2048).to_le_bytes());
    fs::write(&disk, bytes).unwrap();
    assert!(ok("info IMAGE", &disk).contains("have bytes in common"));
    for part in ["#1", "#2"] {
        let (_, message) = fails("mkfs IMAGE -f -q --small", &operand(&disk, part));
        assert!(message.contains("have bytes in common"), "{message}");
    }
    assert!(ok("check IMAGE", &operand(&disk, "#1")).contains("no faults"));
}

/// One byte that is not zero, anywhere, is something.
#[test]
fn all_of_a_part_is_searched_before_it_is_written_over() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.image("disk.img", 2048 * MIB);
    common::disks::run_with("sfdisk", &["-q", disk.to_str().unwrap()], "label: gpt\nstart=1MiB\n");
    let part = operand(&disk, "#1");
    std::os::unix::fs::FileExt::write_all_at(&fs::File::options().write(true).open(&disk).unwrap(), b"x", 700_123_456)
        .unwrap();
    let (code, message) = fails("mkfs IMAGE -q", &part);
    assert!(code == 2 && message.contains("699074880 is not zero"), "{code} {message}");
    let image = scratch.file("disk.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    let (code, message) = fails("mkfs IMAGE -q", &operand(&image, "#1"));
    assert!(code == 2 && message.contains("is not zero"), "{code} {message}");
}

/// A virtual disk may name any file that the user may read.
#[test]
fn a_disk_that_names_files_elsewhere_is_warned_of() {
    if !have(&["qemu-img"]) {
        return;
    }
    let scratch = scratch();
    let folder = scratch.file("other");
    fs::create_dir(&folder).unwrap();
    let base = folder.join("base.img");
    ok("mkfs IMAGE --size 400M -q", &base);
    let (near, far) = (scratch.file("near.qcow2"), scratch.file("far.qcow2"));
    let make = |image: &Path, base: &Path| {
        run(
            "qemu-img",
            &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base.to_str().unwrap(), image.to_str().unwrap()],
        );
    };
    make(&far, &base);
    copy(&base, &scratch.file("beside.img"), 0, 400 * MIB);
    make(&near, Path::new("beside.img"));
    let warned =
        |image: &Path| String::from_utf8(xfskit(["ls".as_ref(), image.as_os_str(), "/".as_ref()]).stderr).unwrap();
    assert!(warned(&far).contains("other/base.img, whose contents are shown"), "{}", warned(&far));
    assert!(!warned(&near).contains("whose contents"), "{}", warned(&near));
}

/// A disk with sectors of 4096 bytes takes no filesystem with smaller ones: no kernel would mount it there.
#[test]
fn a_filesystem_has_the_sectors_of_its_disk() {
    if !root() || !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.image("large.img", 400 * MIB);
    let attached = Command::new("losetup").args(["-f", "--show", "-b", "4096"]).arg(&disk).output().unwrap();
    if !attached.status.success() {
        return skip("no loop device with sectors of 4096 bytes");
    }
    let device = PathBuf::from(String::from_utf8(attached.stdout).unwrap().trim());
    let made = ok("mkfs IMAGE -q", &device);
    let shown = ok("info IMAGE", &device);
    run("losetup", &["-d", device.to_str().unwrap()]);
    assert!(made.is_empty() && shown.contains("sectsz=4096"), "{shown}");
}
