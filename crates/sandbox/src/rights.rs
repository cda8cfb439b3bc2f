//! Capabilities and groups, and what a process can regain or leave behind.
//!
//! Source of facts: capabilities(7), prctl(2), getrlimit(2).

use crate::{Calls, Needs, SandboxError};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups,
};
use std::io;

/// The niceness of 20 − 20: a thread that gave its claim to a processor away may take back the usual one.
const NICE_LIMIT: u64 = 20;

fn ok_or(what: &'static str) -> impl FnOnce(Errno) -> SandboxError {
    move |errno| SandboxError::Rights { what, source: io::Error::from(errno) }
}

/// Keeps no capabilities but these, and forbids to gain others.
pub(crate) fn give_up(needs: &Needs) -> Result<(), SandboxError> {
    let keep = needs.capabilities;
    limit();
    let what = "capabilities";
    let now = capabilities(None).map_err(ok_or(what))?;
    // Only who may set capabilities may take them out of the bounding set; without, no_new_privs does as much.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter().filter(|capability| !keep.contains(*capability)) {
            match remove_capability_from_bounding_set(capability) {
                // The kernel is older than the capability.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(ok_or(what)(errno)),
            }
        }
    }
    if now.effective.contains(CapabilitySet::SETGID) {
        match set_thread_groups(&[]) {
            // In a user namespace it may be forbidden to leave groups.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(ok_or("its groups")(errno)),
        }
    }
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(ok_or(what)(errno)),
    }
    set_no_new_privs(true).map_err(ok_or("the right to gain privileges"))?;
    let left = now.permitted & keep;
    let sets = CapabilitySets { effective: now.effective & keep, permitted: left, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(ok_or(what))?;
    if matches!(needs.calls, Calls::Outputs | Calls::Trees) {
        // A user's process that is not dumpable cannot use its own files in /proc, by which new files get their names.
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(ok_or("its core file"))
}

/// No core files. A limit that cannot be set stays: each lowers what no other step relies on.
fn limit() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let nice = getrlimit(Resource::Nice);
    if nice.current.is_some_and(|limit| limit < NICE_LIMIT) {
        let most = nice.maximum.map(|limit| limit.max(NICE_LIMIT));
        let _ = setrlimit(Resource::Nice, Rlimit { current: Some(NICE_LIMIT), maximum: most });
    }
}
