//! A mount of a part of a disk.

use crate::common::disks::{GPT, MBR, MIB, have, partition, raw, run, table};
use crate::common::mounts::{prepared_for_root, server_of, signal};
use crate::common::{fails, ok, xfskit};
use crate::{PROGRAMS, operand};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;
use xfskit_testkit::kernel_mount;

#[test]
fn a_part_is_mounted_and_its_disk_is_in_use() {
    let Some(prepared) = prepared_for_root() else { return };
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
    let source = crate::common::disks::run("findmnt", &["-n", "-o", "SOURCE", dir.to_str().unwrap()]);
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
    crate::common::disks::run("qemu-img", &["check", "-q", image.to_str().unwrap()]);
    // The helper of mount(8), with an operand as fstab has it.
    let helper = scratch.file("mount.fuse.xfskit");
    symlink(env!("CARGO_BIN_EXE_xfskit"), &helper).unwrap();
    let tab = scratch.file("fstab");
    fs::write(&tab, format!("{} {} fuse.xfskit ro 0 0\n", "/srv/disk.qcow2#6", dir.display())).unwrap();
    let named = crate::common::disks::run("findmnt", &["--tab-file", tab.to_str().unwrap(), "-n", "-o", "SOURCE"]);
    assert_eq!(named.trim(), "/srv/disk.qcow2#6");
    let output = Command::new(&helper).arg(&part).arg(dir).args(["-o", "ro"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "here");
    assert_eq!(run(&[word("umount"), dir.as_os_str()]).0, 0);
}

/// A server that is killed leaves a dirty journal, and in qcow2 the mark of an unclean stop.
#[test]
fn a_killed_server_is_named_and_its_journal_replayed() {
    let Some(prepared) = prepared_for_root() else { return };
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
        signal(server_of(disk), "-KILL");
        server.wait().unwrap();
        run("umount", &["-l", dir.to_str().unwrap()]);
        if disk == &image {
            let (code, text) = fails("--no-helpers ls IMAGE", disk);
            assert!(code == 7 && text.contains("qemu-img check -r all"), "{code} {text}");
            // As evidence it is read, and stays as it is.
            let before = fs::read(disk).unwrap();
            assert_eq!(ok("cat IMAGE /file", disk), "durable");
            assert_eq!(fails("touch IMAGE /new", disk).0, 7);
            assert!(fs::read(disk).unwrap() == before);
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
