//! A filesystem on each kind of disk is made, changed and read.

use crate::common::disks::{GPT, Group, MBR, MIB, copy, have, partition, raw, run, table};
use crate::common::trees::make_tree;
use crate::common::{fails, ok};
use crate::{PROGRAMS, Server, below, exercise, judge, operand, root};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use xfskit_testkit::{scratch, skip};

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
        let (code, text) = fails("--no-helpers ls IMAGE /", &image);
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
