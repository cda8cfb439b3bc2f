//! Making, moving and linking names.

use super::{AsPath, Error, FileType, Filesystem, LastLink, OnPath, PathEntry, Permissions, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use xfskit_engine::{Caller, NewFile, RenameFlags};
use xfskit_engine::{Error as Cause, Result as EngineResult};

/// Permissions of new directories: those that the system leaves with the usual umask.
const NEW_DIR: Permissions = Permissions::new(0o755);

/// What a rename does where something has the new name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenameMode {
    /// It is replaced, in one step: a file by a file, an empty directory by a directory.
    #[default]
    Replace,
    /// The rename fails with `Exists`.
    NoReplace,
    /// The two change places, in one step, of whatever type they are. Both must be there.
    Exchange,
}

impl Filesystem {
    /// Makes an empty directory with permissions 0755.
    ///
    /// # Errors
    /// `Path`: `Exists`, `NotFound` or `NotADirectory` for the directory that it is to be in, `NoSpace`, `NameTooLong`.
    pub fn create_dir(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path_bytes();
        self.create_dir_at(path).on("create directory", path)
    }

    fn create_dir_at(&self, path: &[u8]) -> EngineResult<()> {
        if path.iter().all(|&byte| byte == b'/') && !path.is_empty() {
            return Err(Cause::Exists);
        }
        let entry = self.entry(path)?;
        let new = NewFile::new(FileType::Dir, NEW_DIR);
        self.volume().create(entry.dir.number(), entry.name, &new, &Caller::root()).map(drop)
    }

    /// Makes a directory and those above it that are missing. It is no error if it exists. After an error, some may
    /// have been made.
    ///
    /// # Errors
    /// As [`Self::create_dir`]; `Exists` where something else than a directory has one of the names.
    pub fn create_dir_all(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path_bytes();
        if path.is_empty() || self.is_dir(path).is_ok_and(|is_dir| is_dir) {
            return Ok(());
        }
        let last_end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let ends =
            (1..=last_end).filter(|&end| path[end - 1] != b'/' && path.get(end).is_none_or(|&next| next == b'/'));
        for end in ends {
            let prefix = &path[..end];
            let made = match self.create_dir_at(prefix) {
                Err(Cause::Exists) => match self.is_dir(prefix) {
                    Ok(true) => Ok(()),
                    Ok(false) if end < last_end => Err(Cause::NotADirectory),
                    // A link that leads nowhere has the name, too.
                    Ok(false) | Err(Cause::NotFound) => Err(Cause::Exists),
                    Err(_) if end == last_end => Err(Cause::Exists),
                    Err(error) => Err(error),
                },
                other => other,
            };
            made.on("create directory", prefix)?;
        }
        Ok(())
    }

    fn is_dir(&self, path: &[u8]) -> EngineResult<bool> {
        Ok(self.reference(path, LastLink::Follow)?.stat()?.file_type.is_dir())
    }

    /// Gives a file another name, in another directory or in the same. What had the new name is replaced, in one
    /// step: a file by a file, an empty directory by a directory. A symbolic link is moved itself.
    ///
    /// # Errors
    /// `Rename`, which names both paths: `NotFound`, `NotEmpty`, `IsADirectory`, `NotADirectory`; `Invalid` for a
    /// directory that would move below itself; `CrossesProjects`, `NotPermitted`, `NoSpace`.
    pub fn rename(&self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// As [`Self::rename`], and `mode` says what becomes of what has the new name.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// use xfskit::RenameMode;
    ///
    /// fs.write("/current", "1")?;
    /// fs.write("/next", "2")?;
    /// assert!(fs.rename_with("/next", "/current", RenameMode::NoReplace).is_err());
    /// fs.rename_with("/next", "/current", RenameMode::Exchange)?;
    /// assert_eq!(fs.read_to_string("/current")? + &fs.read_to_string("/next")?, "21");
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::rename`]; `Exists` with [`NoReplace`](RenameMode::NoReplace); `NotFound` with
    /// [`Exchange`](RenameMode::Exchange) also for the new name.
    pub fn rename_with(&self, from: impl AsPath, to: impl AsPath, mode: RenameMode) -> Result<()> {
        let (from, to) = (from.as_path_bytes(), to.as_path_bytes());
        let source = self.rename_at(from, to, mode);
        source.map_err(|source| Error::Rename { from: from.to_vec(), to: to.to_vec(), source })
    }

    fn rename_at(&self, from: &[u8], to: &[u8], mode: RenameMode) -> EngineResult<()> {
        let (old, new) = (self.own_name(from)?, self.own_name(to)?);
        let flags = RenameFlags {
            no_replace: mode == RenameMode::NoReplace,
            exchange: mode == RenameMode::Exchange,
            ..RenameFlags::default()
        };
        if old.is_dirs || new.is_dirs {
            let old_is_dir = self.names_dir(&old)?;
            if flags.no_replace && new.dir.lookup(new.name).is_ok() {
                return Err(Cause::Exists);
            }
            let new_is_dir = if flags.exchange { self.names_dir(&new)? } else { old_is_dir };
            if old.is_dirs && !old_is_dir || new.is_dirs && !new_is_dir {
                return Err(Cause::NotADirectory);
            }
        }
        self.volume().rename(old.dir.number(), old.name, new.dir.number(), new.name, flags, &Caller::root())
    }

    /// Whether a name is that of a directory, and not of a link to one.
    pub(super) fn names_dir(&self, entry: &PathEntry<'_, '_>) -> EngineResult<bool> {
        Ok(entry.dir.lookup(entry.name)?.1.file_type.is_dir())
    }

    /// Gives a file one more name. Of a symbolic link at the end of `original`, the link itself gets it.
    ///
    /// # Errors
    /// `Path`, of the new name: `Exists`, `NotFound`, `NotPermitted` for a directory, `TooManyLinks`, `NoSpace`; of
    /// `original`: `NotFound`.
    pub fn hard_link(&self, original: impl AsPath, link: impl AsPath) -> Result<()> {
        let (original, link) = (original.as_path_bytes(), link.as_path_bytes());
        let file = self.reference(original, LastLink::Keep).on("link", original)?;
        let entry = self.new_name(link).on("link", link)?;
        let linked = match self.volume().link(entry.dir.number(), entry.name, file.number(), &Caller::root()) {
            // As the system has it: that the name exists counts before what may be linked.
            Err(Cause::NotPermitted) if entry.dir.lookup(entry.name).is_ok() => Err(Cause::Exists),
            other => other.map(drop),
        };
        linked.on("link", link)
    }

    /// Makes a symbolic link `link` that points to `target`, which may be any bytes of at most 1023.
    ///
    /// # Errors
    /// `Path`, of `link`: `Exists`, `NotFound`, `NoSpace`; `TargetTooLong`.
    pub fn symlink(&self, target: impl AsPath, link: impl AsPath) -> Result<()> {
        let link = link.as_path_bytes();
        let made = self.new_name(link).and_then(|entry| {
            self.volume().symlink(entry.dir.number(), entry.name, target.as_path_bytes(), &Caller::root())
        });
        made.map(drop).on("create symbolic link", link)
    }

    /// Where something that is not a directory is to be made.
    pub(super) fn new_name<'a>(&self, path: &'a [u8]) -> EngineResult<PathEntry<'_, 'a>> {
        let entry = self.entry(path).map_err(|error| match error {
            Cause::Invalid("the root has no name") => Cause::Exists,
            other => other,
        })?;
        if !entry.is_dirs {
            return Ok(entry);
        }
        let is_there = self.volume().lookup_number(entry.dir.number(), entry.name);
        Err(if is_there.is_ok() { Cause::Exists } else { Cause::NotFound })
    }

    /// Where a symbolic link points to, as it is stored.
    ///
    /// # Errors
    /// `Path`: `NotFound`; `Invalid` for what is no symbolic link.
    pub fn read_link(&self, path: impl AsPath) -> Result<PathBuf> {
        let path = path.as_path_bytes();
        let target = self.reference(path, LastLink::Keep).and_then(|link| self.volume().read_link(link.number()));
        target.map(to_path).on("read link", path)
    }
}

/// Bytes as a path of the system's type.
pub(super) fn to_path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
