//! Eight threads with names and contents at once, in a small image with a small log that is full most of the time: no
//! deadlock, no shutdown, no block shown that was not written, and all space accounted for.

mod stress;

use stress::{Image, Random, Watchdog, first_seed, scale};
use xfskit_engine::{Caller, Error, Fallocate, MountOptions, NewFile, RenameFlags, Result, SetAttr, Volume};
use xfskit_ondisk::InodeNumber;

const THREADS: u64 = 8;
const NAMES: usize = 120;
/// The contents of blocks that no file has written.
const POISON: u8 = 0xee;

/// Errors that are expected because other threads are faster and space is short.
fn expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::Stale(_)
            | Error::NoSpace
            | Error::NoMoreData
            | Error::TooLarge
            | Error::Invalid(_)
            | Error::IsADirectory
    )
}

/// A file by its name, referenced as an open file is; made if there is none.
fn open(fs: &Volume, dir: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
    let found = match fs.lookup_number(dir, name) {
        Err(Error::NotFound) => fs.create(dir, name, &NewFile::file(0o644), &Caller::root())?.inode,
        found => found?,
    };
    fs.add_reference(found)?;
    Ok(found)
}

fn on_contents(fs: &Volume, random: &mut Random, file: InodeNumber, other: InodeNumber) -> Result<()> {
    let most = [100, 5000, 300_000, 1 << 20][random.below(4)];
    let (offset, length) = (random.below(8 << 20) as u64, 1 + random.below(most) as u64);
    let block = |at: u64| at & !1023;
    let data = vec![1 + random.below(200) as u8; length as usize];
    match random.below(12) {
        0..=3 => fs.write_at(file, offset, &data),
        4 => fs.append(file, &data).map(drop),
        5 => fs.set_attr(file, &SetAttr { size: Some(offset), ..SetAttr::default() }, &Caller::root()).map(drop),
        6 => fs.clone_range(file, block(offset), other, block(random.below(4 << 20) as u64), block(length + 1023)),
        7 => fs.copy_range(file, offset, other, random.below(4 << 20) as u64, length).map(drop),
        8 | 9 => {
            let how = [Fallocate::Allocate, Fallocate::AllocateKeepSize, Fallocate::PunchHole, Fallocate::ZeroRange];
            fs.fallocate(file, offset, length, how[random.below(4)])
        }
        10 => fs.fsync(file),
        _ => {
            let mut buffer = data;
            let count = fs.read_at(file, offset, &mut buffer)?;
            assert!(!buffer[..count].contains(&POISON), "what was never written is read");
            Ok(())
        }
    }
}

fn operate(fs: &Volume, random: &mut Random, dirs: &[InodeNumber]) -> Result<()> {
    let me = Caller::root();
    let (dir, other_dir) = (dirs[random.below(dirs.len())], dirs[random.below(dirs.len())]);
    let name = format!("f{}", random.below(NAMES)).into_bytes();
    let other = format!("f{}", random.below(NAMES)).into_bytes();
    match random.below(20) {
        0 | 1 => fs.unlink(dir, &name, &me),
        2 => fs.rename(dir, &name, other_dir, &other, RenameFlags::default(), &me),
        3 => {
            fs.lookup_number(dir, &name).and_then(|inode| fs.link(other_dir, &other, inode, &Caller::root())).map(drop)
        }
        4 if random.one_in(10) => fs.sync(),
        _ => {
            let file = open(fs, dir, &name)?;
            let done = open(fs, other_dir, &other).and_then(|second| {
                let done = on_contents(fs, random, file, second);
                if random.one_in(8) {
                    // A file that is written and removed while it is open.
                    let _ = fs.unlink(dir, &name, &me);
                }
                done.and(fs.drop_references(second, 1))
            });
            done.and(fs.drop_references(file, 1))
        }
    }
}

fn check_contents(fs: &Volume, dir: InodeNumber) {
    let mut buffer = vec![0; 1 << 20];
    for entry in fs.list_dir(dir).unwrap() {
        let size = fs.stat(entry.inode).unwrap().size;
        for offset in (0..size).step_by(buffer.len()) {
            let count = fs.read_at(entry.inode, offset, &mut buffer).unwrap();
            assert!(!buffer[..count].contains(&POISON), "inode {} shows what was never written", entry.inode.0);
        }
    }
}

/// Fills what is free with [`POISON`], by a file that is removed again.
fn poison(fs: &Volume) {
    let file = fs.create(fs.root(), b"poison", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let chunk = vec![POISON; 1 << 20];
    for at in 0.. {
        match fs.write_at(file, at << 20, &chunk).and_then(|()| fs.fsync(file)) {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    fs.unlink(fs.root(), b"poison", &Caller::root()).unwrap();
    fs.sync().unwrap();
}

fn run(seed: u64, options: MountOptions) {
    let image = Image::new(64, &[('b', "size=1024"), ('d', "agcount=4")]);
    let fs = image.open_with(options);
    let me = Caller::root();
    poison(&fs);
    let dirs: Vec<_> = (0..3)
        .map(|n| fs.create(fs.root(), format!("d{n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode)
        .collect();
    let full: usize = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (fs, dirs) = (&fs, &dirs);
            move || {
                let mut random = Random::new(seed * 100 + thread);
                let mut full = 0;
                for _ in 0..2500 {
                    match operate(fs, &mut random, dirs) {
                        Ok(()) => {}
                        Err(error) if expected(&error) => full += usize::from(matches!(error, Error::NoSpace)),
                        Err(error) => panic!("seed {seed}, thread {thread}: {error}"),
                    }
                }
                full
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(full > 0, "the image was never full");
    fs.sync().unwrap();
    let before = fs.statfs();
    image.close(fs);
    let fs = image.open();
    assert_eq!(fs.statfs(), before, "seed {seed}");
    dirs.iter().for_each(|&dir| check_contents(&fs, dir));
    image.close(fs);
}

#[test]
fn threads_with_names_and_contents_fill_a_small_image() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let _watchdog = Watchdog::new("load", 120);
        run(seed, MountOptions::default());
    }
}

#[test]
fn threads_with_names_and_contents_in_a_small_cache() {
    for seed in first_seed()..first_seed() + scale() {
        let _watchdog = Watchdog::new("load in a small cache", 120);
        run(seed + 1000, MountOptions { cache_bytes: 1 << 20, ..MountOptions::default() });
    }
}
