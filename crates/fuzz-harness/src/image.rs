//! Populated images: every form of directory, attribute fork, symbolic link and extent map, and unlinked inodes.

use std::sync::Arc;
use xfskit_device::{BlockDevice, MemoryDevice};
use xfskit_engine::env::SeededEnvironment;
use xfskit_engine::{Caller, FileType, MountOptions, NewFile, Permissions, Result, SetMode, Volume};
use xfskit_mkfs::{AgLayout, Options, Size, make};
use xfskit_ondisk::{InodeNumber, Timestamp};

/// The UUID of all images.
pub(crate) const IMAGE_UUID: [u8; 16] = [9; 16];

/// A kind of image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// 4 KiB blocks and every default.
    Defaults,
    /// 1 KiB blocks, 4 KiB directory blocks.
    SmallBlocks,
    /// Without reverse mappings, parent pointers, large extent counts, sparse inodes, exchange-range and bigtime.
    Old,
    /// As `SmallBlocks`, but without inodes on the unlinked lists, so that it is quick to open for writing.
    Quick,
}

/// The options for a small image with this UUID.
pub(crate) fn small(uuid: [u8; 16]) -> Options {
    Options { allow_small: true, log_size: Some(Size::Bytes(8 << 20)), uuid: Some(uuid), ..Options::default() }
}

/// Makes an image in memory.
pub(crate) fn empty(bytes: usize, options: &Options) -> MemoryDevice {
    let device = MemoryDevice::new(bytes);
    make(&device, None, options, Timestamp::default()).expect("an image");
    device
}

/// Makes and populates an image in memory.
///
/// # Panics
/// If that fails, because a test needs the image.
pub fn image(recipe: Recipe) -> Vec<u8> {
    let mut options = Options { ag_layout: AgLayout::Count(2), ..small(IMAGE_UUID) };
    match recipe {
        Recipe::Defaults => {}
        Recipe::SmallBlocks | Recipe::Quick => {
            options.block_bytes = 1024;
            options.dir_block_bytes = Some(4096);
        }
        Recipe::Old => {
            (options.rmapbt, options.parent, options.large_extent_counts) = (false, false, false);
            (options.sparse_inodes, options.exchange_range, options.bigtime) = (false, false, false);
        }
    }
    let device = Arc::new(empty(40 << 20, &options));
    let orphan_count = if recipe == Recipe::Quick { 0 } else { 140 };
    populate(Arc::clone(&device) as _, orphan_count).expect("a populated image");
    device.to_bytes()
}

const FILE: NewFile<'static> = NewFile::file(0o644);
const DIR: NewFile<'static> = NewFile::dir(0o755);

/// Fills an empty image through the engine, with the same result every time. `orphan_count` inodes stay on the unlinked
/// lists.
///
/// # Errors
/// The engine's.
pub fn populate(device: Arc<dyn BlockDevice>, orphan_count: usize) -> Result<()> {
    let fs = Volume::open_in(device, None, MountOptions::default(), Arc::new(SeededEnvironment::new(5)))?;
    let me = Caller::root();
    let root = fs.root();
    let source = fs.create(root, b"source", &FILE, &me)?.inode;
    let mut dirs = Vec::new();
    for (name, count) in [("shortform", 4), ("block", 30), ("leaf", 220), ("node", 1100), ("node too", 1100)] {
        let dir = fs.create(root, name.as_bytes(), &DIR, &me)?.inode;
        dirs.push((dir, count));
    }
    // The directories get names in turns, so that their blocks are interleaved and their maps grow.
    for n in 0..1100 {
        for &(dir, count) in &dirs {
            if n < count {
                let name = format!("a rather long name of entry {n} in {count}");
                if n % 50 == 0 {
                    fs.create(dir, name.as_bytes(), if n % 100 == 0 { &DIR } else { &FILE }, &me)?;
                } else {
                    fs.link(dir, name.as_bytes(), source, &Caller::root())?;
                }
            }
        }
    }
    for &(dir, count) in &dirs {
        for n in (1..count).step_by(10) {
            fs.unlink(dir, format!("a rather long name of entry {n} in {count}").as_bytes(), &me)?;
        }
    }
    attributes(&fs, root, &me)?;
    fs.symlink(root, b"short link", b"shortform/somewhere", &me)?;
    fs.symlink(root, b"long link", &[b'x'; 1023], &me)?;
    let special = [
        ("fifo", FileType::Fifo, 0o600),
        ("socket", FileType::Socket, 0o700),
        ("null", FileType::CharDevice, 0o666),
        ("disk", FileType::BlockDevice, 0o660),
    ];
    for (name, file_type, permissions) in special {
        let device = if file_type.is_device() { 0x0103 } else { 0 };
        let new = NewFile { device, ..NewFile::new(file_type, Permissions::new(permissions)) };
        fs.create(root, name.as_bytes(), &new, &me)?;
    }
    let mut at = root;
    for n in 0..12 {
        at = fs.create(at, format!("level {n}").as_bytes(), &DIR, &me)?.inode;
    }
    orphans(&fs, root, &me, orphan_count)?;
    // This is not the filesystem's own unmount, which would free inodes that are open and unlinked.
    fs.mount().unmount()
}

fn attributes(fs: &Volume, root: InodeNumber, me: &Caller) -> Result<()> {
    for (name, count, length) in [("sf", 2, 10), ("leaf attrs", 20, 40), ("node attrs", 500, 40), ("remote", 12, 6000)]
    {
        let file = fs.create(root, name.as_bytes(), &FILE, me)?.inode;
        for n in 0..count {
            let key = format!("user.attribute {n}");
            fs.set_xattr(file, key.as_bytes(), &vec![n as u8; length + n % 20], SetMode::Any, me)?;
        }
        fs.set_xattr(file, b"security.selinux", b"system_u:object_r:etc_t:s0\0", SetMode::Any, me)?;
        fs.set_xattr(file, b"trusted.t", b"value", SetMode::Any, me)?;
    }
    Ok(())
}

/// Leaves inodes on the unlinked lists of an image that is otherwise unmounted cleanly, as a kernel does that had them
/// open when the filesystem went read-only.
fn orphans(fs: &Volume, root: InodeNumber, me: &Caller, count: usize) -> Result<()> {
    for n in 0..count {
        let name = format!("orphan {n}");
        let inode = fs.create(root, name.as_bytes(), &FILE, me)?.inode;
        fs.add_reference(inode)?;
        fs.unlink(root, name.as_bytes(), me)?;
    }
    Ok(())
}
