//! A whole tree by one call, for programs that have an image open by paths.

use crate::adjust::Adjust;
use crate::error::{Losses, Result, image};
use crate::host::{HostSink, HostSource};
use crate::image::{ImageSink, ImageSource};
use crate::pipe::{Source, transfer};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xfskit::volume::{LastLink, split_path};
use xfskit::{AsPath, Filesystem};

/// Copies trees between the host and an image: permissions, owners, times, extended attributes with ACLs, holes,
/// further names of files, devices. Symbolic links are copied, never followed.
///
/// ```
/// use xfskit::MkfsOptions;
/// use xfskit_transfer::CopyTree;
///
/// # let scratch = tempfile::tempdir()?;
/// # let dir = scratch.path();
/// # std::fs::create_dir_all(dir.join("site/pages"))?;
/// # std::fs::write(dir.join("site/pages/index"), "hello\n")?;
/// let fs = xfskit::create(dir.join("disk.img"), 512 << 20, &MkfsOptions::new())?;
/// fs.copy_in(dir.join("site"), "/srv")?;
/// assert_eq!(fs.read("/srv/pages/index")?, b"hello\n");
/// let losses = fs.copy_out("/srv", dir.join("copy"))?;
/// assert!(!losses.are_real());
/// assert_eq!(std::fs::read(dir.join("copy/pages/index"))?, b"hello\n");
/// fs.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CopyTree {
    /// Copies a file or folder of the host, with everything in it, to the path `to` in the image, whose directory must
    /// exist. A directory that is there already gets what it lacks, and a file is replaced when the new one is
    /// complete. Returns what could not be copied and is no error. Durable with the image's next sync.
    ///
    /// # Errors
    /// Those of the host's files, of the image, and of a file that changes while it is read. What was complete before
    /// stays.
    fn copy_in(&self, from: impl AsRef<Path>, to: impl AsPath) -> Result<Losses>;

    /// Copies a file or directory of the image, with everything in it, to the path `to` of the host, as
    /// [`Self::copy_in`] does. The copies are durable when this returns. Owners need the rights of root.
    ///
    /// # Errors
    /// As [`Self::copy_in`].
    fn copy_out(&self, from: impl AsPath, to: impl AsRef<Path>) -> Result<Losses>;
}

impl CopyTree for Filesystem {
    fn copy_in(&self, from: impl AsRef<Path>, to: impl AsPath) -> Result<Losses> {
        let (volume, to) = (self.volume(), to.as_path_bytes());
        let (dir, name) = match to.iter().all(|&byte| byte == b'/') {
            true => (volume.root(), &b""[..]),
            false => {
                let (dir, name) = split_path(to).map_err(image(to))?;
                (volume.resolve(dir, LastLink::Follow).map_err(image(dir))?.inode, name)
            }
        };
        let mut source = HostSource::new(from.as_ref(), name, true)?;
        transfer(&mut source, &mut ImageSink::new(volume, dir)?, &Adjust::default(), &())?;
        Ok(source.losses())
    }

    fn copy_out(&self, from: impl AsPath, to: impl AsRef<Path>) -> Result<Losses> {
        use crate::pipe::Sink;
        let (from, to) = (from.as_path_bytes(), to.as_ref());
        let start = self.volume().resolve(from, LastLink::Keep).map_err(image(from))?;
        let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = to.file_name().unwrap_or_default();
        let mut source = ImageSource::new(self.volume(), start.inode, name.as_bytes(), true);
        let mut sink = HostSink::new(if name.is_empty() { to } else { dir })?;
        transfer(&mut source, &mut sink, &Adjust::default(), &())?;
        let losses = source.losses().and(sink.losses());
        sink.into_written().sync()?;
        Ok(losses)
    }
}
