//! Copies of files.

use super::{AsPath, File, FileOptions, Filesystem, OnPath, Result};
use xfskit_engine::{Caller, Seek, SetAttr, SetMode, XattrChange};
use xfskit_engine::{Error as Cause, Result as EngineResult};

impl Filesystem {
    /// Copies a regular file: contents, permissions and extended attributes. Returns the size of it in bytes.
    ///
    /// The two share their blocks where the image can do that (`reflink`), so the copy takes no space until one is
    /// written; elsewhere bytes are copied. Holes stay holes. What `to` named before keeps its inode, its owner, and
    /// attributes of names that `from` has none of. As after [`Self::write`], a crash may leave a part of the copy.
    ///
    /// # Errors
    /// As [`Self::open_with`] for either; `Invalid` when both paths lead to one file; `NoSpace`, after which a part
    /// may have been copied.
    pub fn copy(&self, from: impl AsPath, to: impl AsPath) -> Result<u64> {
        let (from_path, to_path) = (from.as_path_bytes(), to.as_path_bytes());
        let from = self.open_file(from_path)?;
        let permissions = from.inode.stat().on("copy", from_path)?.permissions;
        let options = FileOptions::new().write(true).create(true).permissions(permissions);
        let to = self.open_with(to_path, &options)?;
        if from.inode.number() == to.inode.number() {
            return Err(Cause::Invalid("both paths lead to one file")).on("copy", from_path);
        }
        copy_contents(&from, &to).and_then(|bytes| copy_attributes(&from, &to).map(|()| bytes)).on("copy to", to_path)
    }
}

fn copy_contents(from: &File, to: &File) -> EngineResult<u64> {
    let volume = from.inode.volume();
    let size = from.inode.stat()?.size;
    volume.truncate(to.inode.number(), 0)?;
    let mut at = 0;
    while at < size {
        let start = match volume.seek(from.inode.number(), at, Seek::Data) {
            Err(Cause::NoMoreData) => break,
            start => start?,
        };
        let end = match volume.seek(from.inode.number(), start, Seek::Hole) {
            // Another thread has cut the file.
            Err(Cause::NoMoreData) => break,
            end => end?.min(size),
        };
        let length = end.saturating_sub(start);
        let count = volume.copy_range(from.inode.number(), start, to.inode.number(), start, length)?;
        // Fewer are copied where an error comes next, or where another thread has cut the file.
        at = if count > 0 { start + count } else { end };
    }
    volume.truncate(to.inode.number(), size)?;
    Ok(size)
}

fn copy_attributes(from: &File, to: &File) -> EngineResult<()> {
    let volume = from.inode.volume();
    for name in volume.list_xattrs(from.inode.number())? {
        // ACLs are shown twice; this is what they are called on disk.
        if name.starts_with(b"trusted.SGI_ACL_") {
            continue;
        }
        let value = match volume.get_xattr(from.inode.number(), &name) {
            Err(Cause::NoAttribute) => continue,
            value => value?,
        };
        volume.change_xattrs(
            to.inode.number(),
            &[XattrChange { name, value: Some(value) }],
            SetMode::Any,
            &Caller::root(),
        )?;
    }
    let permissions = Some(from.inode.stat()?.permissions);
    volume.set_attr(to.inode.number(), &SetAttr { permissions, ..SetAttr::default() }, &Caller::root()).map(drop)
}
