//! When this program gives up its rights, and which it keeps: docs/design/sandbox.md.
//!
//! ```text
//! command  plan ─▶ who else has the images? ─▶ rights are given up ─▶ the images are opened and parsed
//! mount    plan ─▶ the images are opened ─▶ rights are given up ─▶ they are parsed
//!          what the header of a virtual disk names is found before that, by a process of its own: `header`
//!          plan ─▶ before_connecting ─▶ their server is connected to ─▶ the rest is given up ─▶ the same
//! ```
//! Without a plan nothing is given up. Which commands need what is in [`crate::open::policy`].

use crate::open::network;
use crate::open::operand;
use crate::open::qemu;
use anyhow::{Context, Result};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xfskit::device::{Access, FileDevice, Holder, OpenError};
use xfskit_fuse::protocol::SpareThread;
use xfskit_nbd::Address;
use xfskit_sandbox::{Calls, Confined, FileUse, IoUring, More, Needs, confine_thread, filter_calls};

/// Where the kernel says whether it offers FUSE over io_uring.
const OFFERS_RINGS: &str = "/sys/module/fuse/parameters/enable_uring";
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

/// When rights are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Before the first image is opened.
    BeforeImages,
    /// When [`enter`] is called, with the images open.
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

#[derive(Debug)]
struct State {
    plan: Option<Plan>,
    /// What of it is in force.
    confined: Confined,
    is_thread_confined: bool,
    has_entered: bool,
    is_left_out: bool,
    /// The thread that the filter of system calls names.
    follower: Option<SpareThread>,
    /// Who used a file, by its device and inode number, when rights were given up.
    holders: Vec<((u64, u64), Vec<Holder>)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    plan: None,
    confined: Confined { landlock: None, seccomp: false },
    is_thread_confined: false,
    has_entered: false,
    is_left_out: false,
    follower: None,
    holders: Vec::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plan of the server of a mount of an image, with its log where that has a device of its own.
pub fn plan_of_server<'p>(images: impl IntoIterator<Item = &'p Path>) -> Plan {
    let offers = std::fs::read_to_string(OFFERS_RINGS).is_ok_and(|answer| answer.trim() == "Y");
    let mut needs = Needs::new(Calls::Serve(if offers { IoUring::Offered } else { IoUring::Not }));
    // Where a lone client runs, which groups a caller is in, and how many processors there are.
    needs.files = vec![
        ("/proc".into(), FileUse::Read),
        ("/sys/devices/system/cpu".into(), FileUse::Read),
        ("/sys/fs/cgroup".into(), FileUse::Read),
        // Another descriptor of the connection for each thread.
        ("/dev/fuse".into(), FileUse::Write),
    ];
    let remote = images.into_iter().map(Path::to_path_buf).collect();
    Plan { needs, images: Vec::new(), targets: Vec::new(), entry: Entry::WithImages, has_follower: true, remote }
}

/// From now on the program goes by this plan.
pub fn plan(plan: Plan) {
    let mut state = state();
    if !state.is_left_out {
        state.plan = Some(plan);
    }
}

/// The user wants no sandbox.
pub fn leave_out() {
    state().is_left_out = true;
}

/// The option for a program that is started to do the same, if it was given.
pub fn option() -> Option<&'static str> {
    state().is_left_out.then_some("--no-sandbox")
}

/// For a server of a mount whose image is on a server, whose client has threads from the beginning: gives up what
/// belongs to threads, but for the connection.
///
/// # Errors
/// The system's.
pub fn before_connecting(address: &Address) -> Result<()> {
    let mut state = state();
    let Some(plan) = state.plan.as_mut().filter(|plan| plan.entry == Entry::WithImages) else { return Ok(()) };
    // Of all servers at once: what is asked for later is not allowed.
    let files = plan.remote.iter().flat_map(|image| operand::files(image));
    let servers = files.map(|file| network::address(&file)).collect::<Result<Vec<_>, _>>()?;
    let others = servers.iter().flatten().filter(|other| *other != address);
    for address in others.chain([address]) {
        network::remember_credentials(address)?;
        allow_connection(&mut plan.needs, address);
    }
    confine(&mut state)
}

/// Lets a connection to a server be made after Landlock's rules are in force.
fn allow_connection(needs: &mut Needs, address: &Address) {
    match address.tcp_port() {
        Some(port) => {
            needs.ports.push(port);
            needs.files.extend(LOOK_UP.map(|path| (path.into(), FileUse::Read)));
        }
        None => needs.abstract_sockets = true,
    }
}

/// Called before an image is opened: a command gives up its rights.
///
/// # Errors
/// As [`enter`].
pub fn before_opening() -> Result<()> {
    let is_now = state().plan.as_ref().is_some_and(|plan| plan.entry == Entry::BeforeImages);
    if is_now { enter() } else { Ok(()) }
}

/// Whether images are to be opened with rights that are given up before they are parsed.
pub fn is_ahead() -> bool {
    let state = state();
    state.plan.is_some() && !state.has_entered
}

/// Whether this process has the right to start others.
pub fn may_start_programs() -> bool {
    let state = state();
    !state.has_entered && !state.is_thread_confined
}

/// Lets files that are open be opened again later.
///
/// # Errors
/// The system's.
pub fn keep(file: &FileDevice, used_for: FileUse) -> std::io::Result<()> {
    let mut state = state();
    if let Some(plan) = state.plan.as_mut() {
        plan.needs.open_files.push((file.try_clone_file()?, used_for));
    }
    Ok(())
}

/// Those who used a file when rights were given up: a process under Landlock's rules does not see what others have
/// open. `None` if that was not asked.
pub fn holders_before(file: &Metadata) -> Option<Vec<Holder>> {
    let state = state();
    let found = state.holders.iter().find(|(key, _)| *key == (file.dev(), file.ino()));
    found.map(|(_, holders)| holders.clone())
}

/// Adds the images of a plan to its files, and notes who uses them and the targets. An image that others use is refused
/// here.
fn look_at_files(state: &mut State) -> Result<()> {
    let Some(plan) = state.plan.as_mut() else { return Ok(()) };
    let mut note = |data: Option<Metadata>, holders: Vec<Holder>| {
        state.holders.extend(data.map(|data| ((data.dev(), data.ino()), holders)));
    };
    for (image, access) in &plan.images {
        let used_for = if *access == Access::Read { FileUse::Read } else { FileUse::Write };
        for file in operand::files(image) {
            if let Some(address) = network::address(&file)? {
                network::remember_credentials(&address)?;
                allow_connection(&mut plan.needs, &address);
                let is_tcp = address.tcp_port().is_some();
                plan.needs.more.push(if is_tcp { More::ConnectTcp } else { More::ConnectUnix });
                continue;
            }
            let opened = operand::open_with_below(&file, *access)?;
            note(opened.file().metadata().ok(), opened.file().holders().to_vec());
            // A disk that another program reads is not opened here again.
            let Err(opened) = qemu::serve(&file, opened, *access)? else { continue };
            let again = |file: &FileDevice| file.try_clone_file().with_context(|| image.display().to_string());
            plan.needs.open_files.push((again(opened.file())?, used_for));
            // What an image names is only read, whatever it is.
            for (_, file) in opened.below() {
                plan.needs.open_files.push((again(file)?, FileUse::Read));
            }
        }
    }
    for target in &plan.targets {
        // Other errors are reported when it is replaced.
        match FileDevice::open(target, Access::Read) {
            Err(OpenError::Busy(in_use)) => note(std::fs::metadata(target).ok(), in_use.holders().to_vec()),
            Ok(device) => note(device.metadata().ok(), device.holders().to_vec()),
            Err(_) => {}
        }
    }
    Ok(())
}

fn confine(state: &mut State) -> Result<()> {
    if state.is_thread_confined {
        return Ok(());
    }
    look_at_files(state)?;
    let Some(plan) = &mut state.plan else { return Ok(()) };
    let confined = confine_thread(&plan.needs).context(HINT)?;
    // They have locks.
    plan.needs.open_files.clear();
    state.confined = state.confined.and(confined);
    state.is_thread_confined = true;
    Ok(())
}

/// What a user can do where the system does not let a sandbox be entered.
pub const HINT: &str = "entering the sandbox (--no-sandbox goes on without one)";

/// Gives up what the plan does not name.
///
/// # Errors
/// The system's; those of opening an image of the plan.
pub fn enter() -> Result<()> {
    let mut state = state();
    confine(&mut state)?;
    let state = &mut *state;
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
pub fn take_follower() -> Option<SpareThread> {
    state().follower.take()
}

/// What is in force.
pub fn in_force() -> Confined {
    state().confined
}
