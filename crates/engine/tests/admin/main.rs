//! What an image needs once it exists: a larger size, another label or UUID, free space that goes back to the host.
//! Judged by what the kernel and xfsprogs make of the same images.

mod grow;
mod identity;
mod trim;

use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, SetMode, Volume};

/// Shapes of images, by the options of mkfs.xfs.
pub const SHAPES: &[&[&str]] = &[
    &[],
    &["-b", "size=1024", "-n", "size=4096"],
    &["-b", "size=16384"],
    &["-b", "size=65536", "-i", "size=2048"],
    &["-s", "size=4096"],
    &["-l", "su=64k"],
    &["-d", "su=64k,sw=4,agcount=3"],
    &["-m", "rmapbt=0,reflink=0", "-i", "sparse=0"],
    &["-m", "finobt=0,rmapbt=0,inobtcount=0,bigtime=0,reflink=0", "-i", "nrext64=0,exchange=0", "-n", "parent=0"],
];

/// An image file as a device, which keeps its lock.
pub fn device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(path, Access::Write).unwrap())
}

/// Opens an image to write.
pub fn open(path: &Path) -> Volume {
    Volume::open(device(path), MountOptions::default()).unwrap()
}

/// Makes files in all AGs, with contents and attributes.
pub fn fill(fs: &Volume, files: u32) {
    let me = Caller::root();
    for n in 0..files {
        let dir = fs.create(fs.root(), format!("dir {n}").as_bytes(), &NewFile::dir(0o755), &me).unwrap().inode;
        let file = fs.create(dir, b"file", &NewFile::file(0o644), &me).unwrap().inode;
        fs.write_at(file, 0, &vec![n as u8; 20_000 + 999 * n as usize]).unwrap();
        fs.set_xattr(file, b"user.number", &[n as u8; 600], SetMode::Any, &me).unwrap();
    }
}
