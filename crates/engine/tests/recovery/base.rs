//! The image on which journals by hand are replayed, and places in it.

use crate::by_hand::{Item, Journal, buffer, logged_items};
use crate::kernel::Image;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, InodeNumber, set_checksum};
use xfskit_testkit::{Reference, Scratch, copy_image};

pub const SIZE_BYTES: u64 = 320 << 20;

pub const BLOCK_BYTES: usize = 4096;

pub const BLOCK_SECTORS: u16 = (BLOCK_BYTES / BASIC_BLOCK_BYTES) as u16;

/// Length of the targets of symbolic links: too long for an inode, so each has a block of its own.
pub const TARGET_BYTES: usize = 900;

/// Length of a cluster of 32 inodes, and the offset of the last of them.
pub const CLUSTER_SECTORS: u16 = 32;

pub const LAST_OF_CLUSTER: usize = 31 * inode::BYTES;

/// A place in the block of a symbolic link's target.
pub mod link {
    pub const CRC: usize = 12;
    pub const ADDRESS: usize = 40;
    pub const LSN: usize = 48;
    pub const TARGET: usize = 56;
}

/// A place in an inode.
pub mod inode {
    pub const NEXT_UNLINKED: usize = 96;
    pub const CRC: usize = 100;
    pub const LSN: usize = 112;
    pub const BYTES: usize = 512;
}

pub fn open(path: &Path) -> Volume {
    Image { data: path.into(), log: None }.open(MountOptions::default()).expect("a sound image")
}

/// An image by mkfs.xfs with files and symbolic links, and a clean log.
pub struct Base {
    pub path: PathBuf,
    pub files: Vec<InodeNumber>,
    /// The block of each link's target.
    pub targets: Vec<DiskAddress>,
}

impl Base {
    pub fn new(reference: &Reference, scratch: &Scratch, options: &[&str]) -> Self {
        let path = scratch.image("base.img", SIZE_BYTES);
        reference.mkfs(&path, options);
        let (fs, me) = (open(&path), Caller::root());
        let make = |name: String, new: &NewFile<'_>| fs.create(fs.root(), name.as_bytes(), new, &me).unwrap().inode;
        let files = (0..8).map(|n| make(format!("file {n}"), &NewFile::file(0o644))).collect();
        for n in 0..8 {
            make(format!("link {n}"), &NewFile::symlink(&[b'o'; TARGET_BYTES]));
        }
        fs.unmount().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let starts = (0..bytes.len()).step_by(BLOCK_BYTES);
        let address = |start: &usize| DiskAddress((start / BASIC_BLOCK_BYTES) as u64);
        let is_target = |start: &usize| {
            bytes[*start..].starts_with(b"XSLM")
                && bytes[start + link::ADDRESS..][..8] == address(start).0.to_be_bytes()
        };
        let targets: Vec<_> = starts.filter(is_target).map(|start| address(&start)).collect();
        assert_eq!(targets.len(), 8);
        Self { path, files, targets }
    }

    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut contents = vec![0; bytes];
        std::fs::File::open(&self.path).unwrap().read_exact_at(&mut contents, at).unwrap();
        contents
    }

    pub fn write(&self, at: u64, contents: &[u8]) {
        std::fs::File::options().write(true).open(&self.path).unwrap().write_all_at(contents, at).unwrap();
    }

    /// The block of a link's target, with a target of one letter.
    pub fn target(&self, index: usize, letter: u8) -> Vec<u8> {
        let mut block = self.read(self.targets[index].bytes(), BLOCK_BYTES);
        block[link::TARGET..][..TARGET_BYTES].fill(letter);
        block
    }

    /// An item that gives a link another target.
    pub fn target_item(&self, index: usize, letter: u8) -> Item {
        buffer(self.targets[index], BLOCK_SECTORS, buffer_type::SYMLINK, 0, &[(0, &self.target(index, letter)[..1024])])
    }

    /// Changes the block of a link's target on the device.
    pub fn set_target(&self, index: usize, letter: u8, lsn: u64) {
        let mut block = self.target(index, letter);
        block[link::LSN..][..8].copy_from_slice(&lsn.to_be_bytes());
        set_checksum(&mut block, link::CRC);
        self.write(self.targets[index].bytes(), &block);
    }

    /// The letters of the links' targets in an image.
    pub fn letters(&self, bytes: &[u8]) -> String {
        self.targets.iter().map(|target| char::from(bytes[target.bytes() as usize + link::TARGET])).collect()
    }

    /// The items of `work`, which is not done in this image.
    pub fn items_of(&self, scratch: &Scratch, work: impl FnOnce(&Volume)) -> Vec<Item> {
        let path = scratch.file("worked-on.img");
        copy_image(&self.path, &path);
        let fs = open(&path);
        work(&fs);
        fs.sync().unwrap();
        drop(fs);
        logged_items(&path).concat()
    }
}

/// The message with which recovery refuses a journal of one transaction.
pub fn refusal(base: &Base, scratch: &Scratch, items: &[Item]) -> String {
    let path = scratch.file("refused.img");
    copy_image(&base.path, &path);
    let mut journal = Journal::default();
    journal.transaction(7, items);
    journal.write(&path);
    let before = std::fs::read(&path).unwrap();
    let error = Image { data: path.clone(), log: None }.open(MountOptions::default()).err().expect("a refusal");
    assert!(matches!(error, Error::Corrupt(_) | Error::Superblock { .. } | Error::Unsupported(_)), "{error}");
    assert!(before == std::fs::read(&path).unwrap(), "a refused image was changed");
    error.to_string()
}

/// Whether an item is of a type.
pub fn is_of(item: &Item, kind: u16) -> bool {
    item[0][..2] == kind.to_le_bytes()
}
