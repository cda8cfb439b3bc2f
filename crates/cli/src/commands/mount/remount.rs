//! `mount -o remount`: the flags that the kernel has for every mount, and `larp`. The other options of the server stay
//! as they are.

use crate::args::{MountSettings, is_ignored};
use crate::commands::stats;
use crate::operand;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result, bail};
use crate::output::screen::Messages;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, XattrFlags};
use rustix::mount::MountFlags;
use std::os::fd::AsRawFd;
use std::path::Path;
use xfskit_engine::LARP_PROPERTY;
use xfskit_fuse::{KernelOption, mount_around, property_xattr};

const LARP: &str = "larp=";

/// Whether lists of options ask for a remount.
pub fn is_asked_for(lists: &[String]) -> bool {
    options(lists).any(|option| option == "remount")
}

fn options(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty())
}

/// The flags of a mount.
fn flags_of(mount_point: &Path) -> std::io::Result<MountFlags> {
    let now = rustix::fs::statvfs(mount_point)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
    ];
    Ok(pairs.into_iter().filter(|(have, _)| now.contains(*have)).map(|(_, flag)| flag).collect())
}

/// Refuses a remount with another image than the one that is mounted there, by whatever name.
fn check_image(image: &Path, mount_point: &Path) -> Result<()> {
    let place = mount_point.canonicalize().with_context(|| mount_point.display().to_string())?;
    let Some(entry) = mount_around(&place)?.filter(|entry| entry.place == place) else { return Ok(()) };
    let mounted = Path::new(&entry.source);
    if image == mounted || operand::is_same(image, mounted) {
        return Ok(());
    }
    let (place, image, mounted) = (place.display(), image.display(), mounted.display());
    Err(Usage(format!("{place}: a remount of {image}, but {mounted} is mounted there")).into())
}

/// Changes the flags of a mount, and then `larp`. What becomes read-only is made durable. mount(8) adds options from
/// fstab to those that it was given, so an option that cannot be changed is reported, but is not an error. Nothing is
/// changed before all is checked.
///
/// # Errors
/// `Usage` for an unknown option, and for another image than the one that is mounted there; for what is not the root of
/// a mount of xfskit; those of the system.
pub fn run(messages: Messages, image: &Path, mount_point: &Path, lists: &[String]) -> Result<()> {
    let shown = || mount_point.display().to_string();
    for option in options(lists).filter(|option| *option != "remount" && !is_ignored(option)) {
        MountSettings::default().apply(option).map_err(|why| Usage(format!("-o {option}: {why}")))?;
    }
    // All that follows is of one mount, whatever is at the path by then.
    let opened = rustix::fs::open(mount_point, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(std::io::Error::from).with_context(shown)?;
    let root = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
    let figures = stats::figures(mount_point)?;
    check_image(image, &root)?;
    let before = flags_of(&root).with_context(shown)?;
    let flags = flags_after(messages, before, lists);
    if !flags.contains(MountFlags::RDONLY) && figures["options"]["read_only"] == true {
        bail!("{}: the image was opened for reading only; unmount it, and mount it anew", shown());
    }
    let logging = Logging::find(messages, (&root, mount_point), lists, flags)?;
    if flags != before {
        rustix::mount::mount_remount(&root, flags, "").map_err(std::io::Error::from).with_context(shown)?;
    }
    // A shutdown's last step, after which the power goes; or a copy is made of the image, which needs no recovery.
    if flags.contains(MountFlags::RDONLY) && !before.contains(MountFlags::RDONLY) {
        let what = || format!("{}: it is read-only now, but not all that was written is durable", shown());
        xfskit_fuse::make_durable(&root).with_context(what)?;
    }
    let Some(logging) = logging else { return Ok(()) };
    logging.set(&root).with_context(|| match flags == before {
        true => format!("{}: -o larp={}", shown(), logging.wanted),
        false => format!("{}: the flags are changed, but not -o larp={}", shown(), logging.wanted),
    })
}

/// The flags of a mount as options change them. Options that change nothing are reported.
fn flags_after(messages: Messages, before: MountFlags, lists: &[String]) -> MountFlags {
    let mut flags = before;
    for option in options(lists) {
        match option {
            "remount" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => flags -= MountFlags::RDONLY,
            _ => match KernelOption::parse(option) {
                Some(known) => {
                    let (set, clear) = known.flags();
                    flags = (flags - clear) | set;
                    if matches!(known, KernelOption::Sync | KernelOption::DirSync) {
                        let why = "what is done to directories waits as before; for that, mount anew";
                        messages.report(&format!("warning: -o {option}: {why}"));
                    }
                }
                None if is_ignored(option) || option.starts_with(LARP) => {}
                None => messages.report(&format!("warning: -o {option}: a remount does not change it")),
            },
        }
    }
    flags
}

/// A change of whether attributes are logged.
struct Logging<'a> {
    wanted: &'a str,
}

impl<'a> Logging<'a> {
    /// The change that the options ask for, if it is one. The kernel sets no attribute on a read-only mount, where
    /// none is logged either.
    fn find(
        messages: Messages,
        (root, mount_point): (&Path, &Path),
        lists: &'a [String],
        flags: MountFlags,
    ) -> Result<Option<Self>> {
        let Some(wanted) = options(lists).filter_map(|option| option.strip_prefix(LARP)).last() else {
            return Ok(None);
        };
        let mut now = [0; 64];
        let length = rustix::fs::getxattr(root, property_xattr(LARP_PROPERTY), &mut now).map_err(std::io::Error::from);
        let length = length.with_context(|| format!("{}: -o larp={wanted}", mount_point.display()))?;
        if &now[..length] == wanted.as_bytes() {
            return Ok(None);
        }
        if flags.contains(MountFlags::RDONLY) {
            messages
                .report(&format!("warning: -o larp={wanted}: a read-only mount logs nothing, and this stays as it is"));
            return Ok(None);
        }
        Ok(Some(Self { wanted }))
    }

    fn set(&self, mount_point: &Path) -> std::io::Result<()> {
        let name = property_xattr(LARP_PROPERTY);
        Ok(rustix::fs::setxattr(mount_point, name, self.wanted.as_bytes(), XattrFlags::empty())?)
    }
}
