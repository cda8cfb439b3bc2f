//! `xfskit umount`.
//!
//! ```text
//! mountinfo ── the mount, its server's memory file ── umount(2) or fusermount3 ── the server reports how closing went
//! ```
//! The server may belong to any user, and need not answer; the name of the image may lead to any file. So this program
//! sends no request to the mount before it is unmounted, except for one with a time limit. Of the source it opens only
//! regular files and block devices, without blocking, and every wait has a limit.

use crate::exit::Usage;
use crate::operand;
use crate::screen::report;
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use xfskit_fuse::{Ending, MountEntry, MountsOf, Watch, is_mounted, mount_at, mounts_of, unmount_entry};

/// How long a server may take to close an image.
const MAX_CLOSING: Duration = Duration::from_secs(300);
/// Where mount(8) records what the kernel does not.
const NOTES: &str = "/run/mount/utab";
const MAX_ASKING: Duration = Duration::from_secs(1);
/// How long an unmount waits without a word.
const PATIENCE: Duration = Duration::from_secs(2);
/// Processes that are named.
const MOST_NAMED: usize = 5;
const PAUSE: Duration = Duration::from_millis(3);
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Unmounts and waits until the server has closed the image.
pub fn run(operand: &Path) -> Result<()> {
    let entry = find(operand)?;
    let path = entry.place.clone();
    let watch = Watch::find(&entry);
    let is_dead = watch.is_none() && is_dead(&path);
    warn_of_deleted(&entry);
    forget_helper(&path);
    detach(&entry)?;
    if is_mounted(&entry).context("/proc/self/mountinfo")? {
        // The filesystem has other mounts.
        return Ok(());
    }
    let (answer, answers) = mpsc::channel();
    if is_dead {
        // The image may be mounted again by now.
        drop(answer.send(Ending::Died));
    }
    let device = entry.device.clone();
    // In a thread of its own, because the server of the filesystem decides how long opening a file takes.
    std::thread::spawn(move || answer.send(wait(&entry, watch.as_ref())));
    let first = answers.recv_timeout(PATIENCE).or_else(|_| {
        report(&format!("{}: {}", path.display(), why_it_waits(&device)));
        answers.recv_timeout(MAX_CLOSING)
    });
    match first {
        Ok(Ending::Closed(notes)) => {
            if !notes.is_empty() {
                report(&format!("{}: warning: {notes}", path.display()));
            }
            Ok(())
        }
        Ok(Ending::Failed(why)) => bail!(
            "{}: unmounted, but the image could not be closed: {why}; what was not durable before is lost, and the \
             next mount recovers the rest",
            path.display()
        ),
        Ok(Ending::Died) => bail!(
            "{}: unmounted, but its server had ended without closing the image: what was not durable is lost, and the \
             next mount recovers the rest",
            path.display()
        ),
        Err(_) => bail!("{}: unmounted, but the server has not closed the image yet", path.display()),
    }
}

/// Says it where the image has no name any more.
fn warn_of_deleted(entry: &MountEntry) {
    let gone = |file: &PathBuf| matches!(file.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound);
    let files = operand::files(Path::new(&entry.source));
    if let Some(file) = files.iter().find(|file| file.is_absolute() && gone(file)) {
        let (image, place) = (file.display(), entry.place.display());
        report(&format!(
            "{place}: warning: {image} is not there any more: if it was deleted, and not renamed, all of it is gone \
             with this mount (before that, cp -a {place}/. ELSEWHERE saves its files)"
        ));
    }
}

/// What an unmount waits for.
fn why_it_waits(device: &str) -> String {
    let others = others_with(device);
    if others.is_empty() {
        return "unmounted; waiting for the server to close the image".into();
    }
    let more = if others.len() > MOST_NAMED { ", ..." } else { "" };
    let named: Vec<String> = others.into_iter().take(MOST_NAMED).collect();
    format!("unmounted here; waiting for other mount namespaces that have it: of process {}{more}", named.join(", "))
}

/// Processes of other mount namespaces in which a filesystem is mounted, one of each, by number and name.
fn others_with(device: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let field = format!(" {device} ");
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let (path, name) = (process.path(), process.file_name());
        let Some(number) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        let Ok(namespace) = std::fs::read_link(path.join("ns/mnt")) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        let has = |text: String| text.lines().any(|line| line.contains(&field) && line.contains(" - fuse.xfskit "));
        if std::fs::read_to_string(path.join("mountinfo")).is_ok_and(has) {
            let command = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            found.push(format!("{number} ({})", command.trim()));
        }
    }
    found
}

/// The mount at a mount point, or that of an image, if there is one alone.
fn find(operand: &Path) -> Result<MountEntry> {
    // A mount whose server is dead has no canonical path.
    let path = operand.canonicalize().or_else(|_| std::path::absolute(operand))?;
    if let Some(entry) = mount_at(&path).context("/proc/self/mountinfo")? {
        return Ok(entry);
    }
    let MountsOf { believed: mut mounts, others } =
        mounts_of(&operand::canonical(operand)).context("/proc/self/mountinfo")?;
    match (mounts.pop(), mounts.is_empty()) {
        (None, _) if std::fs::symlink_metadata(&path).is_err() => bail!("{}: no such folder or image", path.display()),
        (None, _) if !others.is_empty() => bail!(
            "{}: the mount on {} has this name, by user {}, to whom it does not belong: name the folder, if that is \
             meant",
            path.display(),
            others[0].place.display(),
            others[0].user_id
        ),
        (None, _) => bail!(
            "{}: no mount of xfskit, and no image that is mounted by this name (of a renamed one, give the folder)",
            path.display()
        ),
        (Some(entry), true) => Ok(entry),
        (Some(last), false) => {
            mounts.push(last);
            let places: Vec<String> = mounts.iter().map(|entry| entry.place.display().to_string()).collect();
            let (name, count, places) = (operand.display(), places.len(), places.join(", "));
            Err(Usage(format!("{name}: it is mounted {count} times, name the mount point that is meant: {places}"))
                .into())
        }
    }
}

/// Makes umount(8) remove the record that names our helper, if there is one.
fn forget_helper(path: &Path) {
    let notes = std::fs::read(NOTES).unwrap_or_default();
    if rustix::process::geteuid().is_root() && !notes.is_empty() {
        let mut forget = Command::new("umount");
        let forget = forget.args(["--internal-only", "--fake", "--"]).arg(path);
        let _ = forget.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Whether the server of a mount has ended. The time for its answer is limited.
fn is_dead(path: &Path) -> bool {
    let (answer, answers) = mpsc::channel();
    let path = path.to_owned();
    // Attributes may be in the kernel's cache; free space is not.
    std::thread::spawn(move || answer.send(rustix::fs::statfs(path).err()));
    answers.recv_timeout(MAX_ASKING) == Ok(Some(Errno::NOTCONN))
}

/// Unmounts. While a program uses the mount, this tries again for the time of `--wait`.
fn detach(entry: &MountEntry) -> Result<()> {
    let end = Instant::now() + crate::image::wait();
    loop {
        let Err(error) = unmount_entry(entry) else { return Ok(()) };
        let is_busy = error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) || error.to_string().contains("busy");
        if is_busy && Instant::now() < end {
            std::thread::sleep(BUSY_PAUSE);
            continue;
        }
        let hint = "; `fuser -vm` names the programs that use it, and --wait SECONDS waits for them";
        let hint = if is_busy { hint } else { "" };
        bail!("{}: {error}{hint}", entry.place.display());
    }
}

fn wait(entry: &MountEntry, watch: Option<&Watch>) -> Ending {
    let end = Instant::now() + MAX_CLOSING;
    let files = operand::files(Path::new(&entry.source));
    let image = if watch.is_none() { files.first().and_then(|path| open_quietly(path)) } else { None };
    while Instant::now() < end {
        let ending = match (watch, &image) {
            (Some(watch), _) => watch.ending(),
            // A server that cannot be seen has the image locked until it has closed it.
            (None, Some(image)) => {
                let locked = rustix::fs::flock(image, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
                (!locked).then(|| Ending::Closed(String::new()))
            }
            (None, None) => Some(Ending::Closed(String::new())),
        };
        match ending {
            Some(ending) => return ending,
            None => std::thread::sleep(PAUSE),
        }
    }
    Ending::Failed("the server still works".into())
}

/// Opens a regular file or a block device, and nothing else.
fn open_quietly(path: &Path) -> Option<File> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let place = format!("/proc/self/fd/{}", found.as_raw_fd());
    let kind = std::fs::metadata(&place).ok()?.file_type();
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let is_image = kind.is_file() || kind.is_block_device();
    is_image.then(|| File::options().read(true).custom_flags(flags).open(place).ok()).flatten()
}
