//! The set-user-ID and set-group-ID bits of a file that another user changes.
//!
//! The kernel leaves these bits to the server (`HANDLE_KILLPRIV_V2`), and in exchange does not ask before each write
//! whether the file has capabilities. A write request has a flag that says whether to clear the bits. fuser drops that
//! flag of other requests, so there the caller decides: root keeps the bits if it has `CAP_FSETID`, other users do not.
//! Capabilities of an ordinary user within a user namespace do not count.

use crate::caller::{may_keep_privileges, with_groups};
use fuser::Request;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Result, Volume};

const PRIVILEGES: u16 = 0o6000;

/// Clears the bits, unless the caller may keep them; returns whether there were any.
pub(crate) fn drop_for(fs: &Volume, inode: InodeNumber, request: &Request) -> Result<bool> {
    if fs.stat(inode)?.permissions.bits() & PRIVILEGES == 0 || may_keep_privileges(request) {
        return Ok(false);
    }
    fs.drop_privileges(inode, Some(&with_groups(request)))
}
