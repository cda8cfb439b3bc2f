//! The parent of a mount: it mounts, unmounts and tells the system's log, and has no image open.

use super::connection::{Connection, Message};
use super::deleted;
use super::process::{ServerOutput, check_mount_point, leave_session, this_program};
use super::syslog::{self, Budget};
use crate::args::{MountArgs, MountSettings};
use crate::open::session::Session;
use crate::operand;
use crate::output::causes::Reported;
use crate::output::error::{CommandError, Context, Kind, Result, bail};
use crate::output::screen::Messages;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use xfskit_device::Access;
use xfskit_fuse::{MountError, Mounting, Served, Unmounter};

/// The server, as the one sees it who unmounts.
struct Server {
    connection: Connection,
    has_ended: Mutex<bool>,
    ends: Condvar,
}

impl Served for Server {
    /// What goes wrong then the server reports itself, and by its exit code.
    fn close(&self) -> Result<(), MountError> {
        // A server that has ended has closed the image, or never will.
        let _ = self.connection.send(&Message::Close);
        let ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ends.wait_while(ended, |ended| !*ended));
        Ok(())
    }

    fn ends_within(&self, time: Duration) -> bool {
        let ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ends.wait_timeout_while(ended, time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Runs the parent.
pub(super) fn run(session: &Session, args: &MountArgs, settings: MountSettings) -> Result<()> {
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals")?;
    check_mount_point(&args.mount_point)?;
    let output = args.server.then(|| ServerOutput::open(args.log_file.as_deref())).transpose()?;
    let (connection, theirs) = Connection::pair().context("a pair of sockets")?;
    let flags: &[&str] = if args.server { &["--server-process", "--server"] } else { &["--server-process"] };
    let mut command = this_program(session, args, flags)?;
    command.stdin(theirs).stdout(Stdio::null());
    let mut child = command.spawn().context("starting the server")?;
    // It has a copy of the server's end of the connection.
    drop(command);
    let unmounter = Arc::default();
    attend_signals(session.messages(), signals, &child, Arc::clone(&unmounter));
    let server = Arc::new(Server { connection, has_ended: Mutex::new(false), ends: Condvar::new() });
    let mut mount = Mount {
        args,
        messages: session.messages(),
        settings,
        output,
        server: &server,
        mounting: None,
        unmounter,
        unmounting: Arc::default(),
        log: Budget::default(),
        server_number: child.id(),
    };
    let attended = mount.attend();
    if attended.as_ref().is_err_and(|error| error.cause::<NotAsked>().is_some()) {
        // An attacker has taken it over; there is nothing to be closed in good order.
        let _ = child.kill();
    }
    let status = child.wait().context("waiting for the server")?;
    *server.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
    server.ends.notify_all();
    attended?;
    mount.end(status)
}

/// The server sent what it does not send.
#[derive(Debug, thiserror::Error)]
#[error("the server sent a message that was not due")]
struct NotAsked;

impl From<NotAsked> for CommandError {
    fn from(error: NotAsked) -> Self {
        Self::new(Kind::Failed, error)
    }
}

struct Mount<'a> {
    args: &'a MountArgs,
    messages: Messages,
    settings: MountSettings,
    output: Option<ServerOutput>,
    server: &'a Arc<Server>,
    mounting: Option<Mounting>,
    /// There when the mount can be used.
    unmounter: Arc<OnceLock<Unmounter>>,
    /// The server has asked for the end, and a thread unmounts.
    unmounting: Arc<AtomicBool>,
    log: Budget,
    /// The process of the server.
    server_number: u32,
}

impl Mount<'_> {
    /// Does what the server's messages ask for, until it ends. It may be an attacker's by then: each message is taken
    /// only when it is due.
    fn attend(&mut self) -> Result<()> {
        while let Some(message) = self.server.connection.receive().context("the server's message")? {
            match message {
                Message::OpenedToRead if self.mounting.is_none() => self.mount(Access::Read)?,
                Message::OpenedToWrite if self.mounting.is_none() && !self.settings.engine.read_only => {
                    self.mount(Access::Write)?;
                }
                Message::Serving => self.begin(),
                Message::Log(text) => {
                    if self.log.may_spend() {
                        syslog::send(&self.args.image.display().to_string(), &text);
                    }
                }
                Message::AskedToEnd => self.unmount_once(),
                Message::OpenedToRead | Message::OpenedToWrite | Message::Mounted(..) | Message::Close => {
                    return Err(NotAsked.into());
                }
            }
        }
        Ok(())
    }

    fn mount(&mut self, access: Access) -> Result<()> {
        let mut options = self.settings.fuse.clone();
        options.source = operand::canonical(&self.args.image).into();
        options.read_only = access != Access::Write;
        options.auto_unmount &= !self.unmounts_itself();
        match Mounting::new(&self.args.mount_point, &options) {
            Ok((mounting, connection, report)) => {
                self.mounting = Some(mounting);
                // A server that has ended says why itself.
                let _ = self.server.connection.send(&Message::Mounted(connection, report));
                Ok(())
            }
            Err(error) => {
                // It closes the image.
                let _ = self.server.connection.send(&Message::Close);
                Err(error.into())
            }
        }
    }

    fn unmount_once(&self) {
        let Some(unmounter) = self.unmounter.get().cloned() else { return };
        let (messages, unmounting) = (self.messages, Arc::clone(&self.unmounting));
        if !unmounting.swap(true, Ordering::Relaxed) {
            std::thread::spawn(move || {
                unmount(messages, &unmounter);
                unmounting.store(false, Ordering::Relaxed);
            });
        }
    }

    /// The mount can be used.
    fn begin(&mut self) {
        let Some(mounting) = &self.mounting else { return };
        mounting.begin();
        let unmounter = mounting.unmounter(Arc::clone(self.server) as _);
        self.unmounter.get_or_init(|| unmounter);
        self.watch_image();
        if let Some(output) = &self.output {
            // A working directory that cannot be left stays busy; the mount works without this.
            let _ = std::env::set_current_dir("/");
            leave_session();
            output.report_ready();
        }
    }

    /// Says it when the image is deleted. Where its name cannot be watched, it is not said.
    fn watch_image(&self) {
        let files = operand::files(&operand::canonical(&self.args.image));
        let dir = self.args.mount_point.canonicalize().unwrap_or_else(|_| self.args.mount_point.clone());
        let (image, server) = (self.args.image.display().to_string(), self.server_number);
        let messages = self.messages;
        std::thread::spawn(move || {
            let is_mounted = || xfskit_fuse::mount_at(&dir).is_ok_and(|entry| entry.is_some());
            if let Some(file) = deleted::wait(files).ok().filter(|_| is_mounted()) {
                let message = format!("warning: {}", deleted::message(&file, &dir, server));
                messages.report(&message);
                syslog::send(&image, &message);
            }
        });
    }

    /// Whether this process unmounts when the server has died. Else fusermount3 does it, which can where other users
    /// may use the mount.
    fn unmounts_itself(&self) -> bool {
        let fuse = &self.settings.fuse;
        fuse.auto_unmount && !fuse.allow_other && !fuse.allow_root
    }

    /// What the end of the server means.
    fn end(&self, status: ExitStatus) -> Result<()> {
        match (self.unmounter.get(), &self.mounting) {
            // No one will serve it.
            (None, Some(mounting)) => mounting.undo(),
            (Some(unmounter), mounting) if !status.success() => {
                unmounter.abort();
                if let Some(mounting) = mounting.as_ref().filter(|_| self.unmounts_itself()) {
                    mounting.undo();
                }
            }
            _ => {}
        }
        match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(Reported(u8::try_from(code).unwrap_or(1)).into()),
            None => bail!("the server was killed: {status}"),
        }
    }
}

/// A signal unmounts. As long as the server still opens the image, it gets the signal instead, and ends.
fn attend_signals(messages: Messages, mut signals: Signals, server: &Child, unmounter: Arc<OnceLock<Unmounter>>) {
    let server = Pid::from_child(server);
    // Without such a file (before Linux 5.3) the server opens the image to the end.
    let server = pidfd_open(server, PidfdFlags::empty()).ok();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            match (unmounter.get(), &server) {
                (Some(unmounter), _) => unmount(messages, unmounter),
                (None, Some(server)) => {
                    // One that has ended says itself how.
                    let _ = pidfd_send_signal(server, Signal::TERM);
                }
                (None, None) => {}
            }
        }
    });
}

fn unmount(messages: Messages, unmounter: &Unmounter) {
    if let Err(error) = unmounter.unmount() {
        messages.report(&error.to_string());
        std::process::exit(CommandError::from(error).code().into());
    }
}
