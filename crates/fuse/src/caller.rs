//! Who asks: the kernel names a user, a group and a process; further groups are looked up where they matter.

use fuser::Request;
use xfskit::volume::Caller;

const CAP_FSETID: u64 = 1 << 4;

/// Who asks, without further groups: enough to own what is made.
pub(crate) fn owner(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), groups: Vec::new() }
}

/// Who asks, with all groups: needed where the set-group-id bit of a file may stay only for members of its group.
pub(crate) fn with_groups(request: &Request) -> Caller {
    let groups = groups_of(request.pid());
    Caller { groups, ..owner(request) }
}

/// Whether root, who asks, may change a file and leave its set-id bits. A process that cannot be seen has what root
/// usually has.
pub(crate) fn may_keep_privileges(request: &Request) -> bool {
    let capabilities = || u64::from_str_radix(field_of(request.pid(), "CapEff:")?.trim(), 16).ok();
    request.uid() == 0 && capabilities().is_none_or(|capabilities| capabilities & CAP_FSETID != 0)
}

/// The further groups of a process. None where it cannot be seen, which takes a right away and grants none.
fn groups_of(pid: u32) -> Vec<u32> {
    let groups = field_of(pid, "Groups:").unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn field_of(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}
