//! Many threads on a small log: no deadlock, no shutdown, nothing wrong afterwards.

mod stress;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stress::{Image, Random, Watchdog, first_seed, scale};
use xfskit_engine::error_tags::BMAP_ALLOC_MINLEN_EXTENT;
use xfskit_engine::{Caller, Error, LastLink, MountOptions, NewFile, RenameFlags, SetMode, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

/// Errors that are expected because another thread was faster.
fn expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotEmpty
            | Error::IsADirectory
            | Error::NotADirectory
            | Error::NoAttribute
            | Error::Invalid("a directory cannot move below itself")
            | Error::NotPermitted
            | Error::Stale(_)
    )
}

fn check<T>(what: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if expected(&error) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// One random operation in one of `dirs`.
fn operate(fs: &Volume, random: &mut Random, dirs: &[InodeNumber], names: usize) {
    let me = Caller::root();
    let dir = dirs[random.below(dirs.len())];
    let other = dirs[random.below(dirs.len())];
    let name = format!("name-{}-{}", random.below(names), "x".repeat(random.below(3) * 20)).into_bytes();
    let new_name = format!("name-{}-{}", random.below(names), "x".repeat(random.below(3) * 20)).into_bytes();
    match random.below(16) {
        0..=3 => drop(check("create", fs.create(dir, &name, &NewFile::file(0o644), &me))),
        4 => drop(check("mkdir", fs.create(dir, &name, &NewFile::dir(0o755), &me))),
        5 => drop(check("symlink", fs.symlink(dir, &name, &vec![b't'; 1 + random.below(1000)], &me))),
        6 | 7 => drop(check("unlink", fs.unlink(dir, &name, &me))),
        8 => drop(check("rmdir", fs.rmdir(dir, &name, &me))),
        9 | 10 => {
            let flags = match random.below(4) {
                0 => RenameFlags { exchange: true, ..Default::default() },
                1 => RenameFlags { whiteout: true, ..Default::default() },
                _ => RenameFlags::default(),
            };
            check("rename", fs.rename(dir, &name, other, &new_name, flags, &me));
        }
        11 => {
            // Directories too, which must be refused without a deadlock.
            if let Some(inode) = check("look-up", fs.lookup_number(dir, &name)) {
                check("link", fs.link(other, &new_name, inode, &Caller::root()));
            }
        }
        12 => {
            if let Some(stat) = check("look-up", fs.lookup(dir, &name)) {
                let length = [4, 60, 400, 3000, 20_000, 65_536][random.below(6)];
                let attribute = format!("user.a{}", random.below(4));
                let value = vec![random.next() as u8; length];
                check("setxattr", fs.set_xattr(stat.inode, attribute.as_bytes(), &value, SetMode::Any, &me));
                for listed in check("listxattr", fs.list_xattrs(stat.inode)).unwrap_or_default() {
                    check("getxattr", fs.get_xattr(stat.inode, &listed));
                }
            }
        }
        13 => {
            if let Some(inode) = check("look-up", fs.lookup_number(dir, &name)) {
                let attribute = format!("user.a{}", random.below(4));
                check("removexattr", fs.remove_xattr(inode, attribute.as_bytes(), SetMode::Any, &me));
            }
        }
        14 => {
            // Open, unlink, close.
            if let Some(inode) = check("look-up", fs.lookup_number(dir, &name))
                && check("hold", fs.add_reference(inode)).is_some()
            {
                check("unlink", fs.unlink(dir, &name, &me));
                check("stat", fs.stat(inode));
                check("unhold", fs.drop_references(inode, 1));
            }
        }
        _ => {
            for entry in check("readdir", fs.list_dir(dir)).unwrap_or_default() {
                check("stat", fs.stat(entry.inode));
            }
        }
    }
}

/// Counts the inodes below a directory by walking, for a comparison with statfs after a remount.
fn count(fs: &Volume, dir: InodeNumber, seen: &mut std::collections::BTreeMap<u64, u32>) {
    for entry in fs.list_dir(dir).unwrap() {
        let stat = fs.stat(entry.inode).unwrap();
        *seen.entry(entry.inode.0).or_default() += 1;
        for name in fs.list_xattrs(entry.inode).unwrap() {
            fs.get_xattr(entry.inode, &name).unwrap();
        }
        if stat.file_type.is_dir() {
            assert_eq!(fs.lookup_number(entry.inode, b"..").unwrap(), dir);
            count(fs, entry.inode, seen);
        }
    }
}

fn run(image: &Image, options: MountOptions, threads: u64, operations: u64, seed: u64, deep: bool) {
    let watchdog = Watchdog::new("threads", 100);
    let fs = image.open_with(options);
    let me = Caller::root();
    let mut dirs = vec![fs.root()];
    for n in 0..4 {
        let parent = if deep { *dirs.last().unwrap() } else { fs.root() };
        dirs.push(fs.create(parent, format!("d{n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode);
    }
    // The directories stay in use, whatever the threads do to their names.
    dirs[1..].iter().for_each(|&dir| fs.add_reference(dir).unwrap());
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let (fs, dirs, done) = (&fs, &dirs, &done);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 1000 + n);
                    for _ in 0..operations / threads {
                        operate(fs, &mut random, dirs, 40);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let pusher = scope.spawn(|| {
            let mut random = Random::new(seed);
            while !stop.load(Ordering::Relaxed) {
                match random.below(3) {
                    0 => fs.sync().unwrap(),
                    1 => drop(fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap()),
                    _ => {}
                }
                std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        pusher.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    dirs[1..].iter().for_each(|&dir| fs.drop_references(dir, 1).unwrap());
    let before = fs.statfs();
    eprintln!("seed {seed}: {} operations, {:?}", done.into_inner(), before);
    image.close(fs);
    let fs = image.open();
    assert_eq!(fs.statfs(), before);
    let mut seen = std::collections::BTreeMap::new();
    count(&fs, fs.root(), &mut seen);
    for (inode, names) in seen {
        let stat = fs.stat(InodeNumber(inode)).unwrap();
        assert!(stat.file_type.is_dir() || stat.links == names, "inode {inode} has {names} names: {stat:?}");
    }
    image.close(fs);
    drop(watchdog);
}

#[test]
fn threads_share_directories_and_a_tiny_log() {
    for seed in first_seed()..first_seed() + 3 * scale() {
        let image = Image::new(64, &[('b', "size=1024"), ('d', "agcount=4")]);
        run(&image, MountOptions::default(), 2 + seed % 7, 20_000, seed, seed % 2 == 0);
    }
}

#[test]
fn threads_share_directories_of_large_blocks_and_a_small_cache() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(128, &[('d', "agcount=3")]);
        let options = MountOptions { cache_bytes: 1 << 20, ..MountOptions::default() };
        run(&image, options, 4, 20_000, seed + 100, true);
    }
}

#[test]
fn threads_with_synchronous_operations_and_logged_attributes() {
    for seed in first_seed()..first_seed() + scale() {
        let image = Image::new(64, &[('b', "size=1024"), ('d', "agcount=2")]);
        let attr_logging = xfskit_engine::AttrLogging::Always;
        let attr_path = [xfskit_engine::AttrPath::Fast, xfskit_engine::AttrPath::Intents][seed as usize % 2];
        let options = MountOptions { wsync: true, attr_logging, attr_path, ..MountOptions::default() };
        run(&image, options, 4, 5000, seed + 200, false);
    }
}

/// Values that get their blocks one by one make chains of some twenty links, with an intent each. Eight such threads
/// need more log than the smallest has, and chains that wait hold its tail. `XFSKIT_STRESS=50` for a thousand seeds.
#[test]
fn chains_of_many_links_share_the_smallest_log() {
    let watchdog = Watchdog::new("chains", 100 * scale());
    for seed in first_seed()..first_seed() + 20 * scale() {
        let image = Image::new(48, &[('b', "size=1024"), ('d', "agcount=2")]);
        let fs = grow_chains(&image, seed, 8, 12);
        if seed % 10 == 0 {
            image.close(fs);
        } else {
            fs.unmount().unwrap();
        }
    }
    drop(watchdog);
}

/// The same where a checkpoint gathers a quarter of the log: chains that wait for a link hold that much of it.
#[test]
fn chains_of_many_links_share_a_log_of_four_checkpoints() {
    let watchdog = Watchdog::new("chains in a larger log", 100 * scale());
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(300, &[('b', "size=1024"), ('d', "agcount=2"), ('l', "size=32m")]);
        image.close(grow_chains(&image, seed, 16, 40));
    }
    drop(watchdog);
}

/// Each thread sets values on a file of its own, over and over.
fn grow_chains(image: &Image, seed: u64, threads: u64, rounds: u32) -> Volume {
    let fs = image.open_with(MountOptions {
        attr_logging: xfskit_engine::AttrLogging::Always,
        attr_path: xfskit_engine::AttrPath::Intents,
        ..MountOptions::default()
    });
    fs.mount().error_tags.arm_for(BMAP_ALLOC_MINLEN_EXTENT, 1, u32::MAX);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let fs = &fs;
            scope.spawn(move || {
                let mut random = Random::new(seed * 100 + thread);
                let me = Caller::root();
                let name = format!("file-{thread}").into_bytes();
                let file = fs.create(fs.root(), &name, &NewFile::file(0o644), &me).unwrap().inode;
                for n in 0..rounds {
                    let attribute = format!("user.a{}", n % 3).into_bytes();
                    let value = vec![random.next() as u8; 40_000 + random.below(25_000)];
                    fs.set_xattr(file, &attribute, &value, SetMode::Any, &me).unwrap();
                    assert!(fs.get_xattr(file, &attribute).unwrap() == value);
                }
            });
        }
    });
    fs
}

/// A path leads to the file that it names, never to a file that got the number of one that was removed meanwhile.
#[test]
fn a_path_never_leads_to_a_file_that_has_another_name() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let [files, dirs] =
        [&b"files"[..], b"dirs"].map(|name| fs.create(fs.root(), name, &NewFile::dir(0o755), &me).unwrap().inode);
    let (is_done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // On a loaded machine the other thread may run late, so the work lasts until it has found the file often.
            let mut rounds = 0;
            while rounds < 20_000 || seen.load(Ordering::Relaxed) <= 100 && rounds < 2_000_000 {
                rounds += 1;
                fs.create(files, b"name", &NewFile::file(0o644), &me).unwrap();
                fs.unlink(files, b"name", &me).unwrap();
                fs.create(dirs, b"name", &NewFile::dir(0o755), &me).unwrap();
                fs.rmdir(dirs, b"name", &me).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            match fs.resolve(b"/files/name", LastLink::Follow) {
                Ok(stat) => {
                    assert_eq!(stat.mode() & 0o170_000, 0o100_000, "the path of a file led to a directory");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                Err(Error::NotFound) => {}
                Err(error) => panic!("a name that is made and removed: {error}"),
            }
        }
    });
    assert!(seen.into_inner() > 100);
    image.close(fs);
}
