//! Who else has an image: the kernel, by a loop device, a swap area, a mount or a device mapper, and other programs.
//!
//! ```text
//! image file  ◀── /sys/block/loopN/loop/backing_file ◀── mounted, swapped to, mapped (/sys/dev/block/M:m/holders)
//!             ◀── /proc/swaps
//!             ◀── /proc/PID/fd/N
//! block device ── /sys/dev/block/M:m/slaves, loop/backing_file ──▶ files below it
//! ```
//! The kernel takes no lock on the file below a loop device, so it has to be looked for. Files are compared by device
//! and inode number, since any of them has several names. What this process may not see (another mount namespace, the
//! descriptors of other users) it does not find.
//!
//! Source of facts: Documentation/ABI/*/sysfs-block*, proc(5).

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Layers of devices on devices that are looked through.
const MOST_LAYERS: usize = 8;

/// One that has an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    what: String,
    /// It goes away by itself: a loop device whose mount is gone already.
    is_leaving: bool,
}

impl Holder {
    fn new(what: String) -> Self {
        Self { what, is_leaving: false }
    }

    /// Whether it is about to let go by itself.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What of the kernel has a file or block device in a way that may change it, or that goes wrong if another changes it.
/// With `only_writers`, loop devices that are read-only do not count.
pub(crate) fn of_kernel(image: &Metadata, only_writers: bool) -> Vec<Holder> {
    if image.file_type().is_block_device() {
        let users = users_of_device(image.rdev()).into_iter().map(|how| Holder::new(format!("the kernel: {how}")));
        return users.chain(beside_device(image, only_writers)).collect();
    }
    let mut found = Vec::new();
    if swap_areas().iter().any(|path| is_same(path, image)) {
        found.push(Holder::new("the kernel, which swaps to it (swapoff)".into()));
    }
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let dir = entry.path();
        let Some(backing) = backing_file(&dir) else { continue };
        if is_same(&backing, image) && !(only_writers && is_one(&dir.join("ro"))) {
            found.push(loop_device(&dir));
        }
    }
    found
}

/// What else of the kernel has the files below a block device: another loop device over the same file shows the same
/// image. Such a device counts only if it is used, for it may be one that everybody forgot.
fn beside_device(device: &Metadata, only_writers: bool) -> Vec<Holder> {
    let files: Vec<Metadata> = files_below(device).iter().filter_map(|path| fs::metadata(path).ok()).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let dir = entry.path();
        let Some(number) = device_number(&dir.join("dev")).filter(|number| *number != device.rdev()) else { continue };
        let shows_it = |backing: PathBuf| files.iter().any(|file| is_same(&backing, file));
        let is_harmless = only_writers && is_one(&dir.join("ro")) || users_of_device(number).is_empty();
        if !is_harmless && backing_file(&dir).is_some_and(shows_it) {
            found.push(loop_device(&dir));
        }
    }
    found
}

/// Whether a file or block device shows, or has below it, bytes of another: both are the same, or they lie on one file.
pub fn share_storage(one: &Metadata, other: &Metadata) -> bool {
    let is_device = |data: &Metadata| data.file_type().is_block_device();
    if is_one_file(one, other) || is_device(one) && is_device(other) && one.rdev() == other.rdev() {
        return true;
    }
    let below = |data: &Metadata| -> Vec<Metadata> {
        files_below(data).iter().filter_map(|path| fs::metadata(path).ok()).chain([data.clone()]).collect()
    };
    let others = below(other);
    below(one).iter().any(|file| others.iter().any(|other| is_one_file(file, other)))
}

fn is_one_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn loop_device(dir: &Path) -> Holder {
    let name = dir.file_name().unwrap_or_default().display();
    let users = device_number(&dir.join("dev")).map(users_of_device).unwrap_or_default();
    let is_leaving = users.is_empty() && is_one(&dir.join("loop/autoclear"));
    let how = if users.is_empty() { format!("losetup -d /dev/{name}") } else { users.join(", ") };
    Holder { what: format!("the kernel, by loop device /dev/{name} ({how})"), is_leaving }
}

/// Files that a block device keeps its contents in.
pub(crate) fn files_below(device: &Metadata) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if device.file_type().is_block_device() {
        add_files_below(&sysfs_dir(device.rdev()), MOST_LAYERS, &mut found);
    }
    found
}

fn add_files_below(dir: &Path, layers_left: usize, found: &mut Vec<PathBuf>) {
    let Ok(dir) = dir.canonicalize() else { return };
    // A partition is a folder of its disk.
    let disk = if dir.join("partition").exists() { dir.parent().unwrap_or(&dir) } else { &dir };
    found.extend(backing_file(disk));
    if layers_left > 0 {
        for below in fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten() {
            add_files_below(&below.path(), layers_left - 1, found);
        }
    }
}

/// What the kernel does with a block device or a partition of it.
fn users_of_device(device: u64) -> Vec<String> {
    let dir = sysfs_dir(device);
    let partitions = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let partitions = partitions.filter(|path| path.join("partition").exists());
    let mut users = Vec::new();
    for part in std::iter::once(dir.clone()).chain(partitions) {
        let Some(number) = device_number(&part.join("dev")) else { continue };
        users.extend(mounts_of(number).into_iter().map(|place| format!("mounted on {}", place.display())));
        let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| is_device(&data, number));
        users.extend(swap_areas().iter().any(is_it).then(|| "swapped to".to_owned()));
        for holder in fs::read_dir(part.join("holders")).into_iter().flatten().flatten() {
            let name = fs::read_to_string(holder.path().join("dm/name")).unwrap_or_default();
            let device = holder.file_name();
            users.push(format!("part of /dev/{} {}", device.display(), name.trim()).trim_end().to_owned());
        }
    }
    users
}

/// Programs other than this one that have a file open; one without a name if none can be seen.
pub(crate) fn of_programs(image: &Metadata) -> Vec<Holder> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = process.file_name();
        if !id.as_bytes().iter().all(u8::is_ascii_digit) || id == *own {
            continue;
        }
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if files.map(|file| file.path()).any(|path| is_same(&path, image)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(Holder::new(format!("{} (process {})", name.trim(), id.display())));
        }
    }
    if found.is_empty() {
        found.push(Holder::new("another program (mounted, or being written)".into()));
    }
    found
}

fn is_device(data: &Metadata, device: u64) -> bool {
    data.file_type().is_block_device() && data.rdev() == device
}

fn is_same(path: &Path, image: &Metadata) -> bool {
    let same = |data: Metadata| {
        let same_file = (data.dev(), data.ino()) == (image.dev(), image.ino());
        same_file || image.file_type().is_block_device() && is_device(&data, image.rdev())
    };
    fs::metadata(path).is_ok_and(same)
}

fn is_one(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Whether a block device takes no writes. It may be opened for them all the same; then each one fails.
pub(crate) fn is_read_only(metadata: &Metadata) -> bool {
    metadata.file_type().is_block_device()
        && fs::read_to_string(sysfs_dir(metadata.rdev()).join("ro")).is_ok_and(|text| text.trim() == "1")
}

fn sysfs_dir(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device)).into()
}

fn device_number(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn backing_file(disk: &Path) -> Option<PathBuf> {
    let mut name = fs::read(disk.join("loop/backing_file")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(name).into())
}

/// Where a device is mounted, as far as this process sees mounts.
fn mounts_of(device: u64) -> Vec<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let place = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        if *fields.get(2)? == number.as_bytes() { fields.get(4).map(|place| unescape(place)) } else { None }
    };
    mounts.split(|&byte| byte == b'\n').filter_map(place).collect()
}

/// Files and devices that the kernel swaps to.
fn swap_areas() -> Vec<PathBuf> {
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    let lines = swaps.split(|&byte| byte == b'\n').skip(1);
    lines.filter_map(|line| line.split(|&byte| byte == b' ').next()).map(unescape).collect()
}

/// A name as the kernel writes it in tables: spaces and the like are three octal digits behind a backslash.
pub fn unescape(field: &[u8]) -> PathBuf {
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
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_tables_are_read_as_they_were() {
        assert_eq!(unescape(br"/a\040b\134\011\012c\9"), Path::new("/a b\\\t\nc\\9"));
    }
}
