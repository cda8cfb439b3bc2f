//! The set-user-id and set-group-id bits of a file that somebody else changes.
//!
//! The kernel leaves them to us (`HANDLE_KILLPRIV_V2`), and in exchange does not ask before each write whether the file
//! has capabilities. It says so with a write. Of other requests fuser drops that flag, so they go by the caller: root
//! keeps the bits if it has `CAP_FSETID`, nobody else does. What a process in a user namespace says of its capabilities
//! counts for nothing here.

use crate::caller::{may_keep_privileges, with_groups};
use fuser::Request;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Result, Volume};

const PRIVILEGES: u16 = 0o6000;

/// Takes the bits away, unless the caller may leave them; returns whether there were any.
pub(crate) fn drop_for(fs: &Volume, inode: InodeNumber, request: &Request) -> Result<bool> {
    if fs.stat(inode)?.mode & PRIVILEGES == 0 || may_keep_privileges(request) {
        return Ok(false);
    }
    fs.drop_privileges(inode, Some(&with_groups(request)))
}
