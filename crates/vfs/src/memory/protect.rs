//! Immutable and append-only files, sticky directories: what is refused to every caller, or to all but owners.

use super::node::Node;
use crate::{Caller, Error, FileType, Result, SetAttr, SetTime, xflags};

fn refuse_if(is_refused: bool) -> Result<()> {
    if is_refused { Err(Error::NotPermitted) } else { Ok(()) }
}

pub(super) fn has(node: &Node, flag: u32) -> bool {
    node.flags.xflags & flag != 0
}

/// Whether the file may change in any way.
pub(super) fn check_not_immutable(node: &Node) -> Result<()> {
    refuse_if(has(node, xflags::IMMUTABLE))
}

/// Whether what it has may be changed and taken away.
pub(super) fn check_unprotected(node: &Node) -> Result<()> {
    refuse_if(has(node, xflags::IMMUTABLE | xflags::APPEND))
}

/// Whether bytes may be written at `offset`.
pub(super) fn check_write(node: &Node, offset: u64) -> Result<()> {
    check_not_immutable(node)?;
    refuse_if(has(node, xflags::APPEND) && offset < node.contents()?.size())
}

/// Whether something may get a name in the directory; `file_type` is that of what is made there.
pub(super) fn check_new_entry(dir: &Node, file_type: Option<FileType>) -> Result<()> {
    check_not_immutable(dir)?;
    refuse_if(file_type == Some(FileType::Symlink) && has(dir, xflags::NOSYMLINKS))
}

/// Whether the caller may take an entry away from its directory.
pub(super) fn check_lost_entry(dir: &Node, child: &Node, caller: &Caller) -> Result<()> {
    check_unprotected(dir)?;
    let is_sticky = dir.stat.permissions.bits() & 0o1000 != 0;
    let is_owner = [dir.stat.uid, child.stat.uid].contains(&caller.uid);
    refuse_if(is_sticky && caller.uid != 0 && !is_owner)?;
    check_unprotected(child)
}

/// Whether attributes may be set. Who may append may set the times to now, as appending does.
pub(super) fn check_set_attr(node: &Node, change: &SetAttr) -> Result<()> {
    let sets_now = change.ctime.is_some_and(|now| change.mtime == Some(SetTime::To(now)));
    let follows_write = change.atime.is_none() && sets_now;
    let is_touch = change.atime == Some(SetTime::Now) && (change.mtime == Some(SetTime::Now) || sets_now);
    let sets_times = change.atime.is_some() || change.mtime.is_some();
    match (change.sets_more_than_times(), sets_times) {
        (false, false) => Ok(()),
        (false, true) if is_touch || follows_write => check_not_immutable(node),
        _ => check_unprotected(node),
    }
}

/// Whether the directory may take a file that exists: one whose project is handed down takes its own alone.
pub(super) fn check_project(dir: &Node, child: &Node) -> Result<()> {
    let is_special = !matches!(child.stat.file_type, FileType::File | FileType::Dir | FileType::Symlink);
    let fits = !has(dir, xflags::PROJINHERIT)
        || dir.flags.project == child.flags.project
        || is_special && child.flags.project == 0;
    if fits { Ok(()) } else { Err(Error::CrossesProjects) }
}
