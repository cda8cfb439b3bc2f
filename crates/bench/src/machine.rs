//! What a reader of a report has to know of the machine and of the images.

use serde::Serialize;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use xfskit_ondisk::features::{Incompat, RoCompat};
use xfskit_ondisk::{RawSuperblock, Superblock};

/// The machine, and how busy it was before the first phase.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub virtual_machine: bool,
    pub load_before: String,
    pub xfskit: String,
    pub debug_build: bool,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        Self {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            kernel: kernel_release(),
            virtual_machine: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load_before: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            xfskit: env!("CARGO_PKG_VERSION").into(),
            debug_build: cfg!(debug_assertions),
        }
    }

    /// The machine in lines.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let kind = if self.virtual_machine { ", virtual" } else { "" };
        let build = if self.debug_build { " (debug build: its times mean nothing)" } else { "" };
        vec![
            ("machine".into(), format!("{} × {}{kind}", self.cpus, self.cpu)),
            ("memory".into(), format!("{:.1} GiB", self.memory_bytes as f64 / (1u64 << 30) as f64)),
            ("kernel".into(), self.kernel.clone()),
            ("xfskit".into(), format!("{}{build}", self.xfskit)),
            ("load before".into(), self.load_before.clone()),
        ]
    }
}

/// Bytes of memory that the machine has; 0 if that is not known.
pub(crate) fn memory_bytes() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = table.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The kernel's release.
pub(crate) fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// A line of the table of mounts.
#[derive(Clone, Debug)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) options: String,
}

/// The mount that a directory is in.
pub(crate) fn mount_point(dir: &Path) -> Option<MountPoint> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // If mounts lie over each other, the last one is visible.
    table.lines().filter_map(parse_mount).filter(|mount| dir.starts_with(&mount.path)).reduce(|best, mount| {
        if mount.path.components().count() >= best.path.components().count() { mount } else { best }
    })
}

fn parse_mount(line: &str) -> Option<MountPoint> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(4);
    let (path, flags) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, source, options) = (right.next()?, right.next()?, right.next().unwrap_or_default());
    Some(MountPoint {
        path: unescape(path).into(),
        kind: kind.into(),
        source: unescape(source),
        options: format!("{flags},{options}"),
    })
}

/// Decodes blanks, tabs and backslashes, which the table has as octal numbers.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// The geometry in the words of mkfs.xfs's options.
pub(crate) fn geometry(raw: &RawSuperblock) -> String {
    let incompat = Incompat::from_bits_truncate(raw.incompat.get());
    let ro_compat = RoCompat::from_bits_truncate(raw.ro_compat.get());
    let block = u64::from(raw.block_size.get());
    let mib = |blocks: u64| (blocks * block) >> 20;
    format!(
        "{} MiB, agcount={}, bsize={block}, isize={}, log {} of {} MiB, parent={}, rmapbt={}, reflink={}, finobt={}",
        mib(raw.data_blocks.get()),
        raw.ag_count.get(),
        raw.inode_size.get(),
        if raw.log_start.get() == 0 { "external" } else { "internal" },
        mib(raw.log_blocks.get().into()),
        u8::from(incompat.contains(Incompat::PARENT)),
        u8::from(ro_compat.contains(RoCompat::RMAPBT)),
        u8::from(ro_compat.contains(RoCompat::REFLINK)),
        u8::from(ro_compat.contains(RoCompat::FINOBT)),
    )
}

/// The superblock at the beginning of a device or image file, if it can be read.
pub(crate) fn superblock_of(path: &Path) -> Option<Superblock> {
    let mut sector = vec![0; 4096];
    fs::File::open(path).ok()?.read_exact(&mut sector).ok()?;
    Superblock::decode(&sector).ok()
}

pub(crate) fn geometry_of_device(source: &str) -> Option<String> {
    superblock_of(Path::new(source)).map(|superblock| geometry(superblock.raw()))
}

/// Whether an image, or the image below a directory, has parent pointers; `None` if it cannot be read.
pub(crate) fn has_parent(path: &Path) -> Option<bool> {
    let superblock = if path.is_dir() {
        let mount = mount_point(&path.canonicalize().ok()?)?;
        superblock_of(Path::new(&mount.source))?
    } else {
        superblock_of(path)?
    };
    Some(superblock.incompat().contains(Incompat::PARENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_understood() {
        let mount = parse_mount("36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - xfs /dev/loop0 rw,logbufs=8").unwrap();
        assert_eq!((mount.path.to_str(), mount.kind.as_str()), (Some("/mnt/a b"), "xfs"));
        assert_eq!((mount.source.as_str(), mount.options.as_str()), ("/dev/loop0", "rw,noatime,rw,logbufs=8"));
        assert!(parse_mount("nonsense").is_none());
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mount_point(Path::new("/proc")).is_some_and(|mount| mount.kind == "proc"));
    }
}
