//! The same work on images of every shape. Closed in good order the image is clean; cut off after a sync it is
//! recovered by the kernel with the same tree.

use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, RenameFlags, SetMode, Volume};

const SHAPES: &[&[&str]] = &[
    &[],
    &["-n", "parent=0"],
    &["-b", "size=1024", "-n", "size=4096"],
    &["-b", "size=2048", "-i", "size=1024"],
    &["-b", "size=16384"],
    &["-b", "size=65536", "-i", "size=2048"],
    &["-n", "size=65536"],
    &["-i", "size=2048", "-d", "agcount=8"],
    &["-s", "size=4096"],
    &["-l", "su=64k"],
    &["-l", "su=256k"],
    &["-d", "su=64k,sw=4", "-d", "agcount=7"],
    &["-m", "rmapbt=0,reflink=0", "-i", "sparse=0"],
    &["-m", "finobt=0,rmapbt=0,inobtcount=0,bigtime=0,reflink=0", "-i", "nrext64=0,exchange=0", "-n", "parent=0"],
];

fn work(fs: &Volume) {
    let me = Caller::root();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    let other = fs.create(fs.root(), b"other", &NewFile::dir(0o755), &me).unwrap().inode;
    for n in 0..1500u32 {
        let name = format!("a name that is not short {n:05}");
        let file = fs.create(dir, name.as_bytes(), &NewFile::file(0o644), &me).unwrap().inode;
        if n % 10 == 0 {
            let value = vec![n as u8; (n as usize * 40) % 65_000];
            fs.set_xattr(file, b"user.value", &value, SetMode::Any, &me).unwrap();
        }
        if n % 3 == 0 {
            fs.link(other, format!("link {n}").as_bytes(), file, &Caller::root()).unwrap();
        }
        if n % 7 == 0 {
            fs.rename(dir, name.as_bytes(), other, format!("moved {n}").as_bytes(), RenameFlags::default(), &me)
                .unwrap();
        } else if n % 2 == 0 {
            fs.unlink(dir, name.as_bytes(), &me).unwrap();
        }
    }
    let many = fs.create(fs.root(), b"many attributes", &NewFile::file(0o600), &me).unwrap().inode;
    for n in 0..400 {
        fs.set_xattr(many, format!("trusted.attribute {n}").as_bytes(), &[n as u8; 90], SetMode::Create, &me).unwrap();
    }
    fs.symlink(fs.root(), b"long", &[b'y'; 1000], &me).unwrap();
}

fn open(image: &Path, log: Option<&Path>) -> Volume {
    let device = |path| Arc::new(FileDevice::open(path, Access::Write).unwrap()) as Arc<dyn BlockDevice>;
    let options = MountOptions::default();
    match log {
        Some(log) => Volume::open_with_log(device(image), device(log), options).unwrap(),
        None => Volume::open(device(image), options).unwrap(),
    }
}

#[test]
fn every_shape_is_clean_after_an_unmount_and_recovered_after_a_cut() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    for shape in SHAPES {
        let scratch = xfskit_testkit::scratch();
        let image = scratch.image("a.img", 600 << 20);
        reference.mkfs(&image, shape);
        let fs = open(&image, None);
        work(&fs);
        fs.sync().unwrap();
        let cut = scratch.file("cut.img");
        std::fs::copy(&image, &cut).unwrap();
        fs.unmount().unwrap();
        reference.repair_finds_nothing(&image);
        let Some(kernel) = xfskit_testkit::kernel_mount(&cut) else { return };
        let recovered = kernel.into_tree();
        reference.repair_finds_nothing(&cut);
        let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
        assert!(kernel.into_tree() == recovered, "{shape:?}: two trees");
        println!("{shape:?}: {} files", recovered.len());
    }
}

#[test]
fn an_external_log_is_closed_and_opened_again() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 600 << 20);
    let log = scratch.image("log.img", 64 << 20);
    let device = format!("logdev={},size=64m", log.display());
    reference.mkfs(&image, &["-l", &device]);
    for round in 0..2 {
        let fs = open(&image, Some(&log));
        let name = format!("round {round}");
        fs.create(fs.root(), name.as_bytes(), &NewFile::dir(0o755), &Caller::root()).unwrap();
        if round == 0 {
            work(&fs);
        }
        fs.unmount().unwrap();
        assert_eq!(reference.repair_findings(&image, Some(&log)), None);
    }
    let device = Arc::new(FileDevice::open(&image, Access::Write).unwrap());
    let error = Volume::open(device, MountOptions::default()).err().unwrap();
    assert!(error.to_string().contains("external log"), "{error}");
}

#[test]
fn the_newer_kernel_recovers_the_same_log() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 600 << 20);
    reference.mkfs(&image, &[]);
    let fs = open(&image, None);
    work(&fs);
    fs.sync().unwrap();
    drop(fs);
    let run = reference
        .uml(&image, "mount -t xfs /dev/ubda /mnt && ls /mnt/dir | wc -l && ls /mnt/other | wc -l && umount /mnt");
    assert!(run.output.contains("643\n715\n"), "{}", run.output);
    reference.repair_finds_nothing(&image);
}

/// Inode blocks of 64 KiB contain more inodes than a word has bits. All inodes change together, again and again: after
/// the first time their clusters have left the cache, and are not read. Two inodes without names stay on an unlinked
/// list meanwhile, whose link is in the cluster alone.
#[test]
fn whole_clusters_are_written_back_again_and_again() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    for shape in [&[][..], &["-b", "size=1024"], &["-b", "size=65536"], &["-b", "size=65536", "-i", "size=2048"]] {
        let scratch = xfskit_testkit::scratch();
        let image = scratch.image("a.img", 600 << 20);
        reference.mkfs(&image, shape);
        let fs = open(&image, None);
        let me = Caller::root();
        let new = |n: u32| fs.create(fs.root(), format!("{n}").as_bytes(), &NewFile::file(0o644), &me).unwrap().inode;
        let files: Vec<_> = (0..512).map(new).collect();
        for held in [files[0], files[64]] {
            fs.add_reference(held).unwrap();
        }
        // Two inodes on one unlinked list, so that there is a link.
        fs.unlink(fs.root(), b"0", &me).unwrap();
        fs.unlink(fs.root(), b"64", &me).unwrap();
        let journal = &fs.mount().journal;
        journal.quiesce().unwrap();
        let misses = fs.mount().counters.buffer_misses.get();
        for round in 0..3 {
            for file in files.iter().filter(|file| **file != files[0] && **file != files[64]) {
                fs.set_xattr(*file, b"user.round", &[round; 20], SetMode::Any, &me).unwrap();
            }
            journal.quiesce().unwrap();
        }
        let read = fs.mount().counters.buffer_misses.get() - misses;
        assert!(read <= 6, "{shape:?}: {read} buffers read for what was in memory");
        let cut = scratch.file("cut.img");
        std::fs::copy(&image, &cut).unwrap();
        fs.unmount().unwrap();
        reference.repair_finds_nothing(&image);
        let Some(kernel) = xfskit_testkit::kernel_mount(&cut) else { return };
        let before = kernel.into_tree();
        let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
        assert!(kernel.into_tree() == before, "{shape:?}: two trees");
        println!("{shape:?}: {} files, {read} buffers read", before.len());
    }
}
