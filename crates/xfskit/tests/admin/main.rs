//! What an image needs once it exists: free space goes back to the host. Judged by what the kernel makes of the same
//! images.

mod trim;

use std::path::Path;
use std::sync::Arc;
use xfskit::device::{Access, BlockDevice, FileDevice};
use xfskit::volume::{Caller, MountOptions, NewFile, SetMode, Volume};

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
