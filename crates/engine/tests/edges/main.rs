//! Contents at the edges: full images, batches with the same name twice, blocks that were shared until just now, maps
//! that reach behind every file.

mod log;
mod maps;
mod names;
mod space;
#[path = "../stress/mod.rs"]
mod stress;
mod synced;
mod times;

use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_ondisk::InodeNumber;

const MEBIBYTE: usize = 1 << 20;

fn open(image: &Path) -> Volume {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    Volume::open(device, MountOptions::default()).unwrap()
}

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}
