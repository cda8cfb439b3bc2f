//! `xfskit mount` and `umount`.
//!
//! ```text
//! mount       starts itself again as a server of its own session, and waits until that says "ready" or fails
//! mount -f    is the server
//! ```
//! A server ends when somebody unmounts, or on SIGTERM, SIGINT or SIGHUP, which unmount; the image is closed in good
//! order before it exits.

mod options;

pub use options::MountSettings;

use crate::args::MountArgs;
use crate::exit::{self, Reported, Usage};
use crate::image::open;
use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write, stdout};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xfskit_fuse::{Session, Unmounted, Unmounter};

/// What a server prints when the mount can be used.
const READY: &str = "ready";

/// Runs `mount`.
pub fn run(args: &MountArgs) -> Result<()> {
    let settings = MountSettings::parse(&args.options)?;
    if args.foreground || args.server { serve(args, settings) } else { start_server(args) }
}

/// Starts a server and waits until its mount can be used.
fn start_server(args: &MountArgs) -> Result<()> {
    let program = std::env::current_exe().context("this program")?;
    let mut command = Command::new(program);
    command.args(["mount", "--server"]);
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(file);
    }
    command.arg("--").arg(&args.image).arg(&args.mount_point);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().context("starting the server")?;
    let (Some(mut output), Some(mut errors)) = (server.stdout.take(), server.stderr.take()) else {
        bail!("the server has no output");
    };
    // Both end when the server lets go of them, which it does when it is ready or gone.
    let forward = std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
    let mut answer = String::new();
    output.read_to_string(&mut answer).context("the server's answer")?;
    // What cannot be shown cannot be reported either.
    let _ = forward.join();
    if answer.trim() == READY {
        return Ok(());
    }
    let status = server.wait().context("waiting for the server")?;
    match status.code() {
        Some(code) => Err(Reported(u8::try_from(code).unwrap_or(1)).into()),
        None => bail!("the server was killed: {status}"),
    }
}

fn serve(args: &MountArgs, settings: MountSettings) -> Result<()> {
    abort_on_panic();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .without_time()
        .init();
    if args.server {
        // Away from the terminal: its end is not the mount's. It fails only where that is so already.
        let _ = rustix::process::setsid();
    }
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals")?;
    let image = args.image.canonicalize().unwrap_or_else(|_| args.image.clone());
    let filesystem = open(&args.image, settings.log_device.as_deref(), settings.engine)?;
    let mut options = settings.fuse;
    options.source = image.display().to_string();
    options.read_only = filesystem.mount().options.read_only;
    let session = Session::mount(filesystem, &args.mount_point, &options)?;
    let unmounter = session.unmounter();
    std::thread::spawn(move || unmount_on_signal(signals, &unmounter));
    if args.server {
        let log_file = args.log_file.as_deref().map(std::path::absolute).transpose()?;
        std::env::set_current_dir("/").context("/")?;
        report_ready(log_file.as_deref())?;
    }
    Ok(session.run()?)
}

/// A defect in the server must not be followed by work on what it left: the image is then as after a power cut.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

fn unmount_on_signal(mut signals: Signals, unmounter: &Unmounter) {
    for _ in signals.forever() {
        match unmounter.unmount() {
            Ok(Unmounted::Gone) => {}
            // The image is closed; whoever has files open keeps nobody from leaving.
            Ok(Unmounted::Detached) => std::process::exit(0),
            Err(error) => {
                eprintln!("xfskit: {error}");
                std::process::exit(exit::code(&error.into()).into());
            }
        }
    }
}

/// Tells who started the server that it is ready, and lets go of the output.
fn report_ready(log_file: Option<&Path>) -> Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null").context("/dev/null")?;
    let log = match log_file {
        Some(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            file.with_context(|| path.display().to_string())?
        }
        None => nothing.try_clone().context("/dev/null")?,
    };
    let mut out = stdout().lock();
    writeln!(out, "{READY}")?;
    out.flush()?;
    rustix::stdio::dup2_stdout(&nothing).context("standard output")?;
    rustix::stdio::dup2_stderr(&log).context("standard error")?;
    Ok(())
}

/// Unmounts and waits until the server has closed the image.
pub fn unmount(mount_point: &Path) -> Result<()> {
    // A mount whose server is dead has no canonical path.
    let path = mount_point.canonicalize().or_else(|_| std::path::absolute(mount_point))?;
    let Some(source) = source_of(&path)? else {
        return Err(Usage(format!("{}: nothing is mounted here by xfskit", path.display())).into());
    };
    let image = File::open(&source);
    match rustix::mount::unmount(&path, UnmountFlags::empty()) {
        Err(Errno::PERM) => {
            let status = Command::new("fusermount3").args(["-u", "--"]).arg(&path).status().context("fusermount3")?;
            if !status.success() {
                bail!("{}: fusermount3 failed", path.display());
            }
        }
        result => result.map_err(std::io::Error::from).with_context(|| path.display().to_string())?,
    }
    if let Ok(image) = image {
        // The server holds the image's lock until it has closed it.
        let shared = rustix::fs::flock(&image, FlockOperation::LockShared);
        shared.map_err(std::io::Error::from).with_context(|| source.display().to_string())?;
    }
    Ok(())
}

/// The image that is mounted at a path.
fn source_of(path: &Path) -> Result<Option<PathBuf>> {
    let mounts = std::fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let mut found = mounts.split(|&byte| byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let (place, kind, source) = (fields.get(4)?, fields.get(dash + 1)?, fields.get(dash + 2)?);
        let here = *kind == b"fuse.xfskit" && unescape(place) == path;
        here.then(|| unescape(source))
    });
    Ok(found.next_back())
}

/// The kernel writes spaces and the like as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}
