//! What the tests of names and attributes share: images in memory, and single transactions on them.

#![allow(dead_code)] // Every test uses its part.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use xfskit_device::{BlockDevice, Hints, MemoryDevice};
use xfskit_engine::MountOptions;
use xfskit_engine::attr::tree::{self, Completeness};
use xfskit_engine::attr::{self, Attr, EmptyFork, Fit, Form, remote, shortform};
use xfskit_engine::dir::{self, FileType};
use xfskit_engine::error::{Error, Result};
use xfskit_engine::inode::NewInode;
use xfskit_engine::mount::{BlockPool, Mount};
use xfskit_engine::trans::{InoId, InodeFields, Reservation, Transaction};
use xfskit_mkfs::{AgLayout, Options, Size, make};
use xfskit_ondisk::attr::leaf::LeafValue;
use xfskit_ondisk::inode::FileMode;
use xfskit_ondisk::{InodeNumber, Timestamp};

/// An image in memory.
pub fn image(block_bytes: u32, dir_block_bytes: u32, size_bytes: usize) -> MemoryDevice {
    let device = MemoryDevice::new(size_bytes);
    let options = Options {
        block_bytes,
        dir_block_bytes: Some(dir_block_bytes),
        parent: false,
        allow_small: true,
        ag_layout: AgLayout::Count(2),
        log_size: Some(Size::Bytes(15 << 20)),
        uuid: Some([9; 16]),
        ..Default::default()
    };
    make(&device, None, &options, Timestamp::default()).unwrap();
    device
}

/// Mounts a device for writing.
pub fn mount(device: Arc<dyn BlockDevice>) -> Result<Arc<Mount>> {
    Mount::open(device, None, MountOptions::default())
}

/// Runs one transaction.
pub fn change<T>(
    mount: &Arc<Mount>,
    inode: InodeNumber,
    work: impl FnOnce(&mut Transaction, InoId) -> Result<T>,
) -> Result<T> {
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 400, pool: BlockPool::Ordinary };
    let inode = mount.inode(inode)?;
    let mut tx = mount.transaction(reservation)?;
    let id = tx.join_inode(&inode);
    let result = work(&mut tx, id);
    tx.finish(result)
}

/// Looks at an inode.
pub fn look<T>(
    mount: &Arc<Mount>,
    inode: InodeNumber,
    work: impl FnOnce(&mut Transaction, InoId) -> Result<T>,
) -> Result<T> {
    let inode = mount.inode(inode)?;
    let mut tx = Transaction::read_only(mount);
    let id = tx.join_inode(&inode);
    work(&mut tx, id)
}

/// Makes a file or directory in the root directory.
pub fn make_inode(mount: &Arc<Mount>, name: &str, mode: u16, links: u32) -> Result<InodeNumber> {
    let root = mount.geometry.root_inode;
    change(mount, root, |tx, dir| {
        let number = xfskit_engine::space::inodes::allocate_inode(tx, root, mode)?.ok_or(Error::NoSpace)?;
        let file_mode = FileMode::new(mode).expect("a type of file");
        let new = NewInode { mode: file_mode, uid: 0, gid: 0, links, device: 0, attr_fork: false };
        let id = xfskit_engine::inode::create(tx, number, &new, Some(dir))?;
        if FileType::from_mode(mode) == FileType::Directory {
            dir::init(tx, id, root);
            tx.inode_mut(dir, InodeFields::CORE).core.links += 1;
        }
        dir::add(tx, dir, name.as_bytes(), number, FileType::from_mode(mode))?;
        Ok(number)
    })
}

/// Adds an attribute in as many transactions as its form needs.
pub fn add_attr(mount: &Arc<Mount>, inode: InodeNumber, new: &Attr<'_>) -> Result<()> {
    let done = change(mount, inode, |tx, ino| {
        if attr::form(tx, ino) != Form::Tree && shortform::add(tx, ino, new)? == Fit::Done {
            return Ok(true);
        }
        if attr::form(tx, ino) != Form::Tree {
            assert_eq!(tree::from_shortform(tx, ino)?, Fit::Done);
        }
        Ok(false)
    })?;
    if done {
        return Ok(());
    }
    change(mount, inode, |tx, ino| {
        let value = new.value.bytes().expect("the caller's bytes");
        if tree::is_local_value(tx.geometry(), new.name.len(), value.len()) {
            return tree::add(tx, ino, new, LeafValue::Local(value), Completeness::Complete);
        }
        let place = remote::write(tx, ino, value)?;
        tree::add(tx, ino, new, LeafValue::Remote { block: place.block, length: place.length }, Completeness::Complete)
    })
}

/// Removes an attribute.
pub fn remove_attr(mount: &Arc<Mount>, inode: InodeNumber, key: &Attr<'_>) -> Result<()> {
    change(mount, inode, |tx, ino| {
        if attr::form(tx, ino) != Form::Tree {
            return if shortform::remove(tx, ino, key, EmptyFork::Remove)? { Ok(()) } else { Err(Error::NoAttribute) };
        }
        if !tree::remove(tx, ino, key, Completeness::Complete)? {
            return Err(Error::NoAttribute);
        }
        tree::to_shortform(tx, ino, EmptyFork::Remove)?;
        Ok(())
    })
}

/// Names of the same hash: shifting a bit seven places from one byte to the next keeps it.
pub fn colliding(number: u32) -> Vec<u8> {
    (0..10).flat_map(|bit| if number >> bit & 1 == 1 { *b"bz" } else { [b'c', b'z' ^ 0x80] }).collect()
}

/// Numbers that a seed decides.
pub struct Random(pub u64);

impl Random {
    /// The next number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// A device that keeps what is written to it apart from its base.
pub struct Overlay {
    base: Arc<Vec<u8>>,
    pages: Mutex<HashMap<u64, Vec<u8>>>,
}

const PAGE: u64 = 512;

impl Overlay {
    /// A device to which nothing was written.
    pub fn new(base: &Arc<Vec<u8>>) -> Self {
        Self { base: Arc::clone(base), pages: Mutex::default() }
    }
}

impl BlockDevice for Overlay {
    fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    fn hints(&self) -> Hints {
        Hints::of(self)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = offset as usize;
        let from = self.base.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        let pages = self.pages.lock().unwrap();
        for (index, part) in buffer.chunks_mut(PAGE as usize).enumerate() {
            if let Some(page) = pages.get(&(offset / PAGE + index as u64)) {
                part.copy_from_slice(&page[..part.len()]);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(PAGE) && (data.len() as u64).is_multiple_of(PAGE), "whole sectors are written");
        let mut pages = self.pages.lock().unwrap();
        for (index, part) in data.chunks(PAGE as usize).enumerate() {
            pages.insert(offset / PAGE + index as u64, part.to_vec());
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
