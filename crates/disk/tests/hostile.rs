//! Tables, metadata and headers with random damage: an answer or an error, in bounded time and memory, never a panic.

mod common;

use common::{choose, file, have, open, pattern, run, run_with};
use std::path::Path;
use xfskit_device::{Access, BlockDevice};
use xfskit_disk::Unnamed;

/// Damages `bytes` in the given range: single bits, bytes, numbers at their limits, and copied parts.
fn damage(bytes: &mut [u8], range: std::ops::Range<usize>, seed: u64) {
    let random = pattern(64, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for choice in random.chunks_exact(8).take(1 + random[0] as usize % 4) {
        let at = range.start + u32::from_le_bytes(choice[..4].try_into().unwrap()) as usize % range.len();
        let end = (at + [1, 2, 4, 8][choice[4] as usize % 4]).min(range.end);
        match choice[5] % 5 {
            0 => bytes[at] ^= 1 << (choice[6] % 8),
            1 => bytes[at..end].fill(0xff),
            2 => bytes[at..end].fill(0),
            3 => bytes[at..end].fill(choice[6]),
            _ => {
                let from = range.start + choice[7] as usize % (range.len() / 2);
                let piece = bytes[from..(from + 16).min(range.end)].to_vec();
                let to = at.min(range.end - piece.len());
                bytes[to..to + piece.len()].copy_from_slice(&piece);
            }
        }
    }
}

/// Opens a disk, and reads a little of everything that can be used.
fn look(path: &Path) {
    let Ok(disks) = open(path.to_str().unwrap(), Access::Read) else { return };
    let _ = disks.to_string();
    let _ = disks.choose(Unnamed::OnlyXfs).map(|_| ());
    let mut buffer = vec![0; 8192];
    for found in disks.found() {
        let Ok(device) = &found.device else { continue };
        let end = device.size_bytes().saturating_sub(8192);
        for offset in [0, end / 2, end] {
            let length = device.size_bytes().min(8192) as usize;
            // Damaged tables of qcow2 are found when they are read.
            let _ = device.read(offset, &mut buffer[..length]);
            let _ = device.may_hold_data(offset, length as u64);
        }
        assert!(device.read(device.size_bytes(), &mut [0]).is_err());
    }
}

/// Looks at `rounds` damaged copies of a disk.
fn damage_all(path: &Path, range: std::ops::Range<usize>, rounds: u64) {
    let whole = std::fs::read(path).unwrap();
    let damaged = path.with_extension("damaged");
    for seed in 0..rounds {
        let mut bytes = whole.clone();
        damage(&mut bytes, range.clone(), seed);
        std::fs::write(&damaged, bytes).unwrap();
        look(&damaged);
    }
}

/// Writes to damaged copies of an image.
fn write_damaged(path: &Path, range: std::ops::Range<usize>, rounds: u64) {
    let whole = std::fs::read(path).unwrap();
    let damaged = path.with_extension("damaged");
    for seed in 0..rounds {
        let mut bytes = whole.clone();
        damage(&mut bytes, range.clone(), seed);
        std::fs::write(&damaged, bytes).unwrap();
        let Ok(device) = choose(&format!("{}#whole", damaged.display()), Access::Write) else { continue };
        for offset in [0, 70_000, 200_000] {
            let _ = device.write(offset, &[1; 5000]);
            let _ = device.discard(offset + 10_000, 9000);
        }
        let _ = device.flush();
    }
}

fn disk_of(dir: &Path, script: &str) -> std::path::PathBuf {
    let disk = dir.join("d.img");
    file(&disk, 4 << 20);
    run_with("sfdisk", &["-q", "--no-tell-kernel", disk.to_str().unwrap()], script);
    disk
}

#[test]
fn damaged_gpt() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = disk_of(dir.path(), "label: gpt\nsize=1MiB,name=a\nsize=1MiB,name=b\n");
    damage_all(&disk, 0..1536, 1500);
}

#[test]
fn damaged_mbr() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let script =
        "label: dos\nstart=64,size=64,type=83\nstart=256,type=f\nstart=300,size=32,type=83\nstart=400,size=32\n";
    let disk = disk_of(dir.path(), script);
    damage_all(&disk, 440..512, 1500);
    damage_all(&disk, 256 * 512 + 440..257 * 512, 1500);
}

#[test]
fn damaged_qcow2() {
    if !have("qemu-img") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let (source, image) = (dir.file("s.img"), dir.file("d.qcow2"));
    std::fs::write(&source, pattern(300_000, 3)).unwrap();
    for options in [&["-O", "qcow2", "-o", "cluster_size=512"][..], &["-c", "-O", "qcow2"]] {
        run("qemu-img", &[&["convert"], options, &[source.to_str().unwrap(), image.to_str().unwrap()]].concat());
        let length = std::fs::read(&image).unwrap().len();
        damage_all(&image, 0..112, 1500);
        // The tables behind the header.
        damage_all(&image, 512..length.min(262_144), 1500);
        write_damaged(&image, 0..length.min(262_144), 1000);
    }
}
