//! Which files may still be opened: Landlock.
//!
//! Landlock looks at what is opened, made, renamed, linked and removed; at files that are open already only for
//! truncation and the like if they were opened under its rules. Names can be looked up, and attributes of files be
//! read, everywhere.
//!
//! Source of facts: landlock(7), `Documentation/userspace-api/landlock.rst`, Linux 6.18.

use crate::{Confined, Needs, SandboxError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

/// The newest version whose rules are known here.
const KNOWN: ABI = ABI::V7;

/// What a file or folder is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Listing folders.
    List,
    /// Reading, and listing; questions to a device.
    Read,
    /// All of that, and starting as a program: for a process that becomes another program.
    Run,
    /// Reading and writing of what exists.
    Write,
    /// All of that, and to make, rename, link and remove regular files.
    Replace,
    /// All of that, for all kinds of files.
    Change,
}

impl FileUse {
    fn access(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::IoctlDev;
        match self {
            Self::List => AccessFs::ReadDir.into(),
            Self::Read => read,
            Self::Run => read | AccessFs::Execute,
            Self::Write => read | AccessFs::WriteFile | AccessFs::Truncate,
            Self::Replace => {
                let names = AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Refer;
                read | AccessFs::WriteFile | AccessFs::Truncate | names
            }
            Self::Change => AccessFs::from_all(KNOWN) & !BitFlags::from(AccessFs::Execute),
        }
    }
}

/// Whether it is a pipe, a socket or a file in memory: such have no place in a folder, and Landlock lets them be
/// opened.
fn is_anonymous(fd: &PathFd) -> bool {
    // Without /proc it is taken for a file with a name.
    let Ok(name) = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())) else { return false };
    let name = name.as_os_str().as_bytes();
    !name.starts_with(b"/") || name.starts_with(b"/memfd:")
}

/// Adds a rule for what a descriptor stands for. The rule holds by whatever name it is opened, and no name that is
/// exchanged meanwhile changes what it stands for.
fn allow(rules: RulesetCreated, fd: impl AsFd, used_for: FileUse) -> Result<RulesetCreated, SandboxError> {
    let mut access = used_for.access();
    let data = fd.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    if !data.is_ok_and(|data| data.is_dir()) {
        access &= AccessFs::from_file(KNOWN);
    }
    Ok(rules.add_rule(PathBeneath::new(fd, access))?)
}

/// Restricts the calling thread, and those that it starts, to the files and ports of `needs`.
pub(crate) fn restrict(needs: &Needs) -> Result<Confined, SandboxError> {
    let mut scope = Scope::from_all(KNOWN);
    if needs.abstract_sockets {
        scope.remove(Scope::AbstractUnixSocket);
    }
    // Before it knew links into other folders, Landlock allowed none.
    let may_link = needs.files.iter().any(|(_, used_for)| *used_for == FileUse::Change);
    let knows_links = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer);
    if may_link && knows_links.is_err() {
        return Ok(Confined::default());
    }
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(scope)?;
    let mut rules = rules.create()?;
    for (path, used_for) in &needs.files {
        // What is not there, or cannot be looked up, cannot be opened either.
        let Ok(fd) = PathFd::new(path) else { continue };
        if is_anonymous(&fd) {
            continue;
        }
        rules = allow(rules, fd, *used_for)?;
    }
    for (file, used_for) in &needs.open_files {
        rules = allow(rules, file, *used_for)?;
    }
    for &port in &needs.ports {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    let status = rules.restrict_self()?;
    let landlock = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            Some((effective_abi as i32).min(KNOWN as i32))
        }
        _ => None,
    };
    Ok(Confined { landlock, seccomp: false })
}
