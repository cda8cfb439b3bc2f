//! Opens an image, makes a file with an attribute, and prints every path of it.
//! Usage: cargo run -p xfskit --example tour IMAGE

use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::{Caller, Filesystem, MountOptions, NewFile, SetMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).ok_or("which image?")?;
    let fs = Filesystem::open(Arc::new(FileDevice::open(image, Access::Write)?), MountOptions::default())?;
    let root = Caller::root();
    let etc = fs.create(fs.root(), b"etc", &NewFile::new(0o040_755), &root)?;
    let file = fs.create(etc.inode, b"motd", &NewFile::new(0o100_644), &root)?;
    fs.set_xattr(file.inode, b"security.selinux", b"system_u:object_r:etc_t:s0\0", SetMode::Any, &root)?;
    fs.link(file.inode, fs.root(), b"message")?;
    for path in fs.paths(file.inode)? {
        println!("{}", String::from_utf8_lossy(&path));
    }
    Ok(fs.unmount()?)
}
