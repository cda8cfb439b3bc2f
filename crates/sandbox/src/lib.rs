//! Gives up the rights that a program that parses hostile data does not need.
//!
//! ```text
//! confine_thread   capabilities, no_new_privs, no core file or tracer, limits, Landlock      `rights`, `files`
//! filter_calls     seccomp, for all threads                                                  `calls`
//! ```
//! The first belongs to the calling thread and to those that it starts, so it comes before other threads are started;
//! the second comes last, for it forbids what the first does. Nothing that was given up can be had back.
//!
//! What the kernel does not know is left out, and [`Confined`] says what is in force. The design, with what is assumed
//! and what is not promised, is docs/design/sandbox.md. The crate knows nothing of XFS.
//!
//! ```no_run
//! use xfskit_sandbox::{Calls, FileUse, Needs};
//!
//! let mut needs = Needs::new(Calls::Files);
//! needs.files.push(("disk.img".into(), FileUse::Read));
//! let confined = xfskit_sandbox::confine_thread(&needs)?;
//! let confined = confined.and(xfskit_sandbox::filter_calls(&needs)?);
//! eprintln!("{confined}");
//! # Ok::<(), xfskit_sandbox::SandboxError>(())
//! ```
#![forbid(unsafe_code)]

mod calls;
mod files;
mod rights;

pub use calls::{Calls, FORBIDDEN, IoUring, More, filter_calls};
pub use files::FileUse;
pub use rustix::thread::CapabilitySet;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Why a right could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Capabilities, limits and the like.
    #[error("the system does not let the program give up {what}: {source}")]
    Rights {
        /// What was to be given up.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Landlock.
    #[error("Landlock refuses the rules of files: {0}")]
    Files(#[from] landlock::RulesetError),
    /// seccomp.
    #[error("seccomp refuses the list of system calls: {0}")]
    Calls(String),
}

/// What a process still has to do.
#[derive(Debug)]
pub struct Needs {
    /// Files and folders that may be opened from now on, and for what; a folder stands for all below it. What does not
    /// exist is left out. A name means what it leads to when rights are given up.
    pub files: Vec<(PathBuf, FileUse)>,
    /// Files that are open and may be opened again, by whatever name they have then.
    pub open_files: Vec<(File, FileUse)>,
    /// TCP ports to which it connects.
    pub ports: Vec<u16>,
    /// Whether it connects to sockets in the abstract name space.
    pub abstract_sockets: bool,
    /// Its system calls.
    pub calls: Calls,
    /// System calls besides.
    pub more: Vec<More>,
    /// Capabilities that it keeps, if it has them.
    pub capabilities: CapabilitySet,
    /// Threads of this process, by their numbers, of which others say where and how they run, with [`Calls::Serve`].
    /// Each thread may say it of itself.
    pub threads: Vec<u32>,
    /// The most permissions that it gives to a file, with [`Calls::Outputs`]: any file that it can open may get them.
    pub permissions: u32,
}

impl Needs {
    /// No files, no network, no capabilities.
    pub fn new(calls: Calls) -> Self {
        Self {
            files: Vec::new(),
            open_files: Vec::new(),
            ports: Vec::new(),
            abstract_sockets: false,
            calls,
            more: Vec::new(),
            capabilities: CapabilitySet::empty(),
            threads: Vec::new(),
            permissions: 0o600,
        }
    }
}

/// What of a sandbox is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// The version of Landlock whose rules hold; `None` where the kernel has none.
    pub landlock: Option<i32>,
    /// Whether system calls are filtered.
    pub seccomp: bool,
}

impl Confined {
    /// What either of two steps has brought into force.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { landlock: self.landlock.or(other.landlock), seccomp: self.seccomp || other.seccomp }
    }
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.landlock, self.seccomp) {
            (None, false) => write!(f, "none"),
            (None, true) => write!(f, "seccomp, no landlock"),
            (Some(version), true) => write!(f, "landlock {version}, seccomp"),
            (Some(version), false) => write!(f, "landlock {version}, no seccomp"),
        }
    }
}

/// Gives up capabilities, the right to gain others, and files that are not needed, for the calling thread and those
/// that it starts from now on; for the process, core files and, but for [`Calls::Outputs`] and [`Calls::Trees`],
/// tracers of the same user.
///
/// # Errors
/// [`SandboxError`]; then some rights may be given up already.
pub fn confine_thread(needs: &Needs) -> Result<Confined, SandboxError> {
    // The library reads what the kernel says of the process when it first needs it, and panics where it cannot: from
    // now on those files are root's, and the call is refused.
    rustix::param::page_size();
    rights::give_up(needs)?;
    files::restrict(needs)
}
