//! The callers of requests: the kernel names a user, a group and a process; further groups are looked up if they
//! matter.

use crate::convert::caller;
use xfskit_fuse_session::Requester;
use xfskit_vfs::Caller;

const CAP_FSETID: u64 = 1 << 4;

/// The caller without further groups: enough for the owner of a new file.
pub(crate) fn owner(requester: &Requester) -> Caller {
    caller(requester, Vec::new())
}

/// The caller with all groups: needed where only members of a file's group may keep its set-group-ID bit.
pub(crate) fn with_groups(requester: &Requester) -> Caller {
    caller(requester, groups_of(requester.pid))
}

/// Whether the caller is root and may change a file without clearing its set-ID bits. A process that cannot be seen is
/// assumed to have the usual capabilities of root.
pub(crate) fn may_keep_privileges(requester: &Requester) -> bool {
    let capabilities = || u64::from_str_radix(field_of(requester.pid, "CapEff:")?.trim(), 16).ok();
    requester.uid == 0 && capabilities().is_none_or(|capabilities| capabilities & CAP_FSETID != 0)
}

/// The further groups of a process. Empty if it cannot be seen, which takes a right away and grants none.
fn groups_of(pid: u32) -> Vec<u32> {
    let groups = field_of(pid, "Groups:").unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn field_of(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}
