//! `cp DISK#PART FILE`, and back: a whole filesystem, bit for bit, with its journal as it is.
//!
//! ```text
//! out   a new file, sparse, that gets its name when it is complete and compared
//! back  over a volume of the same size with the same filesystem: only blocks that differ are written, then compared
//! ```
//! So a program that reads no virtual disks or logical volumes (xfs_repair, xfs_metadump) can work on the filesystem.
//! A copy back cannot be taken back: one that is cut off leaves a part of each, and is begun anew.

use crate::args::CpArgs;
use crate::args::copy_operand::CopyOperand;
use crate::interrupt;
use crate::open::files::Files;
use crate::open::new_file::NewFile;
use crate::open::paths::shown;
use crate::open::policy;
use crate::open::session::{Confined, Session};
use crate::open::unread::is_plain;
use crate::output::causes::Usage;
use crate::output::error::{Context, Result, failed};
use crate::output::progress::CopyBar;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::probe::{Kind, disk_format};
use xfskit_device::{Access, BlockDevice, FileDevice, InUse, OpenError};
use xfskit_disk::Unnamed;
use xfskit_ondisk::Superblock;
use xfskit_transfer::Progress;

const CHUNK_BYTES: usize = 1 << 20;
/// What is a hole in the copy if it is zeros.
const HOLE_BYTES: usize = 64 << 10;

/// The source and the target, if both are whole filesystems: one of them is a part of a disk or a virtual disk, and
/// neither is a path in an image.
pub fn operands(args: &CpArgs) -> Option<(PathBuf, PathBuf)> {
    let [source, target] = &args.paths[..] else { return None };
    let [CopyOperand::Host(source), CopyOperand::Host(target)] = [source, target].map(|path| CopyOperand::parse(path))
    else {
        return None;
    };
    let is_volume = |path: &PathBuf| !path.is_dir() && !is_plain(path).unwrap_or(true);
    (is_volume(&source) || is_volume(&target)).then_some((source, target))
}

/// Runs the command.
pub fn run(session: &Session, args: &CpArgs, source: &Path, target: &Path) -> Result<()> {
    let of_trees = [
        ("-r", args.recursive),
        ("-p", args.preserve),
        ("-a", args.archive),
        ("-n", args.no_clobber),
        ("--exclude", !args.exclude.is_empty()),
        ("--no-xattrs", args.no_xattrs),
        ("--owner", args.owner.is_some()),
        ("--logdev", args.logdev.is_some()),
        ("--norecovery", args.no_recovery),
    ];
    if let Some((option, _)) = of_trees.iter().find(|(_, is_given)| *is_given) {
        return Err(Usage(format!("{option} is for files in images; a volume is copied as a whole")).into());
    }
    if target.is_dir() {
        return Err(Usage(format!("{}: a folder; name the file for the volume", target.display())).into());
    }
    if is_metadump(source) {
        let what =
            "a metadump has no contents of files, which would be zeros in a copy; xfs_mdrestore makes an image of it";
        return Err(Usage(format!("{}: {what}", source.display())).into());
    }
    interrupt::watch()?;
    session.sandbox.plan(policy::of_volumes(source, target));
    let reading = Side::open(session, source, Access::Read)?;
    // A new file needs no device.
    let is_new = is_plain(target)? && !target.exists();
    let writing = if is_new { None } else { Some(Side::open(session, target, Access::Write)?) };
    let confined = session.confine()?;
    let from = reading.device(confined, source)?;
    let copy = Copy { from, bar: CopyBar::new(&session.output, "copying") };
    match writing {
        None => copy.write_file(target, None),
        Some(Side::Plain(held)) if held.metadata().is_ok_and(|data| data.is_file()) => {
            if held.size_bytes() > 0 && !args.force {
                return Err(Usage(format!("{}: it is not empty; -f replaces it", target.display())).into());
            }
            copy.write_file(target, Some(&held))
        }
        Some(side) => {
            let to = side.device(confined, target)?;
            copy.verify_target(&*to, target, args.force)?;
            copy.write_volume(&*to, target)
        }
    }
}

/// A file or device as it is, or the files of a disk.
enum Side {
    Plain(Arc<FileDevice>),
    Disk(Files),
}

impl Side {
    fn open(session: &Session, path: &Path, access: Access) -> Result<Self> {
        Ok(match is_plain(path)? {
            true => Self::Plain(Arc::new(session.open_device(path, access)?)),
            false => Self::Disk(Files::open(session, path, access)?),
        })
    }

    /// The device, which nobody else uses: what another one changes meanwhile would be copied in part.
    fn device(self, confined: Confined<'_>, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        let (device, holders): (Arc<dyn BlockDevice>, _) = match self {
            Self::Plain(device) => (device.clone(), device.holders().to_vec()),
            Self::Disk(files) => {
                let opened = files.choose(confined, Unnamed::OnlyXfs)?;
                (opened.device, opened.holders)
            }
        };
        if holders.is_empty() { Ok(device) } else { Err(OpenError::Busy(InUse::by(path, holders)).into()) }
    }
}

/// Whether what an operand names is in a metadump.
fn is_metadump(operand: &Path) -> bool {
    let is_one = |file: PathBuf| {
        let mut first = [0; 4];
        let read = std::fs::File::open(file).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut first));
        read.is_ok() && xfskit_disk::is_metadump(&first)
    };
    crate::operand::files(operand).into_iter().any(is_one)
}

struct Copy<'s> {
    from: Arc<dyn BlockDevice>,
    bar: CopyBar<'s>,
}

impl Copy<'_> {
    /// Refuses a target that has another size, or another filesystem.
    fn verify_target(&self, to: &dyn BlockDevice, target: &Path, force: bool) -> Result<()> {
        let name = shown(target.as_os_str());
        let (from_bytes, to_bytes) = (self.from.size_bytes(), to.size_bytes());
        if from_bytes != to_bytes {
            return Err(Usage(format!("{name}: it has {to_bytes} bytes, and the source {from_bytes}")).into());
        }
        if force {
            return Ok(());
        }
        let identity = |device: &dyn BlockDevice| -> Result<_> {
            let format = disk_format(device)?;
            let mut sector = vec![0; 4096.min(device.size_bytes() as usize)];
            device.read(0, &mut sector)?;
            Ok((format, Superblock::decode(&sector).ok().map(|superblock| superblock.raw().uuid)))
        };
        let (own, other) = (identity(&*self.from)?, identity(to).with_context(|| name.clone())?);
        if own.0.is_none() || own != other {
            let has = other.0.map_or("nothing that is known", Kind::text);
            let what = if own.0 == other.0 { "another filesystem of its kind" } else { has };
            return Err(Usage(format!(
                "{name}: it holds {what}, and not the filesystem of the source; -f overwrites it"
            ))
            .into());
        }
        Ok(())
    }

    /// Calls `each` with each part of the source; `None` stands for zeros that need not be read.
    fn for_each(&self, mut each: impl FnMut(u64, usize, Option<&[u8]>) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut at, end) = (0, self.from.size_bytes());
        while at < end {
            interrupt::check()?;
            let length = (end - at).min(CHUNK_BYTES as u64) as usize;
            if self.from.may_hold_data(at, length as u64) {
                self.from
                    .read(at, &mut buffer[..length])
                    .with_context(|| format!("reading byte {at} of the source"))?;
                each(at, length, Some(&buffer[..length]))?;
            } else {
                each(at, length, None)?;
            }
            at += length as u64;
        }
        Ok(())
    }

    fn write_file(&self, target: &Path, replaced: Option<&FileDevice>) -> Result<()> {
        let name = || shown(target.as_os_str());
        let old = replaced.map(FileDevice::metadata).transpose().with_context(name)?;
        let new = NewFile::new_beside(target)?;
        new.file().set_len(self.from.size_bytes()).with_context(name)?;
        self.for_each(|at, length, bytes| {
            let parts = (0..).step_by(HOLE_BYTES).zip(bytes.unwrap_or_default().chunks(HOLE_BYTES));
            for (offset, part) in parts.filter(|(_, part)| part.iter().any(|&byte| byte != 0)) {
                new.file().write_all_at(part, at + offset as u64).with_context(name)?;
            }
            self.bar.advance(0, length as u64);
            Ok(())
        })?;
        new.file().sync_data().with_context(name)?;
        self.compare(target, &|at, buffer| new.file().read_exact_at(buffer, at))?;
        new.put_in_place_durably(target, old.as_ref()).with_context(name)?;
        self.bar.finish();
        Ok(())
    }

    fn write_volume(&self, to: &dyn BlockDevice, target: &Path) -> Result<()> {
        let name = || shown(target.as_os_str());
        let zeros = vec![0; CHUNK_BYTES];
        let mut there = vec![0; CHUNK_BYTES];
        self.for_each(|at, length, bytes| {
            let bytes = bytes.unwrap_or(&zeros[..length]);
            to.read(at, &mut there[..length]).with_context(name)?;
            let parts = (0..length).step_by(HOLE_BYTES).map(|start| start..(start + HOLE_BYTES).min(length));
            for part in parts.filter(|part| bytes[part.clone()] != there[part.clone()]) {
                to.write(at + part.start as u64, &bytes[part]).with_context(name)?;
            }
            self.bar.advance(0, length as u64);
            Ok(())
        })?;
        to.flush().with_context(name)?;
        self.compare(target, &|at, buffer| to.read(at, buffer))?;
        self.bar.finish();
        Ok(())
    }

    /// Reads the copy back.
    fn compare(&self, target: &Path, read: &dyn Fn(u64, &mut [u8]) -> std::io::Result<()>) -> Result<()> {
        let zeros = vec![0; CHUNK_BYTES];
        let mut copied = vec![0; CHUNK_BYTES];
        self.for_each(|at, length, bytes| {
            read(at, &mut copied[..length]).with_context(|| shown(target.as_os_str()))?;
            match bytes.unwrap_or(&zeros[..length]) == &copied[..length] {
                true => Ok(()),
                false => Err(failed!("{}: byte {at} and on does not read back as it was written", target.display())),
            }
        })
    }
}
