//! Who asks: the kernel names a user, a group and a process; further groups are looked up where they matter.

use fuser::Request;
use xfskit::Caller;

/// Who asks, without further groups: enough to own what is made.
pub(crate) fn owner(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), groups: Vec::new() }
}

/// Who asks, with all groups: needed where the set-group-id bit of a file may stay only for members of its group.
pub(crate) fn with_groups(request: &Request) -> Caller {
    let groups = if request.uid() == 0 { Vec::new() } else { groups_of(request.pid()) };
    Caller { groups, ..owner(request) }
}

/// The further groups of a process. None where it cannot be seen, which takes a right away and grants none.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}
