//! Finds who else uses an image: the kernel, by a loop device, a swap area, a mount or a device mapper, and other
//! programs.
//!
//! ```text
//! image file  ◀── /sys/block/loopN/loop/backing_file ◀── mounted, swapped to, mapped (/sys/dev/block/M:m/holders)
//!             ◀── /proc/swaps
//!             ◀── /proc/PID/fd/N
//! block device ── /sys/dev/block/M:m/slaves, loop/backing_file ──▶ files and block devices below it
//!             ◀── loop/backing_file of other loop devices ◀── mounted, swapped to, mapped
//! ```
//! The kernel takes no lock on the file below a loop device, so this module looks for it. Files are compared by device
//! and inode number, since a file may have several names. A loop device is asked for the numbers of its file, because
//! the file's name may be gone or lie in another mount namespace. Only root may ask; for other users the name has to
//! do. This process does not find what it may not see (mounts in another namespace, the descriptors of other users),
//! nor programs that lock nothing, such as nbdkit.
//!
//! Source of facts: proc(5).

use crate::loop_device::FileId;
use crate::sysfs::{Backing, Sysfs, device_number, is_one, made_of};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A user of an image: a program, or the kernel in one of its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    what: String,
    /// It ends by itself: a loop device that the kernel detaches, because its mount is gone.
    is_leaving: bool,
    is_this_program: bool,
}

impl Holder {
    fn new(what: String) -> Self {
        Self { what, is_leaving: false, is_this_program: false }
    }

    /// The program that asks.
    pub(crate) fn this_program() -> Self {
        Self { is_this_program: true, ..Self::new("this program itself".into()) }
    }

    /// Whether it is the program that asks.
    pub(crate) fn is_this_program(&self) -> bool {
        self.is_this_program
    }

    /// Whether it is about to end by itself.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Uses of a file or block device by the kernel that may change it, or that fail if another writer changes it. With
/// `only_writers`, read-only loop devices do not count.
pub(crate) fn of_kernel(image: &Metadata, only_writers: bool) -> Vec<Holder> {
    let sysfs = Sysfs::of_system();
    if image.file_type().is_block_device() {
        let users = users_of_device(&sysfs, image.rdev());
        let users = users.into_iter().map(|how| Holder::new(format!("the kernel: {how}")));
        return users.chain(beside_device(&sysfs, image, only_writers)).collect();
    }
    let mut found = Vec::new();
    if swap_areas().iter().any(|path| is_same(path, image)) {
        found.push(Holder::new("the kernel, which swaps to it (swapoff)".into()));
    }
    for disk in sysfs.disks() {
        if shows(&sysfs, &disk, &[FileId::of(image)]) && !(only_writers && is_one(&disk.join("ro"))) {
            found.push(loop_device(&sysfs, &disk));
        }
    }
    found
}

/// Whether a disk is a loop device over one of these files or block devices, directly or through other devices.
fn shows(sysfs: &Sysfs, disk: &Path, files: &[FileId]) -> bool {
    let Some(number) = device_number(disk).filter(|_| sysfs.backing(disk).is_some()) else { return false };
    let below = sysfs.files_below(number);
    below.iter().filter_map(Backing::id).any(|below| files.iter().any(|file| below.is_same(file)))
}

/// Further uses by the kernel of a block device or of what lies below it: another loop device over the same file or
/// block device shows the same image, and a block device below a loop device may be mounted itself. Such a device
/// counts only if it is in use, because it may be left over from an earlier use.
fn beside_device(sysfs: &Sysfs, device: &Metadata, only_writers: bool) -> Vec<Holder> {
    let below = ids_below(sysfs, device);
    let mut found = Vec::new();
    for number in below.iter().filter_map(FileId::block_device) {
        // The loop below finds a loop device, with its name.
        if sysfs.backing(&sysfs.dir(number)).is_none() {
            let users = users_of_device(sysfs, number);
            found.extend(users.into_iter().map(|how| Holder::new(format!("the kernel: {how}, below the loop device"))));
        }
    }
    let own = sysfs.overlapping(device.rdev()).into_iter().map(FileId::of_block_device);
    let files: Vec<FileId> = below.into_iter().chain(own).collect();
    // Another partition of the same disk contains other bytes.
    let own_disk = sysfs.disk_number(device.rdev());
    for disk in sysfs.disks() {
        let Some(number) = device_number(&disk).filter(|number| Some(*number) != own_disk) else { continue };
        let is_harmless = only_writers && is_one(&disk.join("ro")) || users_of_device(sysfs, number).is_empty();
        if !is_harmless && shows(sysfs, &disk, &files) {
            found.push(loop_device(sysfs, &disk));
        }
    }
    found
}

/// Whether two files or block devices share bytes: they are the same, one lies on the other, or both lie on a third.
pub fn share_storage(one: &Metadata, other: &Metadata) -> bool {
    let sysfs = Sysfs::of_system();
    let all =
        |data: &Metadata| -> Vec<FileId> { ids_below(&sysfs, data).into_iter().chain([FileId::of(data)]).collect() };
    let others = all(other);
    all(one).iter().any(|file| others.iter().any(|other| file.is_same(other)))
}

fn loop_device(sysfs: &Sysfs, disk: &Path) -> Holder {
    let name = disk.file_name().unwrap_or_default().display();
    let users = device_number(disk).map(|number| users_of_device(sysfs, number)).unwrap_or_default();
    let is_leaving = users.is_empty() && is_one(&disk.join("loop/autoclear"));
    let how = if users.is_empty() { format!("losetup -d /dev/{name}") } else { users.join(", ") };
    Holder { is_leaving, ..Holder::new(format!("the kernel, by loop device /dev/{name} ({how})")) }
}

/// The files and block devices that a loop device stores its contents in, also if it lies below another device.
pub(crate) fn files_below(device: &Metadata) -> Vec<Backing> {
    if !device.file_type().is_block_device() {
        return Vec::new();
    }
    Sysfs::of_system().files_below(device.rdev())
}

fn ids_below(sysfs: &Sysfs, device: &Metadata) -> Vec<FileId> {
    if !device.file_type().is_block_device() {
        return Vec::new();
    }
    sysfs.files_below(device.rdev()).iter().filter_map(Backing::id).collect()
}

/// The uses of a block device or of a partition of it by the kernel.
fn users_of_device(sysfs: &Sysfs, device: u64) -> Vec<String> {
    let mut users = Vec::new();
    for part in sysfs.parts(device) {
        let Some(number) = device_number(&part) else { continue };
        users.extend(mounts_of(number).into_iter().map(|place| format!("mounted on {}", place.display())));
        let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| is_device(&data, number));
        users.extend(swap_areas().iter().any(is_it).then(|| "swapped to".to_owned()));
        users.extend(made_of(&part));
    }
    users
}

/// The numbers of the processes other than this one that have a file open, as far as they can be seen.
fn processes_with(image: &Metadata) -> Vec<u32> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|id| id.parse().ok()) else { continue };
        if id == std::process::id() {
            continue;
        }
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if files.map(|file| file.path()).any(|path| is_same(&path, image)) {
            found.push(id);
        }
    }
    found
}

/// Whether some processes have a file open, and this one descends from all of them.
pub(crate) fn are_callers(image: &Metadata) -> bool {
    let mut callers = Vec::new();
    let mut next = parent(std::process::id());
    while let Some(caller) = next.filter(|caller| !callers.contains(caller)) {
        callers.push(caller);
        next = parent(caller);
    }
    let open = processes_with(image);
    !open.is_empty() && open.iter().all(|process| callers.contains(process))
}

/// The process that started another one.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().filter(|parent| *parent != 0)
}

/// Programs other than this one that have a file open. If none can be seen, one entry without a name.
pub(crate) fn of_programs(image: &Metadata) -> Vec<Holder> {
    let mut found = Vec::new();
    for id in processes_with(image) {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        found.push(Holder::new(format!("{} (process {id})", name.trim())));
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

/// Whether a block device is read-only. The kernel lets it be opened for writing, but then each write fails.
pub(crate) fn is_read_only(metadata: &Metadata) -> bool {
    Sysfs::of_system().is_read_only(metadata)
}

/// The mount points of a device, as far as this process sees mounts.
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

/// Decodes a name from a table of the kernel, where spaces and the like are a backslash and three octal digits.
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
