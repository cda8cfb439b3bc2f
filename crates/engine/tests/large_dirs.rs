//! Large directories that grow, shrink and change forms, with hardly any cache: what is remembered of their blocks must
//! stay right. The model is a map of names; the kernel and xfs_repair judge at the end.

mod stress;

use std::collections::BTreeMap;
use stress::{DIR, FILE, Image, Random, first_seed, scale};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::kernel_mount;

/// Makes a file or a directory.
fn make(fs: &Volume, dir: InodeNumber, name: &[u8], mode: u16) -> InodeNumber {
    fs.create(dir, name, &NewFile::of_mode(mode).unwrap(), &Caller::root()).unwrap().inode
}

fn unlink(fs: &Volume, dir: InodeNumber, name: &[u8]) {
    fs.unlink(dir, name, &Caller::root()).unwrap();
}

struct Folder {
    inode: InodeNumber,
    /// Names of random lengths, in order of their numbers.
    names: BTreeMap<Vec<u8>, InodeNumber>,
    next: u32,
}

impl Folder {
    fn add(&mut self, fs: &Volume, random: &mut Random) {
        let length = if random.one_in(4) { 100 + random.below(100) } else { 20 };
        let name = format!("{:0length$}", self.next).into_bytes();
        self.next += 1;
        let file = make(fs, self.inode, &name, FILE | 0o644);
        self.names.insert(name, file);
    }

    fn remove(&mut self, fs: &Volume, random: &mut Random) {
        let from = random.below(self.next as usize);
        let from = format!("{from:020}").into_bytes();
        let Some(name) = self.names.range(from..).next().map(|(name, _)| name.clone()) else { return };
        unlink(fs, self.inode, &name);
        self.names.remove(&name);
    }

    fn check(&self, fs: &Volume) {
        let listed: BTreeMap<Vec<u8>, InodeNumber> =
            fs.list_dir(self.inode).unwrap().into_iter().map(|entry| (entry.name.to_vec(), entry.inode)).collect();
        assert!(listed == self.names, "{} names listed, {} expected", listed.len(), self.names.len());
        for (name, inode) in self.names.iter().step_by(7) {
            assert_eq!(fs.lookup_number(self.inode, name).unwrap(), *inode);
        }
        assert!(matches!(fs.lookup_number(self.inode, b"no such name"), Err(Error::NotFound)));
    }
}

/// Grows and shrinks two directories in turn, so that blocks of one become blocks of the other.
fn churn(arguments: &[(char, &str)], seed: u64, most: u32) {
    eprintln!("seed {seed}");
    let image = Image::new(300, arguments);
    let fs = image.open_with(MountOptions { cache_bytes: 1 << 20, ..MountOptions::default() });
    let mut random = Random::new(seed);
    let mut folders: Vec<_> = (0..2)
        .map(|n| {
            let inode = make(&fs, fs.root(), format!("folder {n}").as_bytes(), DIR | 0o755);
            Folder { inode, names: BTreeMap::new(), next: 0 }
        })
        .collect();
    for round in 0..6 {
        for (n, folder) in folders.iter_mut().enumerate() {
            let grows = round % 2 == n % 2;
            for step in 0..most {
                match random.below(10) {
                    0..8 if grows => folder.add(&fs, &mut random),
                    0..2 => folder.add(&fs, &mut random),
                    _ => folder.remove(&fs, &mut random),
                }
                if step % 1000 == 999 {
                    folder.check(&fs);
                }
            }
            // Down to nothing now and then, through all forms.
            if !grows && round > 2 {
                while !folder.names.is_empty() {
                    folder.remove(&fs, &mut random);
                    let last = folder.names.keys().next_back().cloned();
                    if let Some(name) = last.filter(|_| random.one_in(3)) {
                        unlink(&fs, folder.inode, &name);
                        folder.names.remove(&name);
                    }
                }
            }
            folder.check(&fs);
        }
    }
    image.close(fs);
    if let Some(kernel) = kernel_mount(&image.path) {
        for (n, folder) in folders.iter().enumerate() {
            let seen = std::fs::read_dir(kernel.path().join(format!("folder {n}"))).unwrap().count();
            assert_eq!(seen, folder.names.len());
        }
    }
}

#[test]
fn what_is_remembered_of_blocks_follows_them() {
    for seed in first_seed()..first_seed() + scale() {
        churn(&[('d', "agcount=2")], seed, 20_000);
    }
}

#[test]
fn blocks_of_several_pieces_are_remembered_whole() {
    for seed in first_seed()..first_seed() + scale() {
        churn(&[('b', "size=1024"), ('d', "agcount=2")], seed, 6000);
    }
}

/// Names go where removed ones left room, also after the directory was searched for room in vain.
#[test]
fn room_that_becomes_free_is_used_again() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let name = |n: u32| format!("{n:040}").into_bytes();
    let folder = make(&fs, fs.root(), b"folder", DIR | 0o755);
    let add = |n: u32| _ = make(&fs, folder, &name(n), FILE | 0o644);
    (0..10_000).for_each(add);
    let size = fs.stat(folder).unwrap().size;
    for round in 0..3 {
        let at = round * 100_000;
        let gone: Vec<u32> = (0..10_000).filter(|n| n % 3 == round).collect();
        gone.iter().for_each(|n| unlink(&fs, folder, &name(*n)));
        gone.iter().for_each(|n| add(n + at + 100_000));
        assert_eq!(fs.stat(folder).unwrap().size, size, "in round {round}");
    }
    image.close(fs);
}

/// Blocks of the free index are freed and made anew: what was remembered of the old ones must not be used.
#[test]
fn blocks_of_the_free_index_are_added_and_removed() {
    let image = Image::new(300, &[]);
    let fs = image.open();
    let name = |n: u32| format!("{n:0255}").into_bytes();
    let folder = make(&fs, fs.root(), b"folder", DIR | 0o755);
    let add = |n: u32| _ = make(&fs, folder, &name(n), FILE | 0o644);
    // 14 names in a data block, 2016 data blocks in a block of the free index: the second is made with name 28,224.
    (0..28_000).for_each(add);
    for _ in 0..3 {
        (28_000..28_600).for_each(add);
        (28_000..28_600).for_each(|n| unlink(&fs, folder, &name(n)));
    }
    assert_eq!(fs.list_dir(folder).unwrap().len(), 28_000);
    image.close(fs);
}
