//! Block devices as sysfs shows them: their numbers, what lies below them, and what lies on them.
//!
//! Source of facts: Documentation/ABI/*/sysfs-block*.

use crate::loop_device::{FileId, file_below};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most layers of devices on devices that are followed.
const MAX_LAYERS: usize = 8;

/// The file or block device below a loop device.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    /// The name that it had when the loop device was made. It may be gone, or another file's.
    pub(crate) path: PathBuf,
    /// What the loop device itself reports, if this process may ask it.
    file: Option<FileId>,
}

impl Backing {
    /// Which file it is, as far as this process can find out.
    pub(crate) fn id(&self) -> Option<FileId> {
        self.file.or_else(|| fs::metadata(&self.path).ok().map(|file| FileId::of(&file)))
    }
}

/// Where sysfs and the nodes of devices are.
pub(crate) struct Sysfs {
    sys: PathBuf,
    dev: PathBuf,
}

impl Sysfs {
    /// This machine's.
    pub(crate) fn of_system() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }

    /// The folders of all disks, loop devices and mapped devices.
    pub(crate) fn disks(&self) -> Vec<PathBuf> {
        let dirs = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        dirs.map(|entry| entry.path()).collect()
    }

    /// The folder of a block device.
    pub(crate) fn dir(&self, device: u64) -> PathBuf {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        self.sys.join(format!("dev/block/{major}:{minor}"))
    }

    /// The file that a disk shows, if it is a loop device.
    pub(crate) fn backing(&self, disk: &Path) -> Option<Backing> {
        let mut name = fs::read(disk.join("loop/backing_file")).ok()?;
        name.pop_if(|last| *last == b'\n');
        // A link in dev/block does not have the name of the device.
        let node = disk.canonicalize().ok()?.file_name().map(|name| self.dev.join(name));
        let number = device_number(disk);
        let file = node.zip(number).and_then(|(node, number)| file_below(&node, number));
        Some(Backing { path: OsString::from_vec(name).into(), file })
    }

    /// The files and block devices that loop devices store their contents in: those of the loop devices below a block
    /// device, or of the device itself if it is a loop device; and what lies below these block devices.
    pub(crate) fn files_below(&self, device: u64) -> Vec<Backing> {
        let mut found = Vec::new();
        self.add_files_below(&self.dir(device), MAX_LAYERS, &mut found);
        found
    }

    fn add_files_below(&self, dir: &Path, layers_left: usize, found: &mut Vec<Backing>) {
        let Ok(dir) = dir.canonicalize() else { return };
        let disk = disk_of(&dir);
        let backing = self.backing(disk);
        let device = backing.as_ref().and_then(Backing::id).and_then(|id| id.block_device());
        found.extend(backing);
        if layers_left > 0 {
            if let Some(device) = device {
                self.add_files_below(&self.dir(device), layers_left - 1, found);
            }
            for below in fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten() {
                self.add_files_below(&below.path(), layers_left - 1, found);
            }
        }
    }

    /// A block device, and the disk or the partitions that share its bytes.
    pub(crate) fn overlapping(&self, device: u64) -> Vec<u64> {
        let parts = self.parts(device).iter().filter_map(|part| device_number(part)).collect::<Vec<_>>();
        std::iter::once(device).chain(parts).chain(self.disk_number(device)).collect()
    }

    /// The number of the disk that a block device is, or is a partition of.
    pub(crate) fn disk_number(&self, device: u64) -> Option<u64> {
        device_number(disk_of(&self.dir(device).canonicalize().ok()?))
    }

    /// The folders of a block device and of its partitions.
    pub(crate) fn parts(&self, device: u64) -> Vec<PathBuf> {
        let dir = self.dir(device);
        let below = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let partitions: Vec<PathBuf> = below.filter(|path| path.join("partition").exists()).collect();
        std::iter::once(dir).chain(partitions).collect()
    }

    /// The unit that a block device writes atomically, in bytes.
    pub(crate) fn sector_bytes(&self, device: u64) -> Option<usize> {
        let dir = self.dir(device).canonicalize().ok()?;
        let text = fs::read_to_string(disk_of(&dir).join("queue/physical_block_size")).ok()?;
        text.trim().parse().ok().filter(|bytes: &usize| bytes.is_power_of_two() && *bytes >= 512)
    }

    /// Whether a block device is read-only. The kernel lets it be opened for writing, but then each write fails.
    pub(crate) fn is_read_only(&self, device: &Metadata) -> bool {
        device.file_type().is_block_device() && is_one(&self.dir(device.rdev()).join("ro"))
    }
}

/// The folder of the disk that a device is, or is a partition of: a partition is a folder of its disk.
fn disk_of(dir: &Path) -> &Path {
    if dir.join("partition").exists() { dir.parent().unwrap_or(dir) } else { dir }
}

/// Devices that are made of the one in this folder, by names that a person knows.
pub(crate) fn made_of(part: &Path) -> Vec<String> {
    let holders = fs::read_dir(part.join("holders")).into_iter().flatten().flatten();
    let describe = |holder: fs::DirEntry| {
        let name = fs::read_to_string(holder.path().join("dm/name")).unwrap_or_default();
        format!("part of /dev/{} {}", holder.file_name().display(), name.trim()).trim_end().to_owned()
    };
    holders.map(describe).collect()
}

/// The number of the device in this folder.
pub(crate) fn device_number(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a file contains the text 1.
pub(crate) fn is_one(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine whose loop device shows a file and is half of a mapped device, and whose disk has a partition that is
    /// the other half.
    fn machine(dir: &Path) -> Sysfs {
        let make = |path: &str, text: &str| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let file = dir.join("a.img");
        fs::write(&file, "").unwrap();
        make("block/loop0/dev", "7:0\n");
        make("block/loop0/loop/backing_file", &format!("{}\n", file.display()));
        make("block/sda/dev", "8:0\n");
        make("block/sda/ro", "1\n");
        make("block/sda/sda1/dev", "8:1\n");
        make("block/sda/sda1/partition", "1\n");
        make("block/dm-0/dev", "254:0\n");
        make("block/dm-0/dm/name", "volume\n");
        for folder in ["block/loop0/holders", "block/sda/sda1/holders", "block/dm-0/slaves", "dev/block"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let link = |to: &str, path: &str| symlink(dir.join(to), dir.join(path)).unwrap();
        link("block/dm-0", "block/loop0/holders/dm-0");
        link("block/dm-0", "block/sda/sda1/holders/dm-0");
        link("block/loop0", "block/dm-0/slaves/loop0");
        link("block/sda/sda1", "block/dm-0/slaves/sda1");
        for (number, path) in
            [("7:0", "block/loop0"), ("8:0", "block/sda"), ("8:1", "block/sda/sda1"), ("254:0", "block/dm-0")]
        {
            link(path, &format!("dev/block/{number}"));
        }
        Sysfs { sys: dir.into(), dev: dir.join("nodes") }
    }

    /// This kernel may have no device mapper, so the test builds the files that sysfs has for mapped devices.
    #[test]
    fn mapped_devices_are_followed_in_both_directions() {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = machine(dir.path());
        let number = |major, minor| rustix::fs::makedev(major, minor);
        let file = FileId::of(&fs::metadata(dir.path().join("a.img")).unwrap());
        for device in [number(7, 0), number(254, 0)] {
            let below = sysfs.files_below(device);
            let [backing] = below.as_slice() else { panic!("{below:?}") };
            assert!(backing.id().unwrap().is_same(&file));
        }
        assert!(sysfs.files_below(number(8, 0)).is_empty());
        let users = |device| sysfs.parts(device).iter().flat_map(|part| made_of(part)).collect::<Vec<_>>();
        for device in [number(7, 0), number(8, 0), number(8, 1)] {
            assert_eq!(users(device), ["part of /dev/dm-0 volume"]);
        }
        assert!(users(number(254, 0)).is_empty());
        assert_eq!(sysfs.disks().len(), 3);
        assert_eq!(sysfs.disk_number(number(8, 1)), Some(number(8, 0)));
        for device in [number(8, 0), number(8, 1)] {
            let overlapping = sysfs.overlapping(device);
            assert!(overlapping.contains(&number(8, 0)) && overlapping.contains(&number(8, 1)), "{overlapping:?}");
        }
        assert_eq!(device_number(&dir.path().join("block/sda/sda1")), Some(number(8, 1)));
        assert!(is_one(&sysfs.dir(number(8, 0)).join("ro")) && !is_one(&sysfs.dir(number(7, 0)).join("ro")));
    }
}
