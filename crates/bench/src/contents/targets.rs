//! What is measured: the library, a mount of ours, the kernel's mount with and without its cache.

use crate::File;
use anyhow::{Context, Result};
use rustix::fs::OFlags;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::ondisk::InodeNumber;
use xfskit::{Caller, Filesystem, MountOptions, NewFile};
use xfskit_fuse::{Options, Session, Unmounter};
use xfskit_testkit::Mount;

/// An image that is made anew for each target.
pub(crate) struct Place {
    image: PathBuf,
    bytes: u64,
}

impl Place {
    pub(crate) fn new(image: &Path, file_mib: u64) -> Result<Self> {
        Ok(Self { image: image.to_owned(), bytes: (file_mib << 20) * 5 / 4 + (1 << 30) })
    }

    fn make(&self) -> Result<()> {
        let reference =
            xfskit_testkit::reference().context("the reference tools are missing: run scripts/reference")?;
        let _ = fs::remove_file(&self.image);
        fs::File::create(&self.image)?.set_len(self.bytes)?;
        reference.tool_output("mkfs.xfs", ["-q", self.image.to_str().context("the path is not text")?]);
        Ok(())
    }

    fn open(&self) -> Result<Filesystem> {
        self.make()?;
        let device = Arc::new(FileDevice::open(&self.image, Access::Write)?);
        Ok(Filesystem::open(device, MountOptions::default())?)
    }
}

/// The library.
pub(crate) struct InProcess {
    filesystem: Filesystem,
    inode: InodeNumber,
}

impl InProcess {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        let filesystem = place.open()?;
        let new = NewFile::new(0o100_644);
        let inode = filesystem.create(filesystem.root(), b"file", &new, &Caller::root())?.inode;
        Ok(Self { filesystem, inode })
    }
}

impl File for InProcess {
    fn write(&self, offset: u64, data: &[u8]) {
        self.filesystem.write_at(self.inode, offset, data).expect("a write");
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        let count = self.filesystem.read_at(self.inode, offset, buffer).expect("a read");
        assert_eq!(count, buffer.len());
    }

    fn sync(&self) {
        self.filesystem.fsync(self.inode).expect("an fsync");
    }

    fn forget(&self) {}
}

/// A file of a mount.
pub(crate) struct Mounted(fs::File);

impl Mounted {
    fn open(dir: &Path, flags: OFlags) -> Result<Self> {
        let flags = flags.bits() as i32;
        let mut options = fs::OpenOptions::new();
        Ok(Self(options.read(true).write(true).create(true).custom_flags(flags).open(dir.join("file"))?))
    }
}

impl File for Mounted {
    fn write(&self, offset: u64, data: &[u8]) {
        self.0.write_all_at(data, offset).expect("a write");
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.0.read_exact_at(buffer, offset).expect("a read");
    }

    fn sync(&self) {
        self.0.sync_all().expect("an fsync");
    }

    fn forget(&self) {
        rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed).expect("the cache is dropped");
    }
}

/// The kernel's mount, with or without its cache.
pub(crate) struct Kernel {
    file: Option<Mounted>,
    _mount: Mount,
}

impl Kernel {
    /// `None` where images cannot be mounted.
    pub(crate) fn open(place: &Place, direct: bool) -> Result<Option<Self>> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        place.make()?;
        let Some(mount) = xfskit_testkit::kernel_mount(&place.image) else { return Ok(None) };
        Ok(Some(Self { file: Some(Mounted::open(mount.path(), flags)?), _mount: mount }))
    }

    /// The file.
    pub(crate) fn file(&self) -> &Mounted {
        self.file.as_ref().expect("it is open until the mount goes")
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.file = None;
    }
}

/// A mount of ours.
pub(crate) struct Ours {
    file: Option<Mounted>,
    unmounter: Unmounter,
    server: Option<std::thread::JoinHandle<()>>,
}

impl Ours {
    pub(crate) fn open(place: &Place, mount_point: &Path) -> Result<Self> {
        fs::create_dir_all(mount_point)?;
        let session = Session::mount(place.open()?, mount_point, &Options::default())?;
        let unmounter = session.unmounter();
        let server = Some(std::thread::spawn(|| session.run().expect("the mount ends in good order")));
        Ok(Self { file: Some(Mounted::open(mount_point, OFlags::empty())?), unmounter, server })
    }

    /// The file.
    pub(crate) fn file(&self) -> &Mounted {
        self.file.as_ref().expect("it is open until the mount goes")
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.file = None;
        self.unmounter.unmount().expect("the mount goes");
        if let Some(server) = self.server.take() {
            server.join().expect("the server ends");
        }
    }
}
