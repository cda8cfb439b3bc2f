//! No space left: every failure is a clean `NoSpace`, nothing is lost, and the space of deleted files is free again.

mod crashed;
mod emptied;
mod host;
mod rights;
#[path = "../stress/mod.rs"]
mod stress;

use std::collections::BTreeMap;
use stress::{DIR, FILE, Image, Random, first_seed, scale};
use xfskit_engine::error_tags::ATTR_NO_SPACE;
use xfskit_engine::{
    AttrLogging, AttrPath, Caller, Error, FsStat, MountOptions, NewFile, RenameFlags, SetAttr, SetMode, Volume,
};
use xfskit_ondisk::InodeNumber;

/// Returns true when it worked, false when there was no space.
fn worked<T>(fs: &Volume, what: &str, result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NoSpace) => {
            fs.mount().journal.check().unwrap_or_else(|error| panic!("{what} without space: {error}"));
            false
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// The names that must still exist, with the length and the byte of an attribute.
type Kept = BTreeMap<Vec<u8>, (usize, u8)>;

struct Fill {
    fs: Volume,
    me: Caller,
    dir: InodeNumber,
    kept: Kept,
    next: u32,
}

impl Fill {
    fn new(fs: Volume) -> Self {
        let me = Caller::root();
        let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
        Self { fs, me, dir, kept: Kept::new(), next: 0 }
    }

    fn create(&mut self, mode: u16, length: usize) -> bool {
        self.next += 1;
        let name = format!("{:0length$}", self.next).into_bytes();
        if self.fs.usable() == 0 && self.next.is_multiple_of(2) {
            let flags = RenameFlags { whiteout: true, ..Default::default() };
            if let Some((old, kept)) = self.kept.pop_first() {
                // Near the end a rename may fail too, and must leave both names as they were.
                let result = self.fs.rename(self.dir, &old, self.dir, &name, flags, &self.me);
                if worked(&self.fs, "rename", result) {
                    self.kept.insert(name, kept);
                    self.kept.insert(old, (0, 0));
                    return true;
                }
                self.kept.insert(old, kept);
                return false;
            }
        }
        let target = vec![b't'; if mode & 0o170_000 == 0o120_000 { 600 } else { 0 }];
        let new = NewFile { target: &target, ..NewFile::of_mode(mode).unwrap() };
        let done = worked(&self.fs, "create", self.fs.create(self.dir, &name, &new, &self.me));
        if done {
            self.kept.insert(name, (0, 0));
        }
        done
    }

    fn set_xattr(&mut self, name: &[u8], length: usize, byte: u8) -> bool {
        let inode = self.fs.lookup_number(self.dir, name).unwrap();
        let result = self.fs.set_xattr(inode, b"trusted.a", &vec![byte; length], SetMode::Any, &self.me);
        let done = worked(&self.fs, "set_xattr", result);
        if done {
            self.kept.insert(name.to_vec(), (length, byte));
        }
        done
    }

    fn check(&self) {
        let listed = self.fs.list_dir(self.dir).unwrap();
        let names: Vec<_> = listed.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names.len(), self.kept.len());
        for (name, (length, byte)) in &self.kept {
            let inode = self.fs.lookup_number(self.dir, name).unwrap();
            match self.fs.get_xattr(inode, b"trusted.a") {
                Ok(value) => assert!(value.len() == *length && value.iter().all(|b| b == byte), "{inode}"),
                Err(Error::NoAttribute) => assert_eq!((*length, *byte), (0, 0)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Removes everything; that must always work.
    fn empty(&mut self) {
        let mut names: Vec<_> = std::mem::take(&mut self.kept).into_keys().collect();
        // In an order that is neither that of making nor its reverse.
        names.sort_by_key(|name| mixed(name));
        for name in names {
            let inode = self.fs.lookup(self.dir, &name).unwrap();
            if inode.file_type.is_dir() {
                self.fs.rmdir(self.dir, &name, &self.me).unwrap();
            } else {
                self.fs.unlink(self.dir, &name, &self.me).unwrap();
            }
        }
    }
}

fn mixed(name: &[u8]) -> u64 {
    name.iter().fold(7, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

trait Usable {
    fn usable(&self) -> u64;
}

impl Usable for Volume {
    fn usable(&self) -> u64 {
        self.statfs().free_blocks
    }
}

fn images() -> Vec<Image> {
    vec![
        Image::new(32, &[('b', "size=1024"), ('d', "agcount=2"), ('i', "maxpct=0")]),
        Image::new(
            24,
            &[
                ('b', "size=1024"),
                ('d', "agcount=1"),
                ('m', "rmapbt=0,reflink=0"),
                ('n', "parent=0"),
                ('i', "maxpct=0"),
            ],
        ),
        Image::new(64, &[('d', "agcount=4"), ('i', "maxpct=0")]),
    ]
}

/// Fills with `fill` until it has failed `failures` times, checks, empties, checks that all space is back, thrice.
fn fill_and_empty(image: &Image, failures: usize, mut fill: impl FnMut(&mut Fill, &mut Random) -> bool) {
    let options = MountOptions::default();
    let mut run = Fill::new(image.open_with(options));
    run.fs.sync().unwrap();
    let empty = run.fs.statfs();
    for round in 0..2 {
        let mut random = Random::new(first_seed() + round);
        let mut failed = 0;
        while failed < failures {
            failed += usize::from(!fill(&mut run, &mut random));
        }
        eprintln!("{} names, {:?}", run.kept.len(), run.fs.statfs());
        run.check();
        // Operations that need no space still work.
        let some = run.kept.keys().next().unwrap().clone();
        let inode = run.fs.lookup_number(run.dir, &some).unwrap();
        run.fs.set_attr(inode, &SetAttr { uid: Some(5), ..SetAttr::default() }, &run.me).unwrap();
        let Fill { fs, me, dir, kept, next } = run;
        image.close(fs);
        run = Fill { fs: image.open(), me, dir, kept, next };
        run.check();
        run.empty();
        run.fs.sync().unwrap();
        let FsStat { free_blocks, .. } = run.fs.statfs();
        // The directory keeps no blocks, and an AG's free list may keep a few.
        let lost = empty.free_blocks.saturating_sub(free_blocks);
        assert!(lost <= 40, "{lost} blocks did not come back: {empty:?}, {:?}", run.fs.statfs());
    }
    image.close(run.fs);
}

#[test]
fn creates_of_every_kind_until_nothing_is_free() {
    for image in images() {
        fill_and_empty(&image, 50, |run, random| {
            let kinds = [FILE, FILE, FILE, DIR, 0o120_000, 0o010_000];
            run.create(kinds[random.below(6)] | 0o644, [8, 30, 120, 250][random.below(4)])
        });
    }
}

#[test]
fn long_names_in_one_directory_until_nothing_is_free() {
    for image in images().into_iter().take(2) {
        let mut first = None;
        fill_and_empty(&image, 50, |run, _| {
            // Links cost nothing but names and parent pointers.
            if first.is_none_or(|(n, _)| n > run.next) || run.kept.is_empty() {
                assert!(run.create(FILE | 0o644, 100));
                let name = run.kept.keys().next().unwrap().clone();
                first = Some((run.next, run.fs.lookup_number(run.dir, &name).unwrap()));
            }
            run.next += 1;
            let name = format!("{:0250}", run.next).into_bytes();
            let result = run.fs.link(run.dir, &name, first.unwrap().1, &Caller::root());
            let done = worked(&run.fs, "link", result);
            if done {
                run.kept.insert(name, (0, 0));
            }
            done
        });
    }
}

#[test]
fn attributes_of_every_size_until_nothing_is_free() {
    for image in images() {
        fill_and_empty(&image, 200, |run, random| {
            if run.kept.is_empty() || random.one_in(8) {
                return run.create(FILE | 0o644, 20);
            }
            let names: Vec<_> = run.kept.keys().cloned().collect();
            let name = random.pick(&names).unwrap();
            let length = [10, 100, 500, 900, 3000, 10_000, 40_000, 65_536][random.below(8)];
            run.set_xattr(name, length, random.next() as u8 | 1)
        });
    }
}

/// A later link of a logged 64 KiB value finds no space: the filesystem must not shut down, and no intent may stay in
/// the log.
#[test]
fn a_value_whose_rest_finds_no_space_is_taken_back() {
    let image = Image::new(32, &[('b', "size=1024")]);
    let fs = image.open_with(MountOptions {
        attr_logging: AttrLogging::Always,
        attr_path: AttrPath::Intents,
        ..MountOptions::default()
    });
    let me = Caller::root();
    for value in [None, Some(4000)] {
        let name = format!("file-{value:?}").into_bytes();
        let file = fs.create(fs.root(), &name, &NewFile::file(0o600), &me).unwrap().inode;
        if let Some(length) = value {
            fs.set_xattr(file, b"user.a", &vec![1; length], SetMode::Any, &me).unwrap();
        }
        fs.sync().unwrap();
        let before = fs.usable();
        fs.mount().error_tags.arm_for(ATTR_NO_SPACE, 1, 2);
        assert!(!worked(&fs, "set", fs.set_xattr(file, b"user.big", &[3; 60_000], SetMode::Any, &me)));
        assert!(matches!(fs.get_xattr(file, b"user.big"), Err(Error::NoAttribute)));
        assert_eq!(fs.usable(), before, "what was allocated for it is free again");
        fs.set_xattr(file, b"user.big", &[3; 60_000], SetMode::Any, &me).unwrap();
        assert_eq!(fs.get_xattr(file, b"user.big").unwrap(), [3; 60_000]);
    }
    image.close(fs);
}

#[test]
fn many_threads_fill_an_image() {
    for seed in first_seed()..first_seed() + 2 * scale() {
        let image = Image::new(64, &[('b', "size=1024"), ('d', "agcount=4")]);
        let fs = image.open();
        let me = Caller::root();
        let before = fs.statfs();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for thread in 0..4u64 {
                    let (fs, me) = (&fs, &me);
                    scope.spawn(move || {
                        let mut random = Random::new(seed * 10 + thread);
                        let name = format!("dir-{thread}");
                        let Ok(dir) = fs.create(fs.root(), name.as_bytes(), &NewFile::dir(0o755), me) else {
                            return;
                        };
                        let (mut names, mut failures) = (Vec::new(), 0);
                        while failures < 300 {
                            let name = format!("{:0100}", random.next()).into_bytes();
                            let done = match random.below(6) {
                                0..=2 => {
                                    let result = fs.create(dir.inode, &name, &NewFile::file(0o600), me);
                                    let done = worked(fs, "create", result);
                                    if done {
                                        names.push(name);
                                    }
                                    done
                                }
                                3 | 4 => {
                                    let Some(name) = random.pick(&names) else { continue };
                                    let inode = fs.lookup_number(dir.inode, name).unwrap();
                                    let value = vec![1; [50, 500, 5000, 50_000][random.below(4)]];
                                    worked(fs, "set", fs.set_xattr(inode, b"user.a", &value, SetMode::Any, me))
                                }
                                _ => {
                                    if random.one_in(2) || names.is_empty() {
                                        continue;
                                    }
                                    let name = names.swap_remove(random.below(names.len()));
                                    let result = fs.unlink(dir.inode, &name, me);
                                    let done = worked(fs, "unlink", result);
                                    if !done {
                                        names.push(name);
                                    }
                                    done
                                }
                            };
                            failures += usize::from(!done);
                        }
                        for name in names {
                            while !worked(fs, "unlink", fs.unlink(dir.inode, &name, me)) {
                                std::thread::yield_now();
                            }
                        }
                        fs.rmdir(fs.root(), name.as_bytes(), me).unwrap();
                    });
                }
            });
            fs.sync().unwrap();
            let lost = before.free_blocks.saturating_sub(fs.statfs().free_blocks);
            assert!(lost <= 40, "{lost} blocks did not come back: {before:?}, {:?}", fs.statfs());
        }
        image.close(fs);
    }
}
