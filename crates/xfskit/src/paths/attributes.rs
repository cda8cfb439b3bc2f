//! Metadata, extended attributes, and paths by parent pointers.

use super::names::to_path;
use super::{AsPath, Filesystem, LastLink, Metadata, OnPath, Permissions, Result, Times};
use std::path::PathBuf;
use xfskit_engine::{Caller, SetAttr, SetMode, Volume, XattrChange};
use xfskit_engine::{Error as Cause, Result as EngineResult};
use xfskit_ondisk::InodeNumber;

/// The value of an attribute, if the inode has it.
pub(super) fn get_xattr(volume: &Volume, inode: InodeNumber, name: &[u8]) -> EngineResult<Option<Vec<u8>>> {
    match volume.get_xattr(inode, name) {
        Err(Cause::NoAttribute) => Ok(None),
        other => other.map(Some),
    }
}

impl Filesystem {
    /// The metadata of a file; of a symbolic link, that of what it leads to.
    ///
    /// # Errors
    /// `Path`: `NotFound`, `NotADirectory`, `TooManySymlinks`.
    pub fn metadata(&self, path: impl AsPath) -> Result<Metadata> {
        let path = path.as_path_bytes();
        self.reference(path, LastLink::Follow).and_then(|inode| inode.stat()).map(Metadata::new).on("look at", path)
    }

    /// The metadata of a file; of a symbolic link, that of the link itself.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn symlink_metadata(&self, path: impl AsPath) -> Result<Metadata> {
        let path = path.as_path_bytes();
        self.reference(path, LastLink::Keep).and_then(|inode| inode.stat()).map(Metadata::new).on("look at", path)
    }

    /// Whether the path leads to a file; a symbolic link that leads nowhere does not.
    ///
    /// # Errors
    /// As [`Self::metadata`], but for `NotFound`.
    pub fn exists(&self, path: impl AsPath) -> Result<bool> {
        let path = path.as_path_bytes();
        match self.reference(path, LastLink::Follow) {
            Err(Cause::NotFound) => Ok(false),
            other => other.map(|_| true).on("look at", path),
        }
    }

    /// Sets permissions. An ACL of the file follows them.
    ///
    /// # Errors
    /// As [`Self::metadata`]; `NotPermitted` for what is immutable or append-only, `ReadOnly`, `NoSpace`.
    pub fn set_permissions(&self, path: impl AsPath, permissions: Permissions) -> Result<()> {
        let change = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.set(path.as_path_bytes(), LastLink::Follow, &change, "set permissions of")
    }

    /// Sets the owner and the group; `None` leaves one as it is. A file, but not a directory, loses its set-user-id
    /// and set-group-id bits.
    ///
    /// # Errors
    /// As [`Self::set_permissions`].
    pub fn set_owner(&self, path: impl AsPath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = SetAttr { uid, gid, ..SetAttr::default() };
        self.set(path.as_path_bytes(), LastLink::Follow, &change, "set owner of")
    }

    /// As [`Self::set_owner`], of a symbolic link itself where the path ends in one, as `lchown` does.
    ///
    /// # Errors
    /// As [`Self::set_permissions`].
    pub fn set_symlink_owner(&self, path: impl AsPath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = SetAttr { uid, gid, ..SetAttr::default() };
        self.set(path.as_path_bytes(), LastLink::Keep, &change, "set owner of")
    }

    /// Sets times.
    ///
    /// # Errors
    /// As [`Self::set_permissions`].
    pub fn set_times(&self, path: impl AsPath, times: Times) -> Result<()> {
        let [atime, mtime] = times.to_set();
        let change = SetAttr { atime, mtime, ..SetAttr::default() };
        self.set(path.as_path_bytes(), LastLink::Follow, &change, "set times of")
    }

    /// As [`Self::set_times`], of a symbolic link itself where the path ends in one, as `lutimes` does.
    ///
    /// # Errors
    /// As [`Self::set_permissions`].
    pub fn set_symlink_times(&self, path: impl AsPath, times: Times) -> Result<()> {
        let [atime, mtime] = times.to_set();
        let change = SetAttr { atime, mtime, ..SetAttr::default() };
        self.set(path.as_path_bytes(), LastLink::Keep, &change, "set times of")
    }

    fn set(&self, path: &[u8], last: LastLink, change: &SetAttr, verb: &'static str) -> Result<()> {
        let inode = self.reference(path, last).on(verb, path)?;
        self.volume().set_attr(inode.number(), change, &Caller::root()).map(drop).on(verb, path)
    }

    /// The value of an extended attribute, by its full name, as `user.color`; `None` if the file has no such attribute.
    ///
    /// # Errors
    /// As [`Self::metadata`]; `NotSupported` for a name with an unknown prefix.
    pub fn get_xattr(&self, path: impl AsPath, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let path = path.as_path_bytes();
        self.reference(path, LastLink::Follow)
            .and_then(|inode| get_xattr(self.volume(), inode.number(), name.as_ref()))
            .on("read attribute of", path)
    }

    /// As [`Self::get_xattr`], of a symbolic link itself where the path ends in one, as `lgetxattr` does.
    ///
    /// # Errors
    /// As [`Self::get_xattr`].
    pub fn get_symlink_xattr(&self, path: impl AsPath, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let path = path.as_path_bytes();
        self.reference(path, LastLink::Keep)
            .and_then(|inode| get_xattr(self.volume(), inode.number(), name.as_ref()))
            .on("read attribute of", path)
    }

    /// Makes or replaces an extended attribute of a file; of a symbolic link, of what it leads to
    /// ([`set_symlink_xattr`](Self::set_symlink_xattr) has the link itself). The full name begins with `user.`,
    /// `trusted.` or `security.`, or is one of the ACLs `system.posix_acl_access` and `system.posix_acl_default`, whose
    /// value is that of `setxattr(2)` (version 2), and which an empty value removes. The value has at most 65536 bytes.
    ///
    /// # Errors
    /// As [`Self::metadata`]; `NotSupported` for a name with an unknown prefix, `AttributeNameTooLong`,
    /// `ValueTooLong`, `NoSpace`, `ReadOnly`; `NotPermitted` for `user.` on what is neither a file nor a directory,
    /// and for what is immutable or append-only; of ACLs, `Invalid` for a value that is none, `NotSupported` for
    /// another version than 2, and `AccessDenied` for a default ACL of what is no directory.
    pub fn set_xattr(&self, path: impl AsPath, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_path_bytes();
        let inode = self.reference(path, LastLink::Follow).on("set attribute of", path)?;
        let (name, value) = (name.as_ref(), value.as_ref());
        self.volume().set_xattr(inode.number(), name, value, SetMode::Any, &Caller::root()).on("set attribute of", path)
    }

    /// As [`Self::set_xattr`], of a symbolic link itself where the path ends in one, as `lsetxattr` does: the label of
    /// a link, for example. Links have no `user.` attributes.
    ///
    /// # Errors
    /// As [`Self::set_xattr`].
    pub fn set_symlink_xattr(&self, path: impl AsPath, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_path_bytes();
        let inode = self.reference(path, LastLink::Keep).on("set attribute of", path)?;
        let (name, value) = (name.as_ref(), value.as_ref());
        self.volume().set_xattr(inode.number(), name, value, SetMode::Any, &Caller::root()).on("set attribute of", path)
    }

    /// Makes many changes to the extended attributes of a file in their order, all or none of them, also after a crash.
    ///
    /// # Errors
    /// As [`Self::set_xattr`] and [`Self::remove_xattr`]; `Invalid` for more than one transaction can hold.
    pub fn change_xattrs(&self, path: impl AsPath, changes: &[XattrChange]) -> Result<()> {
        let path = path.as_path_bytes();
        let inode = self.reference(path, LastLink::Follow).on("set attributes of", path)?;
        self.volume()
            .change_xattrs(inode.number(), changes, SetMode::Any, &Caller::root())
            .on("set attributes of", path)
    }

    /// Removes an extended attribute, by its full name.
    ///
    /// # Errors
    /// As [`Self::set_xattr`]; `NoAttribute` if the file has no such attribute.
    pub fn remove_xattr(&self, path: impl AsPath, name: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_path_bytes();
        let inode = self.reference(path, LastLink::Follow).on("remove attribute of", path)?;
        self.volume()
            .remove_xattr(inode.number(), name.as_ref(), SetMode::Any, &Caller::root())
            .on("remove attribute of", path)
    }

    /// As [`Self::remove_xattr`], of a symbolic link itself where the path ends in one, as `lremovexattr` does.
    ///
    /// # Errors
    /// As [`Self::remove_xattr`].
    pub fn remove_symlink_xattr(&self, path: impl AsPath, name: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_path_bytes();
        let inode = self.reference(path, LastLink::Keep).on("remove attribute of", path)?;
        self.volume()
            .remove_xattr(inode.number(), name.as_ref(), SetMode::Any, &Caller::root())
            .on("remove attribute of", path)
    }

    /// The full names of all extended attributes of a file, in no order; of a symbolic link, those of what it leads to
    /// ([`list_symlink_xattrs`](Self::list_symlink_xattrs) has the link's own). An ACL is there twice, by the name
    /// that it has on disk (`trusted.SGI_ACL_…`), too, as the kernel lists it.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn list_xattrs(&self, path: impl AsPath) -> Result<Vec<Vec<u8>>> {
        let path = path.as_path_bytes();
        let names = self.reference(path, LastLink::Follow).and_then(|inode| self.volume().list_xattrs(inode.number()));
        names.on("list attributes of", path)
    }

    /// As [`Self::list_xattrs`], of a symbolic link itself where the path ends in one, as `llistxattr` does.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn list_symlink_xattrs(&self, path: impl AsPath) -> Result<Vec<Vec<u8>>> {
        let path = path.as_path_bytes();
        let names = self.reference(path, LastLink::Keep).and_then(|inode| self.volume().list_xattrs(inode.number()));
        names.on("list attributes of", path)
    }

    /// The path of a file from the root, without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn canonicalize(&self, path: impl AsPath) -> Result<PathBuf> {
        let path = path.as_path_bytes();
        let (_, way) = self.volume().walk_path(path, LastLink::Follow).on("find the path of", path)?;
        Ok(to_path([b"/".as_slice(), &way.join(&b'/')].concat()))
    }

    /// Every path that leads to a file, sorted, by its parent pointers: no directory is searched. A symbolic link at
    /// the end is not followed.
    ///
    /// # Errors
    /// As [`Self::metadata`]; `NotSupported` for an image without parent pointers.
    pub fn paths_of(&self, path: impl AsPath) -> Result<Vec<PathBuf>> {
        let path = path.as_path_bytes();
        let paths = self.reference(path, LastLink::Keep).and_then(|inode| self.volume().paths(inode.number()));
        Ok(paths.on("find the names of", path)?.into_iter().map(to_path).collect())
    }
}
