//! A whole tree by one call, for programs that have a filesystem open.

use crate::adjust::Adjust;
use crate::error::{Losses, Result, image};
use crate::host::{HostSink, HostSource};
use crate::image::{ImageSink, ImageSource};
use crate::pipe::{Sink, Source, transfer};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xfskit_vfs::{LastLink, Volume, split_path};

/// Copies a file or folder of the host, with everything in it, to the path `to` of a filesystem, whose directory must
/// exist: permissions, owners, times, extended attributes with ACLs, holes, further names of files, devices. Symbolic
/// links are copied, never followed. A directory that is there already gets what it lacks, and a file is replaced when
/// the new one is complete. Returns what could not be copied and is no error. Durable with the filesystem's next sync.
///
/// ```
/// use xfskit::MkfsOptions;
/// use xfskit_transfer::{copy_in, copy_out};
///
/// # let scratch = tempfile::tempdir()?;
/// # let dir = scratch.path();
/// # std::fs::create_dir_all(dir.join("site/pages"))?;
/// # std::fs::write(dir.join("site/pages/index"), "hello\n")?;
/// let fs = xfskit::create(dir.join("disk.img"), 512 << 20, &MkfsOptions::new())?;
/// copy_in(fs.volume(), dir.join("site"), "/srv")?;
/// assert_eq!(fs.read("/srv/pages/index")?, b"hello\n");
/// let losses = copy_out(fs.volume(), "/srv", dir.join("copy"))?;
/// assert!(!losses.are_real());
/// assert_eq!(std::fs::read(dir.join("copy/pages/index"))?, b"hello\n");
/// fs.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the host's files, of the filesystem, and of a file that changes while it is read. What was complete before
/// stays.
pub fn copy_in(volume: &dyn Volume, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Losses> {
    let to = to.as_ref().as_os_str().as_bytes();
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

/// Copies a file or directory of a filesystem, with everything in it, to the path `to` of the host, as [`copy_in`]
/// does. The copies are durable when this returns. Owners need the rights of root.
///
/// # Errors
/// As [`copy_in`].
pub fn copy_out(volume: &dyn Volume, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Losses> {
    let (from, to) = (from.as_ref().as_os_str().as_bytes(), to.as_ref());
    let start = volume.resolve(from, LastLink::Keep).map_err(image(from))?;
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = to.file_name().unwrap_or_default();
    let mut source = ImageSource::new(volume, start.inode, name.as_bytes(), true);
    let mut sink = HostSink::new(if name.is_empty() { to } else { dir })?;
    transfer(&mut source, &mut sink, &Adjust::default(), &())?;
    let losses = source.losses().and(sink.losses());
    sink.into_written().sync()?;
    Ok(losses)
}
