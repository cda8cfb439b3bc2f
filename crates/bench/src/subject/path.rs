//! A directory, by system calls: the kernel's XFS, a FUSE mount, anything.
//!
//! Names are used relative to an open directory, as a careful program does. Attributes are used by path, which is the
//! only way without opening the file.

use super::{About, Counts, Target};
use crate::BenchError;
use crate::machine::{MountPoint, geometry_of_device, mount_point};
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xfskit_fuse::STATS_XATTR;

const STATS_BYTES: usize = 64 << 10;

/// An open directory.
pub(crate) struct OpenDir {
    path: PathBuf,
    fd: OwnedFd,
}

/// The source of a mount's counts.
enum Statistics {
    /// The file of a kernel mount.
    Kernel(PathBuf),
    /// The attribute of the root of xfskit's FUSE mount.
    Server(PathBuf),
    None,
}

/// A folder in a directory.
pub(crate) struct PathTarget {
    base: OpenDir,
    statistics: Statistics,
    mount: Option<MountPoint>,
}

fn open_dir(path: PathBuf) -> Result<OpenDir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::empty()).with_context(|| path.display().to_string())?;
    Ok(OpenDir { path, fd })
}

impl PathTarget {
    /// Makes a folder `name` in `dir` and works there.
    pub(crate) fn open(dir: &Path, name: &str) -> Result<Self> {
        let dir = dir.canonicalize().map_err(|_| BenchError::Missing(dir.into()))?;
        let path = dir.join(name);
        fs::create_dir(&path).map_err(|source| BenchError::NotWritable { path: dir.clone(), source })?;
        let mount = mount_point(&dir);
        let statistics = match &mount {
            Some(mount) if mount.kind == "xfs" => statistics_file(&mount.source),
            Some(mount) if mount.kind == "fuse.xfskit" && mount.source != crate::null::SOURCE => {
                Statistics::Server(mount.path.clone())
            }
            _ => Statistics::None,
        };
        Ok(Self { base: open_dir(path)?, statistics, mount })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.base.path
    }

    /// Whether the server of xfskit's FUSE mount makes changes durable at once.
    fn is_wsync(&self) -> bool {
        let Statistics::Server(root) = &self.statistics else { return false };
        server_figures(root).is_ok_and(|figures| figures["options"]["wsync"] == true)
    }

    /// Removes all files of the case if `clean` is set.
    pub(crate) fn close(self, clean: bool) -> Result<()> {
        if clean {
            fs::remove_dir_all(&self.base.path).with_context(|| self.base.path.display().to_string())?;
        }
        Ok(())
    }
}

fn statistics_file(source: &str) -> Statistics {
    // The source may be a link to the device, as with LVM.
    let device = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = PathBuf::from(format!("/sys/fs/xfs/{name}/stats/stats"));
    if path.exists() { Statistics::Kernel(path) } else { Statistics::None }
}

/// The kernel's statistics: each line a group with its numbers.
fn kernel_counts(path: &Path) -> Result<Counts> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let numbers = |group: &str| -> Option<Vec<u64>> {
        let line = text.lines().find_map(|line| line.strip_prefix(group))?;
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let (transactions, log) = (numbers("trans "), numbers("log "));
    let mut others = BTreeMap::new();
    if let Some(&[writes, _, _, forces, ..]) = log.as_deref() {
        others.insert("log_records".into(), writes);
        others.insert("log_forces".into(), forces);
    }
    Ok(Counts {
        transactions: transactions.and_then(|counts| Some(counts.first()? + counts.get(1)?)),
        log_bytes: log.and_then(|counts| Some(counts.get(1)? * 512)),
        others,
    })
}

/// The figures of xfskit's FUSE server.
fn server_figures(root: &Path) -> Result<serde_json::Value> {
    let mut value = vec![0; STATS_BYTES];
    let length = rustix::fs::getxattr(root, STATS_XATTR, &mut value[..])?;
    Ok(serde_json::from_slice(&value[..length])?)
}

/// The counts of xfskit's FUSE server.
pub(crate) fn server_counts(root: &Path) -> Result<Counts> {
    let figures = server_figures(root)?;
    let counters = figures["counters"].as_object().into_iter().flatten();
    let others: BTreeMap<String, u64> =
        counters.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect();
    let count = |name: &str| others.get(name).copied();
    Ok(Counts { transactions: count("transactions"), log_bytes: count("log_bytes"), others })
}

/// The requests that xfskit's FUSE server has answered, by kind.
pub(crate) fn server_requests(root: &Path) -> Result<BTreeMap<String, u64>> {
    let figures = server_figures(root)?;
    let requests = figures["requests"].as_object().into_iter().flatten();
    Ok(requests.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect())
}

fn path_of(dir: &OpenDir, name: &[u8]) -> PathBuf {
    dir.path.join(OsStr::from_bytes(name))
}

impl Target for PathTarget {
    type Dir = OpenDir;
    type File = PathBuf;
    type Listing = Dir;

    fn about(&self) -> About {
        let Some(mount) = &self.mount else {
            return About { how: "by system calls".into(), ..About::default() };
        };
        let xfs = mount.kind == "xfs";
        let durability = match mount.kind.as_str() {
            "xfs" => {
                "the kernel's delayed logging: the journal when the CIL is full, after 30 s or with a sync; a syncfs \
                      ends each phase, outside of its time; the loop device and tmpfs below have nothing to flush"
            }
            "fuse.xfskit" if self.is_wsync() => {
                "wsync in the server: names and attributes at once; a syncfs and an fsync end each phase, outside of \
                 its time"
            }
            "fuse.xfskit" => {
                "xfskit's delayed logging in the server; a syncfs and an fsync end each phase, outside of its time"
            }
            "tmpfs" => "none: it lies in memory",
            "fuse" if mount.source == "nothing" => "none: nothing is done",
            _ => "that of the filesystem; a syncfs ends each phase, outside of its time",
        };
        About {
            how: format!("by system calls on a mount of kind {}", mount.kind),
            geometry: geometry_of_device(&mount.source).unwrap_or_default(),
            options: mount.options.clone(),
            durability: if xfs && mount.options.contains("wsync") { "wsync: at once" } else { durability }.into(),
        }
    }

    fn base(&self) -> &OpenDir {
        &self.base
    }

    fn make_dir(&self, parent: &OpenDir, name: &[u8]) -> Result<OpenDir> {
        let path = path_of(parent, name);
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        open_dir(path)
    }

    fn create(&self, dir: &OpenDir, name: &[u8]) -> Result<u64> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&dir.fd, name, flags, Mode::from_bits_retain(0o644))?;
        Ok(0)
    }

    fn file(&self, dir: &OpenDir, name: &[u8], _: u64) -> PathBuf {
        path_of(dir, name)
    }

    fn renamed(&self, dir: &OpenDir, name: &[u8], _: PathBuf) -> PathBuf {
        path_of(dir, name)
    }

    fn stat(&self, dir: &OpenDir, name: &[u8]) -> Result<()> {
        rustix::fs::statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn ask_permission(&self, _: &PathBuf) -> Result<()> {
        Ok(())
    }

    fn ask_absent(&self, file: &PathBuf, name: &str) -> Result<()> {
        match rustix::fs::getxattr(file, name, &mut [0; 256][..]) {
            Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn unlink(&self, dir: &OpenDir, name: &[u8]) -> Result<()> {
        Ok(rustix::fs::unlinkat(&dir.fd, name, AtFlags::empty())?)
    }

    fn rename(&self, from: (&OpenDir, &[u8]), to: (&OpenDir, &[u8])) -> Result<()> {
        Ok(rustix::fs::renameat(&from.0.fd, from.1, &to.0.fd, to.1)?)
    }

    fn open_list(&self, dir: &OpenDir) -> Result<Dir> {
        Ok(Dir::read_from(&dir.fd)?)
    }

    fn next_names(&self, listing: &mut Dir, most: usize) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        while names.len() < most {
            let Some(entry) = listing.read() else { break };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    fn set_xattr(&self, file: &PathBuf, name: &str, value: &[u8]) -> Result<()> {
        Ok(rustix::fs::setxattr(file, name, value, XattrFlags::empty())?)
    }

    fn get_xattr(&self, file: &PathBuf, name: &str, buffer: &mut [u8]) -> Result<usize> {
        Ok(rustix::fs::getxattr(file, name, buffer)?)
    }

    fn remove_xattr(&self, file: &PathBuf, name: &str) -> Result<()> {
        Ok(rustix::fs::removexattr(file, name)?)
    }

    fn list_xattrs(&self, file: &PathBuf, buffer: &mut [u8]) -> Result<usize> {
        Ok(rustix::fs::listxattr(file, buffer)?)
    }

    fn write(&self, file: &PathBuf, offset: u64, data: &[u8]) -> Result<()> {
        Ok(fs::OpenOptions::new().write(true).open(file)?.write_all_at(data, offset)?)
    }

    fn read(&self, file: &PathBuf, offset: u64, buffer: &mut [u8]) -> Result<()> {
        fs::File::open(file)?.read_at(buffer, offset)?;
        Ok(())
    }

    fn fsync(&self, file: &PathBuf) -> Result<()> {
        Ok(fs::File::open(file)?.sync_all()?)
    }

    fn statfs(&self) -> Result<()> {
        rustix::fs::fstatfs(&self.base.fd)?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.base.fd)?;
        if matches!(self.statistics, Statistics::Server(_)) {
            // The kernel does not pass a syncfs on to a FUSE server, but it passes on an fsync of a directory.
            rustix::fs::fsync(&self.base.fd)?;
        }
        Ok(())
    }

    fn counts(&self) -> Result<Counts> {
        match &self.statistics {
            Statistics::Kernel(path) => kernel_counts(path),
            Statistics::Server(root) => server_counts(root),
            Statistics::None => Ok(Counts::default()),
        }
    }
}
