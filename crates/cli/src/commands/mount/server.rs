//! The server of a mount: it opens the image, gives up its rights, and answers requests. It can neither mount nor
//! unmount; its parent does.

use super::connection::{Connection, Message};
use super::process::{ServerOutput, abort_on_panic, check_mount_point, leave_session, open_log};
use super::syslog::SystemLog;
use crate::args::{MountArgs, MountSettings};
use crate::interrupt;
use crate::open::policy;
use crate::open::session::Session;
use crate::open::volume::open_to_mount;
use crate::output::error::{CommandError, Context, Result};
use crate::output::screen::ServerLog;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use xfskit_engine::Volume;
use xfskit_fuse::{MountError, Serving};

/// Runs the server.
pub(super) fn run(session: &Session, args: &MountArgs, settings: MountSettings) -> Result<()> {
    abort_on_panic();
    let connection = Connection::of_standard_input().context("the connection to the parent")?;
    begin_logging(args, &connection);
    // A pair of sockets is made for them, which the sandbox would forbid.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals")?;
    // Everything that may fail is done before the mount.
    check_mount_point(&args.mount_point)?;
    let output = args.server.then(|| ServerOutput::open(args.log_file.as_deref())).transpose()?;
    if let (None, Some(path)) = (&output, &args.log_file) {
        rustix::stdio::dup2_stderr(&open_log(path)?).context("standard error")?;
    }
    if !settings.no_sandbox {
        let images = [Some(&args.image), settings.log_device.as_ref()];
        session.sandbox.plan(policy::of_server(images.into_iter().flatten().map(|path| path.as_path())));
    }
    // An image that takes for ever to be opened must not outlast a signal; one that is open is closed in good order.
    interrupt::watch_alone().context("signals")?;
    let filesystem = open_to_mount(session, &args.image, settings.log_device.as_deref(), settings.engine)?;
    interrupt::leave_to_others();
    // A working directory that cannot be left stays busy; the mount works without this.
    let _ = std::env::set_current_dir("/");
    let read_only = filesystem.options().read_only;
    connection.send(&if read_only { Message::OpenedToRead } else { Message::OpenedToWrite })?;
    let Some(Message::Mounted(kernel, end_report)) = connection.receive()? else {
        // The parent says why there is no mount.
        return Ok(filesystem.unmount().map_err(MountError::Close)?);
    };
    let serving = Serving::over(filesystem, kernel, end_report, &settings.fuse)?;
    let serving = serving.with_follower(session.sandbox.take_follower());
    serving.set_sandbox(session.sandbox.in_force().to_string());
    attend(session, &connection, &serving);
    let to_parent = connection.clone();
    std::thread::spawn(move || tell_of_signals(signals, &to_parent));
    connection.send(&Message::Serving)?;
    if let Some(output) = output {
        leave_session();
        output.replace();
    }
    Ok(serving.run()?)
}

/// Closes the image when the parent says so, or is gone: no process could unmount then.
fn attend(session: &Session, connection: &Connection, serving: &Serving<Volume>) {
    let (connection, end) = (connection.clone(), serving.end());
    let (helpers, messages) = (Arc::clone(&session.helpers), session.messages());
    std::thread::spawn(move || {
        while !matches!(connection.receive(), Ok(Some(Message::Close) | None) | Err(_)) {}
        let closed = end.close();
        helpers.end();
        match closed {
            Ok(()) => std::process::exit(0),
            Err(error) => {
                messages.report(&error.to_string());
                std::process::exit(CommandError::from(error).code().into());
            }
        }
    });
}

fn tell_of_signals(mut signals: Signals, parent: &Connection) {
    for _ in signals.forever() {
        // Without a parent the image is being closed.
        let _ = parent.send(&Message::AskedToEnd);
    }
}

/// Warnings go to standard error. For a server in the background that is the log file, and its errors also go to the
/// system's log, by the parent.
fn begin_logging(args: &MountArgs, connection: &Connection) {
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_target(false).without_time();
    if args.server {
        log.with_ansi(false).with_writer(SystemLog::new(connection.clone())).init();
    } else {
        // Messages that standard error refuses are lost: a report of that would go to standard error too.
        log.log_internal_errors(false).with_writer(ServerLog).init();
    }
}
