//! Memory stays within the limit of the mount, whatever the number of files. `XFSKIT_FILES` sets that number.

mod stress;

use std::ops::ControlFlow;
use stress::{Image, scale};
use xfskit_engine::{Caller, MountOptions, NewFile, SetMode, Volume};

/// Both tests measure the whole process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

const MIB: u64 = 1 << 20;
const CACHE: u64 = 64 * MIB;
/// Memory that the engine may use beyond its cache: a checkpoint being gathered, one being written, the process itself.
const BEYOND: u64 = 96 * MIB;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The most memory seen in each phase.
struct Watch {
    before: u64,
    most: u64,
}

impl Watch {
    fn look(&mut self) {
        self.most = self.most.max(resident().saturating_sub(self.before));
    }

    fn phase(&mut self, fs: &Volume, name: &str) {
        self.look();
        let mount = fs.mount();
        eprintln!(
            "{name}: {} MiB at most, {} MiB now; buffers {} MiB, inodes {}, AIL {}, log {} of {} MiB",
            self.most / MIB,
            resident().saturating_sub(self.before) / MIB,
            mount.cache.used_bytes() as u64 / MIB,
            mount.inodes.len(),
            mount.journal.ail().len(),
            mount.journal.usage().0 / MIB,
            mount.journal.usage().1 / MIB
        );
        assert!(self.most <= CACHE + BEYOND, "{name} took {} MiB", self.most / MIB);
        self.most = 0;
    }
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let _alone = ALONE.lock();
    let files: u64 = std::env::var("XFSKIT_FILES").map_or(100_000 * scale(), |value| value.parse().unwrap());
    let image = Image::new(400 + files / 1000, &[('i', "maxpct=0")]);
    let fs = image.open_with(MountOptions { cache_bytes: CACHE as usize, ..MountOptions::default() });
    let me = Caller::root();
    let mut watch = Watch { before: resident(), most: 0 };
    let dirs: Vec<_> = (0..files.div_ceil(10_000))
        .map(|n| fs.create(fs.root(), format!("dir-{n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode)
        .collect();
    let name = |n: u64| format!("a file of forty bytes whose number is {n:07}").into_bytes();
    for n in 0..files {
        let stat = fs.create(dirs[n as usize / 10_000], &name(n), &NewFile::file(0o644), &me).unwrap();
        if n.is_multiple_of(10) {
            fs.set_xattr(stat.inode, b"user.a", b"some value", SetMode::Any, &me).unwrap();
        }
        if n.is_multiple_of(1000) {
            watch.look();
        }
    }
    watch.phase(&fs, "creating");
    fs.sync().unwrap();
    for &dir in &dirs {
        let mut cookie = 0;
        loop {
            let mut found = Vec::new();
            fs.read_dir(dir, cookie, |entry| {
                found.push(entry.inode);
                cookie = entry.next_cookie;
                if found.len() < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
            if found.is_empty() {
                break;
            }
            assert!(found.iter().all(|&inode| fs.stat(inode).is_ok()));
            watch.look();
        }
    }
    watch.phase(&fs, "listing");
    for n in (0..files).step_by(3) {
        let inode = fs.lookup_number(dirs[n as usize / 10_000], &name(n)).unwrap();
        drop(fs.get_xattr(inode, b"user.a"));
        if n.is_multiple_of(999) {
            watch.look();
        }
    }
    watch.phase(&fs, "looking up");
    for n in 0..files {
        fs.unlink(dirs[n as usize / 10_000], &name(n), &me).unwrap();
        if n.is_multiple_of(1000) {
            watch.look();
        }
    }
    watch.phase(&fs, "removing");
    image.close(fs);
}

#[test]
fn values_that_wait_for_their_checkpoint_are_bounded() {
    let _alone = ALONE.lock();
    let image = Image::new(1500, &[]);
    let fs = image.open_with(MountOptions { cache_bytes: CACHE as usize, ..MountOptions::default() });
    let me = Caller::root();
    let mut watch = Watch { before: resident(), most: 0 };
    for n in 0..5000u32 {
        let file = fs.create(fs.root(), format!("{n}").as_bytes(), &NewFile::file(0o644), &me).unwrap();
        fs.set_xattr(file.inode, b"user.value", &vec![n as u8; 65_536], SetMode::Any, &me).unwrap();
        watch.look();
    }
    watch.phase(&fs, "large values");
    image.close(fs);
}

/// Blocks of directories are larger than those of attributes here. So until recovery has read the maps of all
/// directories, each attribute block may be a piece of a directory block. They are too many to keep them in memory so
/// long.
#[test]
fn more_possible_pieces_of_directory_blocks_are_recovered_than_fit_memory() {
    let _alone = ALONE.lock();
    let image = Image::new(4096, &[('b', "size=32768"), ('n', "size=65536"), ('l', "size=1000m")]);
    let fs = image.open_with(MountOptions { cache_bytes: 3 << 30, ..MountOptions::default() });
    let me = Caller::root();
    for n in 0..10_000u32 {
        let file = fs.create(fs.root(), format!("{n}").as_bytes(), &NewFile::file(0o644), &me).unwrap();
        fs.set_xattr(file.inode, b"user.value", &[n as u8; 300], SetMode::Any, &me).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    let fs = image.open();
    let written = fs.mount().recovery.as_ref().unwrap().blocks_written;
    assert!(written > 10_000, "{written} blocks were written");
    for n in 0..10_000u32 {
        let file = fs.lookup_number(fs.root(), format!("{n}").as_bytes()).unwrap();
        assert_eq!(fs.get_xattr(file, b"user.value").unwrap(), [n as u8; 300]);
    }
    image.close(fs);
}
