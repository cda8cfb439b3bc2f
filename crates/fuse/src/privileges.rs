//! The set-user-id and set-group-id bits of a file that somebody else changes.
//!
//! The kernel leaves them to us (`HANDLE_KILLPRIV_V2`), and in exchange does not ask before each write whether the file has
//! capabilities. It says so with a write. Of other requests fuser drops that flag, so they go by the caller: root keeps
//! the bits, as those do who have `CAP_FSETID`.

use fuser::Request;
use xfskit::ondisk::InodeNumber;
use xfskit::{Filesystem, Result};

/// Takes the bits away, but root leaves them; returns whether there were any.
pub(crate) fn drop_unless_root(fs: &Filesystem, inode: InodeNumber, request: &Request) -> Result<bool> {
    if request.uid() == 0 { Ok(false) } else { fs.drop_privileges(inode) }
}
