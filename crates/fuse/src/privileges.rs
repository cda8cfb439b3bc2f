//! The set-user-ID and set-group-ID bits of a file that another user changes.
//!
//! The kernel leaves these bits to the server (`HANDLE_KILLPRIV_V2`), and in exchange does not ask before each write
//! whether the file has capabilities. A write or a truncation has a flag that says whether to clear the bits. Other
//! requests have none, so there the caller decides: root keeps the bits if it has `CAP_FSETID`, other users do not.
//! Capabilities of an ordinary user within a user namespace do not count there.

use crate::caller::{may_keep_privileges, with_groups};
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Result, Volume};
use xfskit_fuse_session::Requester;

const PRIVILEGES: u16 = 0o6000;

/// Clears the bits, unless the caller may keep them; returns whether there were any.
pub(crate) fn drop_for(fs: &Volume, inode: InodeNumber, requester: &Requester) -> Result<bool> {
    if fs.stat(inode)?.permissions.bits() & PRIVILEGES == 0 || may_keep_privileges(requester) {
        return Ok(false);
    }
    fs.drop_privileges(inode, Some(&with_groups(requester)))
}

/// Clears the bits, as the kernel has asked for; returns whether there were any.
pub(crate) fn drop_all(fs: &Volume, inode: InodeNumber, requester: &Requester) -> Result<bool> {
    if fs.stat(inode)?.permissions.bits() & PRIVILEGES == 0 {
        return Ok(false);
    }
    fs.drop_privileges(inode, Some(&with_groups(requester)))
}
