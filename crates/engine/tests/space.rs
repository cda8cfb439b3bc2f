//! Files in images whose free space is in pieces, and in logs that were not unmounted: judged by xfs_repair and the
//! kernel.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::incore::ForkKind;
use xfskit_engine::mount::BlockPool;
use xfskit_engine::space::{AllocRequest, Near, Owner, allocate, free};
use xfskit_engine::trans::Reservation;
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_ondisk::{AgNumber, FileBlock, FsBlock, InodeNumber};
use xfskit_testkit::{Reference, Scratch, kernel_mount};

const FILES_PER_DIR: u32 = 500;

struct Image {
    reference: Reference,
    scratch: Scratch,
    path: PathBuf,
}

/// mkfs.xfs refuses images as small as these; ours makes them.
fn image(mib: u64, options: &[(char, &str)]) -> Option<Image> {
    let reference = xfskit_testkit::reference()?;
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", mib << 20);
    let device = FileDevice::open(&path, Access::Write).unwrap();
    let mut all = xfskit_mkfs::Options { uuid: Some([9; 16]), allow_small: true, ..Default::default() };
    for (letter, option) in options {
        all.apply(*letter, option).unwrap();
    }
    xfskit_mkfs::make(&device, None, &all, xfskit_ondisk::Timestamp::default()).unwrap();
    Some(Image { reference, scratch, path })
}

fn open(path: &Path) -> Volume {
    Volume::open(Arc::new(FileDevice::open(path, Access::Write).unwrap()), MountOptions::default()).unwrap()
}

/// Blocks that the test keeps allocated.
struct Kept {
    extents: Vec<(FsBlock, u32, Owner)>,
}

fn reservation(blocks: u64) -> Reservation {
    Reservation { log_bytes: 200_000, log_count: 1, blocks, pool: BlockPool::Removal }
}

impl Kept {
    /// Allocates all free space of an AG in aligned pieces and frees every second of them.
    fn fragment(fs: &Volume, ag: u32, blocks: u32) -> Self {
        let mount = fs.mount();
        let mut extents = Vec::new();
        for piece in 0.. {
            let offset = FileBlock(piece << 20);
            let owner = Owner::Fork { inode: InodeNumber(1 << 20), fork: ForkKind::Data, offset, bmbt: false };
            let request =
                AllocRequest { alignment: blocks, ..AllocRequest::new(Near::Ag(AgNumber(ag)), blocks, blocks, owner) };
            let Ok(mut tx) = mount.transaction(reservation(blocks.into())) else { break };
            let found = match allocate(&mut tx, &request) {
                Err(xfskit_engine::error::Error::NoSpace) | Ok(None) => break,
                other => other.unwrap().unwrap(),
            };
            if mount.geometry.split_fs_block(found.0).unwrap().0.0 != ag {
                free(&mut tx, found.0, blocks, owner).unwrap();
                tx.commit().unwrap();
                break;
            }
            tx.commit().unwrap();
            extents.push((found.0, blocks, owner));
        }
        extents.sort_by_key(|extent| extent.0);
        let (back, kept): (Vec<_>, Vec<_>) = extents.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
        Self { extents: back.into_iter().map(|(_, extent)| extent).collect() }.give_back(fs);
        Self { extents: kept.into_iter().map(|(_, extent)| extent).collect() }
    }

    fn give_back(self, fs: &Volume) -> usize {
        for &(block, count, owner) in &self.extents {
            let mut tx = fs.mount().transaction(reservation(0)).unwrap();
            free(&mut tx, block, count, owner).unwrap();
            tx.commit().unwrap();
        }
        self.extents.len()
    }
}

fn create_files(fs: &Volume, count: u32) {
    let me = Caller::root();
    let mut dir = fs.root();
    for n in 0..count {
        if n % FILES_PER_DIR == 0 {
            dir = fs.create(fs.root(), format!("d{n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode;
        }
        fs.create(dir, format!("file {n}").as_bytes(), &NewFile::file(0o644), &me).unwrap();
    }
}

fn remove_files(fs: &Volume, count: u32, which: impl Fn(u32) -> bool) {
    let me = Caller::root();
    for n in (0..count).filter(|&n| which(n)) {
        let name = format!("d{}", n - n % FILES_PER_DIR);
        let dir = fs.lookup(fs.root(), name.as_bytes()).unwrap().inode;
        fs.unlink(dir, format!("file {n}").as_bytes(), &me).unwrap();
    }
}

fn count_files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| if entry.file_type().unwrap().is_dir() { count_files(&entry.path()) } else { 1 }).sum()
}

#[test]
fn files_live_in_sparse_chunks() {
    const FILES: u32 = 12_000;
    let Some(image) = image(64, &[('b', "size=1024"), ('d', "agcount=1")]) else { return };
    let fs = open(&image.path);
    let cluster = fs.mount().geometry.sparse_inode_alignment;
    let kept = Kept::fragment(&fs, 0, cluster);
    create_files(&fs, FILES);
    assert!(kept.give_back(&fs) > 500);
    fs.unmount().unwrap();
    let sparse = image.reference.db(&image.path, &["agi 0", "addr root", "addr ptrs[1]", "p recs"]);
    assert!(sparse.contains(",0xff00,") || sparse.contains(",0xff,"), "{sparse}");
    image.reference.repair_finds_nothing(&image.path);
    if let Some(mount) = kernel_mount(&image.path) {
        assert_eq!(count_files(mount.path()), FILES as usize);
        std::fs::write(mount.path().join("from the kernel"), "x").unwrap();
        mount.unmount();
        image.reference.repair_finds_nothing(&image.path);
    }
    let fs = open(&image.path);
    remove_files(&fs, FILES, |n| n % 7 != 0);
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
}

#[test]
fn twenty_thousand_fragments_do_not_stop_creates() {
    let Some(image) = image(128, &[('b', "size=1024"), ('d', "agcount=2")]) else { return };
    let fs = open(&image.path);
    let kept = Kept::fragment(&fs, 0, 1);
    assert!(kept.extents.len() > 20_000, "{}", kept.extents.len());
    create_files(&fs, 6000);
    remove_files(&fs, 6000, |n| n % 3 == 0);
    kept.give_back(&fs);
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
}

#[test]
fn new_and_freed_chunks_are_recovered_by_the_kernel() {
    const FILES: u32 = 3000;
    let Some(image) = image(300, &[]) else { return };
    let fs = open(&image.path);
    create_files(&fs, FILES);
    fs.sync().unwrap();
    remove_files(&fs, FILES, |n| n > 1000);
    fs.sync().unwrap();
    let copy = image.scratch.file("dirty.img");
    std::fs::copy(&image.path, &copy).unwrap();
    let Some(mount) = kernel_mount(&copy) else { return };
    assert_eq!(count_files(mount.path()), 1001);
    mount.unmount();
    image.reference.repair_finds_nothing(&copy);
}
