//! What requests for extended attributes have in common.

use fuser::{Errno, ReplyXattr};
use xfskit::volume::SetMode;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// What the flags of setxattr(2) ask for; `None` for both at once.
pub(crate) fn set_mode(flags: i32) -> Option<SetMode> {
    match flags & (XATTR_CREATE | XATTR_REPLACE) {
        0 => Some(SetMode::Any),
        XATTR_CREATE => Some(SetMode::Create),
        XATTR_REPLACE => Some(SetMode::Replace),
        _ => None,
    }
}

/// Replies with bytes, or with their number if the caller's buffer has no size.
pub(crate) fn answer_sized(reply: ReplyXattr, size: u32, answer: Result<Vec<u8>, Errno>) {
    match answer {
        Err(error) => reply.error(error),
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
    }
}

/// The names of a list, each with its zero byte, that callers without privileges see.
pub(crate) fn without_trusted(names: &[u8]) -> Vec<u8> {
    let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
    shown.collect::<Vec<_>>().concat()
}
