//! New files of the host that get their name when they are complete. Until then they have none (`O_TMPFILE`): a run
//! that is killed leaves no file, and no other user can foresee a name and put a file there. On a filesystem without
//! such files, they have a random name and are made with `O_EXCL`.

use crate::output::error::{Result, bail};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use xfskit_device::OpenError;

const NEW: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes the names in a folder durable, among them that of the open file.
///
/// # Errors
/// Those of the system.
pub fn sync_names(dir: &Path, file: &File) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    match File::open(dir) {
        Ok(dir) => match rustix::fs::fsync(&dir) {
            // Not every filesystem can sync folders.
            Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            synced => Ok(synced?),
        },
        // A user may be allowed to make files in a folder, but not to read it.
        Err(_) => Ok(rustix::fs::syncfs(file)?),
    }
}

/// A file that is not complete. It is removed when this is dropped.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    dir: PathBuf,
    /// Its name, on filesystems where it needs one.
    temporary: Option<PathBuf>,
}

impl NewFile {
    /// A new file on the filesystem of a folder, readable by its owner only.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new_in(dir: &Path) -> io::Result<Self> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::openat(CWD, dir, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
            Ok(fd) => Ok(Self { file: fd.into(), dir: dir.into(), temporary: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => loop {
                let temporary = random_name(dir);
                match rustix::fs::openat(CWD, &temporary, NEW, mode) {
                    Err(Errno::EXIST) => {}
                    made => return Ok(Self { file: made?.into(), dir: dir.into(), temporary: Some(temporary) }),
                }
            },
            Err(error) => Err(error.into()),
        }
    }

    /// A new file that is to get this path when it is complete.
    ///
    /// # Errors
    /// `NoFolder`, `Io`.
    pub fn new_beside(path: &Path) -> Result<Self, OpenError> {
        Self::new_in(path.parent().unwrap_or(path)).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => OpenError::NoFolder(path.into()),
            _ => OpenError::Io { path: path.into(), source },
        })
    }

    /// A file for input that is too large for memory, and the folder of that file: that of the image; or that for
    /// temporary files if no file can be made there, or if the image is a device.
    ///
    /// # Errors
    /// Those of the system, in both folders.
    pub fn to_keep_input(image: &Path) -> Result<(Self, PathBuf)> {
        let files = crate::operand::files(image);
        let image = files.first().map_or(image, PathBuf::as_path);
        let is_device = std::fs::metadata(image).is_ok_and(|data| !data.is_file()) || crate::operand::is_address(image);
        let beside = image.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dirs = [(!is_device).then(|| beside.to_owned()), Some(std::env::temp_dir())];
        let mut failed = Vec::new();
        for dir in dirs.into_iter().flatten() {
            match Self::new_in(&dir) {
                Ok(unnamed) => return Ok((unnamed, dir)),
                Err(error) => failed.push(format!("{}: {error}", dir.display())),
            }
        }
        bail!(
            "the input is kept in a file until it ends, and none can be made (TMPDIR names a folder): {}",
            failed.join(", ")
        )
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path by which this process can open the file again.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// As [`Self::put_in_place`], and makes the contents and the name durable: after a power cut, either the old file
    /// is there or the new one is complete.
    ///
    /// # Errors
    /// Those of [`Self::put_in_place`].
    pub fn put_in_place_durably(self, path: &Path, replaced: Option<&Metadata>) -> io::Result<()> {
        self.file.sync_all()?;
        let (file, dir) = (self.file.try_clone()?, self.dir.clone());
        self.put_in_place(path, replaced)?;
        sync_names(&dir, &file)
    }

    /// Gives the file its name, in place of the file `replaced`, or of none.
    ///
    /// # Errors
    /// Those of the system, and an error if the name belongs to another file than `replaced` by now.
    pub fn put_in_place(mut self, path: &Path, replaced: Option<&Metadata>) -> io::Result<()> {
        let Some(replaced) = replaced else {
            return match &self.temporary {
                None => Ok(link(&self.file, path)?),
                Some(temporary) => match std::fs::hard_link(temporary, path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                    // Some filesystems do not support hard links.
                    Err(_) => {
                        rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?;
                        self.temporary = None;
                        Ok(())
                    }
                    linked => linked,
                },
            };
        };
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => {
                let temporary = random_name(&self.dir);
                link(&self.file, &temporary)?;
                temporary
            }
        };
        // From here on, a drop removes the temporary name, until the rename has replaced it.
        self.temporary = Some(temporary.clone());
        let now = std::fs::symlink_metadata(path)?;
        if (now.dev(), now.ino()) != (replaced.dev(), replaced.ino()) {
            return Err(io::Error::other("another file has that name by now; it stays"));
        }
        rustix::fs::rename(&temporary, path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The error to report has occurred before.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn link(file: &File, path: &Path) -> Result<(), Errno> {
    // With the descriptor alone, only root may link a file without a name.
    let by_name = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::linkat(CWD, &by_name, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn random_name(dir: &Path) -> PathBuf {
    dir.join(format!(".xfskit-{}", uuid::Uuid::new_v4().simple()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_has_no_name_until_it_is_complete() {
        let dir = std::env::temp_dir().join(format!("xfskit-test-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&dir).unwrap();
        let count = || std::fs::read_dir(&dir).unwrap().count();
        drop(NewFile::new_in(&dir).unwrap());
        let unnamed = NewFile::new_in(&dir).unwrap();
        unnamed.file().write_all(b"first").unwrap();
        assert_eq!(count(), 0);
        unnamed.put_in_place(&dir.join("a"), None).unwrap();
        let unnamed = NewFile::new_in(&dir).unwrap();
        unnamed.file().write_all(b"second").unwrap();
        let first = std::fs::metadata(dir.join("a")).unwrap();
        unnamed.put_in_place(&dir.join("a"), Some(&first)).unwrap();
        let late = || NewFile::new_in(&dir).unwrap();
        assert!(late().put_in_place(&dir.join("a"), None).is_err());
        assert!(late().put_in_place(&dir.join("a"), Some(&std::fs::metadata(&dir).unwrap())).is_err());
        assert_eq!((std::fs::read_to_string(dir.join("a")).unwrap().as_str(), count()), ("second", 1));
        assert!(NewFile::new_in(&dir).unwrap().put_in_place(&dir.join("none/a"), None).is_err());
        assert_eq!(count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
