//! A run of the program: what its options say, what it has open, and what it has given up.
//!
//! ```text
//! Session ──open_files──▶ Files ──choose(&Confined)──▶ Opened: the part of a disk as a device
//!    └──────confine─────▶ Confined ──────┘
//! ```
//! A device is read as a filesystem only when the sandbox has been entered, as far as the command has a plan: who opens
//! one needs the [`Confined`] that only [`Session::confine`] gives.

use super::disks::OpenDisks;
use super::mounted::explain_open;
use super::network::{OtherClients, Servers};
use super::qemu::{Helpers, OtherPrograms};
use super::sandbox::{Entry, Plan, Sandbox, Sandboxing};
use super::unread::open_with_below;
use super::wait::Wait;
use crate::operand;
use crate::output::error::{Context, Result};
use crate::output::screen::{Messages, Output};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use xfskit_device::{Access, FileDevice, Holder, Names, OpenError};
use xfskit_nbd::Address;
use xfskit_sandbox::{FileUse, More};

/// What the options of the whole program say.
pub struct Options {
    /// How messages look.
    pub messages: Messages,
    /// How long to wait for an image that is in use.
    pub wait: Duration,
    /// Who else writes to the servers.
    pub other_clients: OtherClients,
    /// Whether other programs are started.
    pub other_programs: OtherPrograms,
    /// Whether rights are given up.
    pub sandboxing: Sandboxing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            messages: Messages::default(),
            wait: Duration::ZERO,
            other_clients: OtherClients::MayWrite,
            other_programs: OtherPrograms::MayHelp,
            sandboxing: Sandboxing::Planned,
        }
    }
}

/// A run of the program.
pub struct Session {
    /// What it prints.
    pub output: Output,
    /// How long it waits.
    pub wait: Wait,
    /// What it has given up.
    pub sandbox: Sandbox,
    /// How it connects to servers.
    pub servers: Servers,
    /// Other programs that read disks for it.
    pub helpers: Arc<Helpers>,
    /// The disks that it has open.
    pub disks: OpenDisks,
    /// Whether an image that was read has lost its first superblock or its end: the command was carried out as far as
    /// that goes.
    pub is_incomplete: Cell<bool>,
}

/// The rights that were to be given up before an image is read are given up.
#[derive(Clone, Copy)]
pub struct Confined<'s> {
    session: &'s Session,
}

impl<'s> Confined<'s> {
    /// The session that has given them up.
    pub fn session(self) -> &'s Session {
        self.session
    }
}

impl Session {
    /// A session in which nothing is open.
    pub fn new(options: Options) -> Self {
        Self {
            output: Output::new(options.messages),
            wait: Wait::new(options.wait),
            sandbox: Sandbox::new(options.sandboxing),
            servers: Servers::new(options.other_clients),
            helpers: Arc::new(Helpers::new(options.other_programs)),
            disks: OpenDisks::default(),
            is_incomplete: Cell::new(false),
        }
    }

    /// How messages look.
    pub fn messages(&self) -> Messages {
        self.output.messages
    }

    /// Gives up what the plan does not name.
    ///
    /// # Errors
    /// The system's; those of opening an image of the plan.
    pub fn confine(&self) -> Result<Confined<'_>> {
        self.confine_thread()?;
        self.sandbox.filter_calls()?;
        Ok(Confined { session: self })
    }

    /// Called before an image is opened: a command gives up its rights.
    ///
    /// # Errors
    /// As [`Self::confine`].
    pub fn before_opening(&self) -> Result<()> {
        if self.sandbox.entry() == Some(Entry::BeforeImages) { self.confine().map(drop) } else { Ok(()) }
    }

    /// For a server of a mount whose image is on a server, whose client has threads from the beginning: gives up what
    /// belongs to threads, but for the connection.
    ///
    /// # Errors
    /// The system's.
    pub fn before_connecting(&self, address: &Address) -> Result<()> {
        if self.sandbox.entry() != Some(Entry::WithImages) {
            return Ok(());
        }
        self.sandbox.change_plan(|plan| {
            // Of all servers at once: what is asked for later is not allowed.
            let files = plan.remote.iter().flat_map(|image| operand::files(image));
            let servers = files.map(|file| operand::address(&file)).collect::<Result<Vec<_>, _>>()?;
            let others = servers.iter().flatten().filter(|other| *other != address);
            for address in others.chain([address]) {
                self.servers.remember_credentials(address)?;
                plan.allow_connection(address);
            }
            Ok(())
        })?;
        self.confine_thread()
    }

    fn confine_thread(&self) -> Result<()> {
        if self.sandbox.is_thread_confined() {
            return Ok(());
        }
        self.sandbox.change_plan(|plan| self.look_at_files(plan))?;
        self.sandbox.confine_thread()
    }

    /// Adds the images of a plan to its files, and notes who uses them and the targets. An image that others use is
    /// refused here.
    fn look_at_files(&self, plan: &mut Plan) -> Result<()> {
        let note = |data, holders: &[Holder]| self.sandbox.holders.note(data, holders.to_vec());
        for (image, access) in plan.images.clone() {
            let used_for = if access == Access::Read { FileUse::Read } else { FileUse::Write };
            for file in operand::files(&image) {
                if let Some(address) = operand::address(&file)? {
                    self.servers.remember_credentials(&address)?;
                    plan.allow_connection(&address);
                    let is_tcp = address.tcp_port().is_some();
                    plan.needs.more.push(if is_tcp { More::ConnectTcp } else { More::ConnectUnix });
                    continue;
                }
                let opened = open_with_below(&self.wait, &file, access)?;
                note(opened.file().metadata().ok(), opened.file().holders());
                // A disk that another program reads is not opened here again.
                let Err(opened) = self.helpers.serve(&file, opened, access)? else { continue };
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
                Err(OpenError::Busy(in_use)) => note(std::fs::metadata(target).ok(), in_use.holders()),
                Ok(device) => note(device.metadata().ok(), device.holders()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Opens an image file or a device as it is. While another program uses it, waits for the time of `--wait`.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; [`Interrupted`](crate::interrupt::Interrupted) by a signal during the wait.
    pub fn open_device(&self, path: &Path, access: Access) -> Result<FileDevice> {
        self.before_opening()?;
        let is_busy = |error: &OpenError| matches!(error, OpenError::Busy(_));
        let device = self.wait.retry_while(is_busy, || FileDevice::open(path, access));
        let device = device.map_err(|error| match error.into_cause() {
            Ok(error) => explain_open(path, error),
            Err(error) => error,
        })?;
        self.warn_of_holders(path, device.holders());
        Ok(device)
    }

    /// Warns that data may be wrong if another program changes it while it is read.
    pub fn warn_of_holders(&self, path: &Path, holders: &[Holder]) {
        if !holders.is_empty() {
            let (path, holders) = (path.display(), Names(holders));
            let what = "may be changing it: what is shown here may be wrong";
            self.messages().report(&format!("{path}: warning: {holders} {what}"));
        }
    }
}
