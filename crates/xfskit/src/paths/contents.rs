//! Whole files at once.

use super::{AsPath, File, Filesystem, OnPath, Result};
use xfskit_engine::Caller;
use xfskit_engine::{Error as Cause, Result as EngineResult};

/// Bytes that are read at once.
const STEP_BYTES: usize = 4 << 20;

impl Filesystem {
    /// All bytes of a file.
    ///
    /// # Errors
    /// As [`Self::open_file`]; `TooLarge` for a file that memory has no room for.
    pub fn read(&self, path: impl AsPath) -> Result<Vec<u8>> {
        let path = path.as_path_bytes();
        let file = self.open_file(path)?;
        read_all(&file).on("read", path)
    }

    /// All of a file as text.
    ///
    /// # Errors
    /// As [`Self::read`]; `Invalid` if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsPath) -> Result<String> {
        let path = path.as_path_bytes();
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|_| Cause::Invalid("the contents are not UTF-8 text")).on("read", path)
    }

    /// Writes a file: one that exists is emptied first, one that is missing is made, with permissions 0644.
    ///
    /// It is durable after [`Self::sync`]. After a crash before that the file may have its old contents, none, or a
    /// part of the new ones; [`Self::write_atomic`] leaves no such state.
    ///
    /// # Errors
    /// As [`Self::open_with`]. After `NoSpace` or `Io` a part may have been written.
    pub fn write(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_path_bytes();
        let file = self.create_file(path)?;
        file.inode.volume().write_at(file.inode.number(), 0, contents.as_ref()).on("write", path)
    }

    /// Writes a new file and gives it the name `path` when it is complete, in place of what has the name.
    ///
    /// Every reader, and every recovery after a crash, finds the old file or all of the new one. It is durable after
    /// [`Self::sync`]. The file is a new one with permissions 0644: owner, attributes and further names of the old
    /// one are not its, and a symbolic link at `path` is replaced itself. A crash may leave a second name of the new
    /// file beside it, which begins with `.xfskit-`.
    ///
    /// # Errors
    /// `Path`: `NotFound` for the directory, `IsADirectory`, `NoSpace`, `ReadOnly`; what has the name is as it was
    /// then.
    pub fn write_atomic(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_path_bytes();
        self.write_new(path, contents.as_ref()).on("write", path)
    }

    fn write_new(&self, path: &[u8], contents: &[u8]) -> EngineResult<()> {
        let entry = self.own_name(path)?;
        if entry.is_dirs {
            return Err(Cause::IsADirectory);
        }
        let file = self.unnamed(&entry.dir, path)?;
        let volume = self.volume();
        volume.write_at(file.inode.number(), 0, contents)?;
        volume.link_over(entry.dir.number(), entry.name, file.inode.number(), &Caller::root())
    }
}

fn read_all(file: &File) -> EngineResult<Vec<u8>> {
    let mut contents = Vec::new();
    let size = usize::try_from(file.inode.stat()?.size).map_err(|_| Cause::TooLarge)?;
    contents.try_reserve_exact(size).map_err(|_| Cause::TooLarge)?;
    loop {
        // A file that grows meanwhile is read to its new end.
        let start = contents.len();
        let step = size.saturating_sub(start).clamp(1, STEP_BYTES);
        contents.try_reserve(step).map_err(|_| Cause::TooLarge)?;
        contents.resize(start + step, 0);
        let count = file.inode.volume().read_at(file.inode.number(), start as u64, &mut contents[start..])?;
        contents.truncate(start + count);
        if count < step {
            return Ok(contents);
        }
    }
}
