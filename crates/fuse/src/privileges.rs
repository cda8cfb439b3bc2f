//! The set-user-ID and set-group-ID bits of a file that another user changes.
//!
//! The kernel leaves these bits to the server (`HANDLE_KILLPRIV_V2`), and in exchange does not ask before each write
//! whether the file has capabilities. A write or a truncation has a flag that says whether to clear the bits. Other
//! requests have none, so there the caller decides: root keeps the bits if it has `CAP_FSETID`, other users do not.
//! Capabilities of an ordinary user within a user namespace do not count there.

use crate::caller::{may_keep_privileges, with_groups};
use xfskit_fuse_session::Requester;
use xfskit_vfs::{Error, Handle, Result};

const PRIVILEGES: u16 = 0o6000;

/// Clears the bits, unless the caller may keep them; returns whether there were any.
pub(crate) fn drop_for(file: &impl Handle, requester: &Requester) -> Result<bool> {
    if file.stat()?.permissions.bits() & PRIVILEGES == 0 || may_keep_privileges(requester) {
        return Ok(false);
    }
    file.drop_privileges(Some(&with_groups(requester)))
}

/// Passes on the result of a change, after which the bits are cleared as by [`drop_for`], also where the change failed
/// and a part of it may have been made. A refusal, as on an append-only file, leaves them. With the result is whether
/// there were any.
pub(crate) fn drop_after<T>(file: &impl Handle, requester: &Requester, changed: Result<T>) -> Result<(T, bool)> {
    if changed.as_ref().is_err_and(is_refusal) {
        return changed.map(|value| (value, false));
    }
    let dropped = drop_for(file, requester);
    let value = changed?;
    Ok((value, dropped?))
}

/// Whether a change that failed with this error has changed nothing for sure.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::NotPermitted
            | Error::AccessDenied
            | Error::ReadOnly
            | Error::Invalid(_)
            | Error::NotSupported(_)
            | Error::IsADirectory
            | Error::Stale(_)
    )
}

/// Clears the bits, as the kernel has asked for; returns whether there were any.
pub(crate) fn drop_all(file: &impl Handle, requester: &Requester) -> Result<bool> {
    if file.stat()?.permissions.bits() & PRIVILEGES == 0 {
        return Ok(false);
    }
    file.drop_privileges(Some(&with_groups(requester)))
}
