//! qcow2 images that qemu-img makes, and that it judges after they were written here.

mod common;

use common::{choose, file, have, open, pattern, put, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_device::{Access, BlockDevice, OpenError};
use xfskit_disk::DiskError;

const MIB: u64 = 1 << 20;

fn create(path: &Path, options: &[&str], size: &str) {
    let mut args = vec!["create", "-q", "-f", "qcow2"];
    args.extend(options);
    args.push(path.to_str().unwrap());
    args.extend((!size.is_empty()).then_some(size));
    run("qemu-img", &args);
}

/// What qemu-img reads from an image.
fn raw(path: &Path) -> Vec<u8> {
    let out = path.with_extension("raw");
    run("qemu-img", &["convert", "-O", "raw", path.to_str().unwrap(), out.to_str().unwrap()]);
    std::fs::read(out).unwrap()
}

fn check(path: &Path) {
    run("qemu-img", &["check", "-q", path.to_str().unwrap()]);
}

/// Writes, overwrites, discards and reads at random, beside a copy in memory.
fn exercise(path: &Path, copy: &mut [u8]) {
    let device = choose(&format!("{}#whole", path.display()), Access::Write).unwrap();
    assert_eq!(device.size_bytes(), copy.len() as u64);
    let choices = pattern(4000, 5);
    for (number, choice) in choices.chunks_exact(8).enumerate() {
        let random = u64::from_le_bytes(choice.try_into().unwrap());
        let length = (random >> 40) as usize % 200_000 + 1;
        let offset = random as u32 as usize % (copy.len() - length) / 512 * 512;
        match choice[7] % 8 {
            0 => {
                device.discard(offset as u64, length as u64).unwrap();
                // What a discarded range contains is not said; it is not looked at until it is written again.
                device.read(offset as u64, &mut copy[offset..offset + length]).unwrap();
            }
            1 => device.flush().unwrap(),
            2 => {
                let mut back = vec![0; length];
                device.read(offset as u64, &mut back).unwrap();
                assert!(back == copy[offset..offset + length], "step {number}");
                if !device.may_hold_data(offset as u64, length as u64) {
                    assert!(back.iter().all(|&byte| byte == 0), "step {number}");
                }
            }
            _ => {
                let data = pattern(length, random);
                device.write(offset as u64, &data).unwrap();
                copy[offset..offset + length].copy_from_slice(&data);
            }
        }
    }
    device.flush().unwrap();
}

#[test]
fn what_is_written_here_is_what_qemu_reads() {
    if !have("qemu-img") {
        return;
    }
    for options in ["cluster_size=64k", "cluster_size=512", "cluster_size=2M", "cluster_size=4k,refcount_bits=1"] {
        let dir = xfskit_testkit::scratch();
        let image = dir.file("d.qcow2");
        create(&image, &["-o", options], "24M");
        let mut copy = vec![0; 24 * MIB as usize];
        exercise(&image, &mut copy);
        check(&image);
        assert!(raw(&image) == copy, "{options}");
        exercise(&image, &mut copy);
        check(&image);
        assert!(raw(&image) == copy, "{options}, opened again");
    }
}

#[test]
fn a_chain_is_read_and_its_backing_files_stay_as_they_are() {
    if !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    std::fs::create_dir(dir.file("below")).unwrap();
    let (base, middle, top) = (dir.file("below/base.img"), dir.file("below/middle.qcow2"), dir.file("top.qcow2"));
    file(&base, 10 * MIB);
    put(&base, 0, &pattern(10 * MIB as usize, 3));
    create(&middle, &["-b", "base.img", "-F", "raw"], "12M");
    let mut copy = vec![0; 12 * MIB as usize];
    copy[..10 * MIB as usize].copy_from_slice(&pattern(10 * MIB as usize, 3));
    exercise(&middle, &mut copy);
    create(&top, &["-b", "below/middle.qcow2", "-F", "qcow2"], "");
    let before = (std::fs::read(&base).unwrap(), std::fs::read(&middle).unwrap());
    let tree = open(top.to_str().unwrap(), Access::Read).unwrap();
    assert_eq!(tree.disks[0].below.len(), 2);
    drop(tree);
    exercise(&top, &mut copy);
    check(&top);
    assert!(raw(&top) == copy);
    assert!(before == (std::fs::read(&base).unwrap(), std::fs::read(&middle).unwrap()));
}

#[test]
fn compressed_clusters_are_read_and_overwritten() {
    if !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let (source, image) = (dir.file("s.img"), dir.file("c.qcow2"));
    let mut copy: Vec<u8> = pattern(64 * 1024, 3).repeat(96);
    for (number, byte) in copy.iter_mut().enumerate() {
        *byte &= (number >> 13) as u8;
    }
    std::fs::write(&source, &copy).unwrap();
    run("qemu-img", &["convert", "-c", "-O", "qcow2", source.to_str().unwrap(), image.to_str().unwrap()]);
    exercise(&image, &mut copy);
    check(&image);
    assert!(raw(&image) == copy);
}

fn incompatible(path: &Path) -> u8 {
    std::fs::read(path).unwrap()[79]
}

#[test]
fn an_image_is_marked_while_it_is_changed() {
    if !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let image = dir.file("d.qcow2");
    create(&image, &[], "4M");
    let name = format!("{}#whole", image.display());
    let device = choose(&name, Access::Write).unwrap();
    assert_eq!(incompatible(&image), 0);
    device.write(0, b"x").unwrap();
    assert_eq!(incompatible(&image), 1);
    device.flush().unwrap();
    assert_eq!(incompatible(&image), 1);
    let torn = dir.file("torn.qcow2");
    std::fs::copy(&image, &torn).unwrap();
    drop(device);
    assert_eq!(incompatible(&image), 0);
    check(&image);
    // The copy is what a power failure leaves.
    let refused = format!("{}#whole", torn.display());
    for access in [Access::Read, Access::Write] {
        let error = choose(&refused, access).err().unwrap().to_string();
        assert!(error.contains("qemu-img check -r all"), "{error}");
    }
    run("qemu-img", &["check", "-q", "-r", "all", torn.to_str().unwrap()]);
    let mut byte = [0];
    choose(&refused, Access::Read).unwrap().read(0, &mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[test]
fn what_is_not_handled_is_refused_by_name() {
    if !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let make = |format: &str, options: &str, name: &str| -> PathBuf {
        let path = dir.file(name);
        let mut command = Command::new("qemu-img");
        command
            .args(["create", "-q", "-f", format])
            .args((!options.is_empty()).then_some(["-o", options]).iter().flatten());
        assert!(command.arg(&path).arg("8M").status().unwrap().success(), "{name}");
        path
    };
    let refused = [
        (make("qcow2", "extended_l2=on", "l2"), "subclusters", "qcow2", Access::Read),
        (make("qcow2", "compression_type=zstd", "zstd"), "zstd", "qcow2", Access::Read),
        (make("qcow2", "compat=0.10", "v2"), "version 2", "amend", Access::Write),
        (make("vmdk", "", "sparse"), "VMDK", "vmdk", Access::Read),
        (make("vdi", "", "vdi"), "VDI", "vdi", Access::Read),
        (make("vhdx", "", "vhdx"), "VHDX", "vhdx", Access::Read),
        (make("vpc", "", "vhd"), "VHD", "vpc", Access::Read),
        (make("vpc", "subformat=fixed", "fixed"), "VHD", "vpc", Access::Read),
        (make("qed", "", "qed"), "QED", "qed", Access::Read),
        (make("parallels", "", "parallels"), "Parallels", "parallels", Access::Read),
        (make("qcow", "", "qcow"), "version 1", "qcow", Access::Read),
    ];
    for (path, what, advice, access) in &refused {
        let error = choose(path.to_str().unwrap(), *access).err().unwrap();
        assert!(matches!(error, DiskError::Refused { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(advice), "{text}");
    }
    choose(refused[2].0.to_str().unwrap(), Access::Read).unwrap();
    let snapshots = make("qcow2", "", "snapshots");
    run("qemu-img", &["snapshot", "-c", "one", snapshots.to_str().unwrap()]);
    let bitmaps = make("qcow2", "", "bitmaps");
    run("qemu-img", &["bitmap", "--add", bitmaps.to_str().unwrap(), "b"]);
    for path in [snapshots, bitmaps] {
        choose(path.to_str().unwrap(), Access::Read).unwrap();
        assert!(matches!(choose(path.to_str().unwrap(), Access::Write), Err(DiskError::Refused { .. })));
    }
}

#[test]
fn flat_vmdk_is_read() {
    if !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let (source, image) = (dir.file("s.img"), dir.file("flat.vmdk"));
    let data = pattern(3 * MIB as usize, 4);
    std::fs::write(&source, &data).unwrap();
    let options = ["-O", "vmdk", "-o", "subformat=monolithicFlat"];
    run("qemu-img", &[&["convert"], &options[..], &[source.to_str().unwrap(), image.to_str().unwrap()]].concat());
    let device = choose(image.to_str().unwrap(), Access::Read).unwrap();
    let mut back = vec![0; data.len()];
    device.read(0, &mut back).unwrap();
    assert!(back == data);
    assert!(choose(image.to_str().unwrap(), Access::Write).is_err());
}

#[test]
fn a_disk_that_qemu_has_open_is_busy() {
    if !have("qemu-nbd") || !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let (image, base) = (dir.file("d.qcow2"), dir.file("base.qcow2"));
    create(&base, &[], "4M");
    create(&image, &["-b", "base.qcow2", "-F", "qcow2"], "");
    let (socket, pid) = (dir.file("socket"), dir.file("pid"));
    let serve = ["-f", "qcow2", "--fork", "-t", "-k", socket.to_str().unwrap(), "--pid-file", pid.to_str().unwrap()];
    run("qemu-nbd", &[&serve[..], &[image.to_str().unwrap()]].concat());
    let is_busy = |path: &Path, access| {
        matches!(choose(path.to_str().unwrap(), access), Err(DiskError::Open(OpenError::Busy(_))))
    };
    let found = (is_busy(&image, Access::Read), is_busy(&image, Access::Write), is_busy(&base, Access::Write));
    let may_share = choose(base.to_str().unwrap(), Access::Read).is_ok();
    run("kill", &[std::fs::read_to_string(&pid).unwrap().trim()]);
    assert_eq!(found, (true, true, true));
    assert!(may_share);
    // And the other way round: QEMU does not open what is written here.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let device = choose(image.to_str().unwrap(), Access::Write).unwrap();
    let status = Command::new("qemu-img").args(["check", "-q"]).arg(&image).output().unwrap();
    assert!(!status.status.success());
    drop(device);
    check(&image);
}
