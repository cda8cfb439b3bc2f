//! What requests for extended attributes have in common.

use crate::caller::{owner, with_groups};
use crate::convert::caller;
use xfskit_fuse_session::Requester;
use xfskit_fuse_session::request::SetXattr;
use xfskit_vfs::{Caller, InodeNumber, Result, SetMode, Volume};

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// What the flags of setxattr(2) ask for; `None` for both at once.
pub(crate) fn set_mode(flags: u32) -> Option<SetMode> {
    match flags & (XATTR_CREATE | XATTR_REPLACE) {
        0 => Some(SetMode::Any),
        XATTR_CREATE => Some(SetMode::Create),
        XATTR_REPLACE => Some(SetMode::Replace),
        _ => None,
    }
}

/// The caller that sets an attribute. An ACL takes the set-group-ID bit of a file away from those who are not in its
/// group: kernels that say whether this is so know it better than the server, which sees no user namespaces.
pub(crate) fn setter(
    fs: &impl Volume,
    inode: InodeNumber,
    set: &SetXattr<'_>,
    requester: &Requester,
) -> Result<Caller> {
    Ok(match set.kills_group {
        _ if !set.name.starts_with(b"system.") => owner(requester),
        None => with_groups(requester),
        Some(true) => owner(requester),
        Some(false) => caller(requester, vec![fs.stat(inode)?.gid]),
    })
}

/// The names of a list, each with its zero byte, that callers without privileges see.
pub(crate) fn without_trusted(names: &[u8]) -> Vec<u8> {
    let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
    shown.collect::<Vec<_>>().concat()
}
