//! contents: one large file, written and read in large pieces, then overwritten and read in pages at random places.
//!
//! Each phase of writes ends with an fsync, inside its time. The engine in this process is compared with `O_DIRECT` on
//! a loop mount, because it has no cache of contents; its FUSE mount is compared with the kernel's mount. Before reads,
//! the file is dropped from the cache.

use super::tables::columns;
use crate::BenchError;
use crate::fuse_mount::FuseMount;
use crate::lab::{Lab, Run};
use crate::loop_mount::{LoopMount, obstacle};
use crate::measure::Phase;
use crate::report::{BarSeries, Cell, Goal, Plot, Section, Table};
use crate::scratch::IMAGE;
use crate::subject::About;
use anyhow::{Result, ensure};
use rustix::fs::OFlags;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_ondisk::InodeNumber;

const FILE_BYTES: u64 = 3 << 30;
const QUICK_FILE_BYTES: u64 = 512 << 20;
const REQUEST: usize = 1 << 20;
const PAGE: usize = 4096;
const RANDOM: usize = 200_000;

/// A file that is written and read.
trait File {
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    fn sync(&self) -> Result<()>;
    /// Drops the file's contents from the cache.
    fn forget(&self) -> Result<()>;
}

struct InProcess {
    filesystem: Volume,
    inode: InodeNumber,
}

impl File for InProcess {
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.filesystem.write_at(self.inode, offset, data)?)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let count = self.filesystem.read_at(self.inode, offset, buffer)?;
        ensure!(count == buffer.len(), "the file ends early");
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.filesystem.fsync(self.inode)?)
    }

    fn forget(&self) -> Result<()> {
        Ok(())
    }
}

struct Mounted(fs::File);

impl Mounted {
    fn open(dir: &Path, flags: OFlags) -> Result<Self> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).custom_flags(flags.bits() as i32);
        Ok(Self(options.open(dir.join("file"))?))
    }
}

impl File for Mounted {
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.0.write_all_at(data, offset)?)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        Ok(self.0.read_exact_at(buffer, offset)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.sync_all()?)
    }

    fn forget(&self) -> Result<()> {
        Ok(rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed)?)
    }
}

struct Sizes {
    file: u64,
    random: usize,
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let sizes = match lab.options.quick {
        true => Sizes { file: QUICK_FILE_BYTES, random: RANDOM / 10 },
        false => Sizes { file: FILE_BYTES, random: RANDOM },
    };
    let image = lab.scratch.make_image(IMAGE, image_bytes(&sizes))?;
    // All memory of the image is touched before the first side uses it.
    lab.scratch.touch_all(&image)?;
    let mut runs: Vec<Run> = Vec::new();
    for round in 1..=lab.rounds() {
        for side in SIDES {
            ensure!(!lab.watch.stopped(), BenchError::Interrupted);
            if let Some(run) = one(lab, side, &sizes)? {
                match runs.iter_mut().find(|known| known.side == run.side) {
                    Some(known) => crate::lab::keep_best(known, run, round),
                    None => runs.push(run),
                }
            }
        }
    }
    let mut section = Section {
        name: "contents".into(),
        title: "contents: one file, written and read".into(),
        about: format!(
            "A file of {} MiB in requests of 1 MiB, then {} pages at random places; each phase ends with an fsync, \
             inside its time. Best of {} rounds.",
            sizes.file >> 20,
            sizes.random,
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(table(&runs));
    section.plots.push(plot(&runs));
    section.goals = goals(&runs);
    section.notes.extend(obstacle().map(|why| format!("The kernel's side is missing: {why}.")));
    section.runs = runs;
    Ok(section)
}

fn image_bytes(sizes: &Sizes) -> u64 {
    sizes.file * 5 / 4 + (1 << 30)
}

const OURS: &str = "in-process";
const MOUNT: &str = "through our mount";
const MOUNT_DIRECT: &str = "through our mount, O_DIRECT";
const KERNEL: &str = "kernel's mount";
const KERNEL_DIRECT: &str = "kernel, O_DIRECT";
const SIDES: [&str; 5] = [OURS, KERNEL_DIRECT, MOUNT_DIRECT, MOUNT, KERNEL];
/// What is compared, with the ratios that are wanted of each phase.
const PAIRS: [(&str, &str, Option<[f64; 4]>); 3] = [
    (OURS, KERNEL_DIRECT, None),
    (MOUNT, KERNEL, Some([1.0, 0.9, 1.0, 1.0])),
    (MOUNT_DIRECT, KERNEL_DIRECT, Some([1.0, 0.9, 1.0, 1.0])),
];

fn one(lab: &Lab<'_>, side: &str, sizes: &Sizes) -> Result<Option<Run>> {
    let image = || lab.scratch.make_image(IMAGE, image_bytes(sizes));
    let open = |image: &Path| -> Result<Volume> {
        Ok(Volume::open(Arc::new(FileDevice::open(image, Access::Write)?), MountOptions::default())?)
    };
    let dir: PathBuf = lab.scratch.file("mount");
    let kernel = side.starts_with("kernel");
    if kernel && obstacle().is_some() {
        return Ok(None);
    }
    lab.watch.begin(side, 4);
    let image = image()?;
    let flags = if side.ends_with("O_DIRECT") { OFlags::DIRECT } else { OFlags::empty() };
    let phases = match side {
        OURS => {
            let filesystem = open(&image)?;
            let inode = filesystem.create(filesystem.root(), b"file", &NewFile::file(0o644), &Caller::root())?.inode;
            let file = InProcess { filesystem, inode };
            let phases = phases(lab, &file, sizes);
            file.filesystem.unmount()?;
            phases?
        }
        MOUNT | MOUNT_DIRECT => {
            let mount = FuseMount::new(open(&image)?, &dir, &xfskit_fuse::Options::default())?;
            let phases = Mounted::open(&dir, flags).and_then(|file| phases(lab, &file, sizes));
            mount.unmount()?;
            phases?
        }
        _ => {
            let mount = LoopMount::new(&image, None, &dir)?;
            let phases = Mounted::open(&dir, flags).and_then(|file| phases(lab, &file, sizes));
            mount.unmount()?;
            phases?
        }
    };
    let target = About { how: side.into(), ..About::default() };
    Ok(Some(Run { case: "one file".into(), side: side.into(), threads: 1, rounds: 1, target, phases, engine: false }))
}

/// Bytes that begin at a multiple of a page, as `O_DIRECT` needs them.
fn aligned(storage: &mut Vec<u8>) -> &mut [u8] {
    storage.resize(REQUEST + PAGE, 7);
    let start = storage.as_ptr().align_offset(PAGE);
    &mut storage[start..start + REQUEST]
}

fn phases(lab: &Lab<'_>, file: &dyn File, sizes: &Sizes) -> Result<Vec<Phase>> {
    let mut storage = Vec::new();
    let buffer = aligned(&mut storage);
    let offsets = || (0..sizes.file).step_by(REQUEST);
    let place = |n: usize| crate::names::mix(n as u64) % (sizes.file / PAGE as u64) * PAGE as u64;
    let mut phases = Vec::new();
    let mut timed = |name: &str, operations: u64, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        ensure!(!lab.watch.stopped(), BenchError::Interrupted);
        let start = Instant::now();
        work()?;
        let wall_seconds = start.elapsed().as_secs_f64();
        lab.watch.advance(1);
        phases.push(Phase { name: name.into(), operations, wall_seconds, ..Phase::default() });
        Ok(())
    };
    let requests = sizes.file / REQUEST as u64;
    timed("write", requests, &mut || {
        offsets().try_for_each(|offset| file.write(offset, buffer))?;
        file.sync()
    })?;
    file.forget()?;
    timed("read", requests, &mut || offsets().try_for_each(|offset| file.read(offset, buffer)))?;
    timed("overwrite 4 KiB", sizes.random as u64, &mut || {
        (0..sizes.random).try_for_each(|n| file.write(place(n), &buffer[..PAGE]))?;
        file.sync()
    })?;
    file.forget()?;
    timed("read 4 KiB", sizes.random as u64, &mut || {
        (0..sizes.random).try_for_each(|n| file.read(place(n), &mut buffer[..PAGE]))
    })?;
    Ok(phases)
}

/// MiB in a second.
fn rate(phase: &Phase) -> f64 {
    let bytes = if phase.name.ends_with("KiB") { PAGE } else { REQUEST };
    phase.rate() * bytes as f64 / (1 << 20) as f64
}

fn table(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for (ours, theirs, _) in PAIRS {
        let find = |side: &str| runs.iter().find(|run| run.side == side);
        let Some(run) = find(ours) else { continue };
        for phase in &run.phases {
            let other = find(theirs).and_then(|run| run.phase(&phase.name)).map(rate);
            rows.push(vec![
                Cell::text(format!("{}, {ours}", phase.name)),
                Cell::number(rate(phase), 0),
                Cell::number(other, 0),
                Cell::ratio(other.map(|other| rate(phase) / other)),
            ]);
        }
    }
    Table { title: "MiB per second".into(), columns: columns(["", "xfskit", "the kernel's", "ratio"]), rows }
}

fn goals(runs: &[Run]) -> Vec<Goal> {
    let find = |side: &str| runs.iter().find(|run| run.side == side);
    let mut goals = Vec::new();
    for (ours, theirs, wanted) in PAIRS {
        let Some(((ours, theirs), wanted)) = find(ours).zip(find(theirs)).zip(wanted) else { continue };
        for ((phase, other), wanted) in ours.phases.iter().zip(&theirs.phases).zip(wanted) {
            let what = format!("{}, {}, rate over the kernel's", phase.name, ours.side);
            goals.push(Goal::at_least(what, wanted, rate(phase) / rate(other)));
        }
    }
    goals
}

fn plot(runs: &[Run]) -> Plot {
    let series = |run: &Run| BarSeries {
        name: run.side.clone(),
        values: run.phases.iter().map(|phase| Some(rate(phase))).collect(),
    };
    Plot::Bars {
        title: "Contents".into(),
        unit: "MiB/s".into(),
        groups: runs.first().into_iter().flat_map(|run| run.phases.iter().map(|phase| phase.name.clone())).collect(),
        series: runs.iter().map(series).collect(),
    }
}
