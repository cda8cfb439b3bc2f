//! The set-user-id and set-group-id bits of a file that somebody else changes.
//!
//! The kernel leaves them to us (`HANDLE_KILLPRIV_V2`), and in exchange does not ask before each write whether the file has
//! capabilities. It says so with a write. Of other requests fuser drops that flag, so they go by the caller: root keeps
//! the bits, as those do who have `CAP_FSETID`.

use fuser::Request;
use xfskit::ondisk::InodeNumber;
use xfskit::ondisk::inode::{MODE_REGULAR, MODE_TYPE};
use xfskit::{Caller, Filesystem, Result, SetAttr};

const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o010;

/// Takes the bits away; returns whether there were any.
pub(crate) fn drop(fs: &Filesystem, inode: InodeNumber) -> Result<bool> {
    let mode = fs.stat(inode)?.mode;
    // Without the right to execute, the group's bit means something else.
    let group = if mode & GROUP_EXECUTES != 0 { SET_GROUP } else { 0 };
    let left = mode & !(SET_USER | group);
    if left == mode || mode & MODE_TYPE != MODE_REGULAR {
        return Ok(false);
    }
    fs.set_attr(inode, &SetAttr { mode: Some(left), ..SetAttr::default() }, &Caller::root())?;
    Ok(true)
}

/// As [`drop`], but root leaves them.
pub(crate) fn drop_unless_root(fs: &Filesystem, inode: InodeNumber, request: &Request) -> Result<bool> {
    if request.uid() == 0 { Ok(false) } else { drop(fs, inode) }
}
