//! What this process has given up, and what it keeps: docs/design/sandbox.md.
//!
//! ```text
//! command  plan ─▶ who else has the images? ─▶ rights are given up ─▶ the images are opened and parsed
//! mount    plan ─▶ the images are opened ─▶ rights are given up ─▶ they are parsed
//!          what the header of a virtual disk names is found before that, by a process of its own: `header`
//!          plan ─▶ before_connecting ─▶ their server is connected to ─▶ the rest is given up ─▶ the same
//! ```
//! Without a plan nothing is given up. Which commands need what is in [`super::policy`]; when which step is taken, in
//! [`super::session`].

use crate::output::error::{Context, Result};
use std::cell::RefCell;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use xfskit_device::{Access, FileDevice, Holder};
use xfskit_fuse::protocol::SpareThread;
use xfskit_nbd::Address;
use xfskit_sandbox::{Confined, FileUse, Needs, confine_thread, filter_calls};

/// What the C library reads to look the name of a server up.
const LOOK_UP: [&str; 13] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// What a user can do where the system does not let a sandbox be entered.
pub const HINT: &str = "entering the sandbox (--no-sandbox goes on without one)";

/// When rights are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Before the first image is opened.
    BeforeImages,
    /// When the session is confined, with the images open.
    WithImages,
}

/// What is kept, and when the rest is given up.
#[derive(Debug)]
pub struct Plan {
    /// What is kept, but for the images.
    pub needs: Needs,
    /// Images and disks, and how they will be opened.
    pub images: Vec<(PathBuf, Access)>,
    /// Files that the command replaces, if no other program uses them.
    pub targets: Vec<PathBuf>,
    /// When the rest is given up.
    pub entry: Entry,
    /// The server may have a thread that follows lone clients, of which another one says how it runs.
    pub has_follower: bool,
    /// Images and logs to whose servers the server of a mount connects, where they have one.
    pub remote: Vec<PathBuf>,
}

impl Plan {
    /// Lets a connection to a server be made after Landlock's rules are in force.
    pub fn allow_connection(&mut self, address: &Address) {
        match address.tcp_port() {
            Some(port) => {
                self.needs.ports.push(port);
                self.needs.files.extend(LOOK_UP.map(|path| (path.into(), FileUse::Read)));
            }
            None => self.needs.abstract_sockets = true,
        }
    }
}

/// A file by its device and inode number, and those who used it.
type Used = ((u64, u64), Vec<Holder>);

/// Who used a file when rights were given up: a process under Landlock's rules does
/// not see what others have open.
#[derive(Clone, Debug, Default)]
pub struct Holders(Rc<RefCell<Vec<Used>>>);

impl Holders {
    /// Those who used a file. `None` if that was not asked.
    pub fn of(&self, file: &Metadata) -> Option<Vec<Holder>> {
        let noted = self.0.borrow();
        let found = noted.iter().find(|(key, _)| *key == (file.dev(), file.ino()));
        found.map(|(_, holders)| holders.clone())
    }

    /// Notes those who use a file.
    pub fn note(&self, file: Option<Metadata>, holders: Vec<Holder>) {
        self.0.borrow_mut().extend(file.map(|file| ((file.dev(), file.ino()), holders)));
    }
}

/// Whether the user wants a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandboxing {
    /// Rights are given up where a command has a plan.
    Planned,
    /// The user wants none.
    LeftOut,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<Plan>,
    /// What of it is in force.
    confined: Confined,
    is_thread_confined: bool,
    has_entered: bool,
    /// The thread that the filter of system calls names.
    follower: Option<SpareThread>,
}

/// The sandbox of this process.
#[derive(Debug)]
pub struct Sandbox {
    sandboxing: Sandboxing,
    state: RefCell<State>,
    /// Who used the images and targets when rights were given up.
    pub holders: Holders,
}

impl Sandbox {
    /// One that nothing is planned of.
    pub fn new(sandboxing: Sandboxing) -> Self {
        Self { sandboxing, state: RefCell::default(), holders: Holders::default() }
    }

    /// From now on the program goes by this plan.
    pub fn plan(&self, plan: Plan) {
        if self.sandboxing == Sandboxing::Planned {
            self.state.borrow_mut().plan = Some(plan);
        }
    }

    /// The option for a program that is started to do the same, if it was given.
    pub fn option(&self) -> Option<&'static str> {
        (self.sandboxing == Sandboxing::LeftOut).then_some("--no-sandbox")
    }

    /// When the rest is given up, where that is planned.
    pub fn entry(&self) -> Option<Entry> {
        self.state.borrow().plan.as_ref().map(|plan| plan.entry)
    }

    /// Whether images are to be opened with rights that are given up before they are parsed.
    pub fn is_ahead(&self) -> bool {
        let state = self.state.borrow();
        state.plan.is_some() && !state.has_entered
    }

    /// Whether this process has the right to start others.
    pub fn may_start_programs(&self) -> bool {
        let state = self.state.borrow();
        !state.has_entered && !state.is_thread_confined
    }

    /// Whether the thread has given up what belongs to threads.
    pub fn is_thread_confined(&self) -> bool {
        self.state.borrow().is_thread_confined
    }

    /// Lets a file that is open be opened again later.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(&self, file: &FileDevice, used_for: FileUse) -> std::io::Result<()> {
        if let Some(plan) = self.state.borrow_mut().plan.as_mut() {
            plan.needs.open_files.push((file.try_clone_file()?, used_for));
        }
        Ok(())
    }

    /// Changes the plan, if there is one. It stays in force whatever `change` returns.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_plan(&self, change: impl FnOnce(&mut Plan) -> Result<()>) -> Result<()> {
        let Some(mut plan) = self.state.borrow_mut().plan.take() else { return Ok(()) };
        let changed = change(&mut plan);
        self.state.borrow_mut().plan = Some(plan);
        changed
    }

    /// Gives up what belongs to threads.
    ///
    /// # Errors
    /// The system's.
    pub fn confine_thread(&self) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let Some(plan) = &mut state.plan else { return Ok(()) };
        let confined = confine_thread(&plan.needs).context(HINT)?;
        // They have locks.
        plan.needs.open_files.clear();
        state.confined = state.confined.and(confined);
        state.is_thread_confined = true;
        Ok(())
    }

    /// Gives up the system calls that the plan does not name.
    ///
    /// # Errors
    /// The system's.
    pub fn filter_calls(&self) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        if state.has_entered {
            return Ok(());
        }
        let Some(plan) = state.plan.as_mut() else { return Ok(()) };
        if plan.has_follower {
            // It has given up its rights as the thread that starts it has, and parses nothing before all have done so.
            let spare = SpareThread::start().context("a thread")?;
            plan.needs.threads.push(spare.id());
            state.follower = Some(spare);
        }
        let confined = filter_calls(&plan.needs).context(HINT)?;
        state.confined = state.confined.and(confined);
        state.has_entered = true;
        Ok(())
    }

    /// The thread that may follow lone clients, where a sandbox has been entered.
    pub fn take_follower(&self) -> Option<SpareThread> {
        self.state.borrow_mut().follower.take()
    }

    /// What is in force.
    pub fn in_force(&self) -> Confined {
        self.state.borrow().confined
    }
}
