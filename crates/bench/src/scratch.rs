//! A folder for images and mount points, in memory where that is possible, and images in it.
//!
//! On a virtual machine the first access to memory is slow. So an image of moderate size gets all its memory when it is
//! made, and the image of the next case is made in the same file.

use crate::BenchError;
use crate::case::Case;
use crate::machine::mount_point;
use anyhow::{Context, Result};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::{Environment, SystemEnvironment};
use xfskit_mkfs::Options as MkfsOptions;

/// An image gets its memory at once if it needs at most one part in this many of what is free.
const TOUCH_AT_MOST: u64 = 4;

/// Both sides use the same files in turns, and thus the same memory.
pub(crate) const IMAGE: &str = "image";
const LOG: &str = "log";

/// The file of an image, and that of its journal if it is external.
#[derive(Clone, Debug)]
pub(crate) struct ImageFiles {
    pub(crate) image: PathBuf,
    pub(crate) log: Option<PathBuf>,
}

type Devices = (Arc<FileDevice>, Option<Arc<FileDevice>>);

impl ImageFiles {
    /// An image that has its journal.
    pub(crate) fn alone(image: impl Into<PathBuf>) -> Self {
        Self { image: image.into(), log: None }
    }

    /// Opens its devices.
    pub(crate) fn open(&self) -> Result<Devices> {
        let open = |path: &Path| Ok::<_, anyhow::Error>(Arc::new(FileDevice::open(path, Access::Write)?));
        Ok((open(&self.image)?, self.log.as_deref().map(open).transpose()?))
    }
}

/// The folder; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        Self::new_in(Path::new("/dev/shm")).or_else(|_| Self::new_in(&std::env::temp_dir()))
    }

    /// A folder below `place`.
    pub(crate) fn new_in(place: &Path) -> Result<Self> {
        let place = place.canonicalize().map_err(|_| BenchError::Missing(place.into()))?;
        let dir = tempfile::Builder::new().prefix(&format!("xfskit-bench-{}-", std::process::id())).tempdir_in(&place);
        Ok(Self { dir: dir.map_err(|source| BenchError::NotWritable { path: place, source })? })
    }

    /// What it lies in, for a report: the folder above, and the kind of filesystem there.
    pub(crate) fn place(&self) -> String {
        let above = self.dir.path().parent().unwrap_or(self.dir.path());
        let kind = mount_point(above).map_or_else(String::new, |mount| format!(" ({})", mount.kind));
        format!("{}{kind}", above.display())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the image of a case, in place of an older one.
    pub(crate) fn make_for(&self, case: &Case) -> Result<ImageFiles> {
        let image = self.file_of(IMAGE, case.image_bytes)?;
        let log = case.log_device_bytes.map(|bytes| self.file_of(LOG, bytes)).transpose()?;
        self.make(ImageFiles { image, log }, &case.mkfs)
    }

    /// Makes an image named `name`, in place of an older one.
    pub(crate) fn make_image(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        Ok(self.make(ImageFiles::alone(self.file_of(name, bytes)?), &[])?.image)
    }

    fn make(&self, made: ImageFiles, mkfs: &[(char, &str)]) -> Result<ImageFiles> {
        let mut asked = MkfsOptions::default();
        for (section, list) in mkfs {
            asked.apply(*section, list)?;
        }
        if let Some(log) = &made.log {
            asked.apply('l', &format!("logdev={}", log.display()))?;
        }
        let env = SystemEnvironment;
        asked.uuid = Some((u128::from(env.random()) << 64 | u128::from(env.random())).to_be_bytes());
        let (device, log_device) = made.open()?;
        let log_device = log_device.as_deref().map(|device| device as &dyn BlockDevice);
        xfskit_mkfs::make(&*device, log_device, &asked, env.now()).context("making a scratch image")?;
        Ok(made)
    }

    /// A file named `name` of so many bytes.
    pub(crate) fn file_of(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.file(name);
        if path.metadata().is_ok_and(|data| data.len() != bytes) {
            std::fs::remove_file(&path)?;
        }
        if !path.exists() {
            let file = File::create(&path).with_context(|| path.display().to_string())?;
            file.set_len(bytes).with_context(|| path.display().to_string())?;
            self.touch(&file, bytes);
        }
        Ok(path)
    }

    fn touch(&self, file: &File, bytes: u64) {
        let free = rustix::fs::statvfs(self.dir.path()).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
        if bytes <= free / TOUCH_AT_MOST {
            // If this fails, the image stays sparse.
            let _ = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes);
        }
    }

    /// Gives an image all its memory, however large it is.
    pub(crate) fn touch_all(&self, image: &Path) -> Result<()> {
        let file = std::fs::OpenOptions::new().write(true).open(image)?;
        let bytes = file.metadata()?.len();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).context("memory for a scratch image")?;
        Ok(())
    }
}
