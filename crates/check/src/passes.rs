//! The passes, in order, and the threads that run them.

use crate::ag::{self, AgState};
use crate::context::Context;
use crate::dir::{self, Directories};
use crate::inode::Gathered;
use crate::inodes;
use crate::log::{self, LogView};
use crate::names;
use crate::report::{Consequence, Fault, Faults, LogCondition, Report, Summary};
use crate::superblock::{self, Counters};
use crate::table::AgInodes;
use crate::usage::{self, Claims, Usage};
use crate::{CheckError, CheckOptions, Progress};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xfskit_device::BlockDevice;
use xfskit_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC};
use xfskit_ondisk::{
    AgInode, AgNumber, BASIC_BLOCK_BYTES, DiskAddress, Geometry, InodeNumber, Superblock, SuperblockError,
};
use zerocopy::FromBytes;

/// Images with fewer inodes are checked by one thread.
const THREADS_FROM_INODES: u64 = 20_000;

/// Largest sector that a superblock may name.
const MAX_SECTOR: usize = 32768;

/// Reads the superblock. If it is damaged, returns the report that says so.
fn read_superblock(device: &dyn BlockDevice) -> Result<Result<Superblock, Report>, CheckError> {
    let mut sector = vec![0; BASIC_BLOCK_BYTES];
    device.read(0, &mut sector)?;
    if let Ok((raw, _)) = RawSuperblock::ref_from_prefix(&sector) {
        let bytes = usize::from(raw.sector_size.get());
        let possible = bytes.is_power_of_two() && (BASIC_BLOCK_BYTES..=MAX_SECTOR).contains(&bytes);
        if raw.magic.get() == SUPERBLOCK_MAGIC && possible && bytes as u64 <= device.size_bytes() {
            sector.resize(bytes, 0);
            device.read(0, &mut sector)?;
        }
    }
    match Superblock::decode(&sector) {
        Ok(superblock) => Ok(Ok(superblock)),
        Err(SuperblockError::Corrupt(corruption)) => {
            let faults = Faults::new(1);
            faults.add(Fault::of(&corruption, crate::Owner::Ag(AgNumber(0)), Consequence::Image).at(DiskAddress(0)));
            faults.note("nothing else was checked, because nothing can be found without a superblock".into());
            Ok(Err(faults.into_report(Summary::default(), LogCondition::Clean)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the state of the journal; `None` if it cannot be read, which is reported.
fn look_at_log(
    device: &dyn BlockDevice,
    log_device: Option<&dyn BlockDevice>,
    geometry: &Geometry,
    faults: &Faults,
) -> Result<Option<LogView>, CheckError> {
    let (device, offset) = match (geometry.log_start.and_then(|start| geometry.fs_block_address(start)), log_device) {
        (Some(address), _) => (device, address.bytes()),
        (None, Some(log_device)) => (log_device, 0),
        (None, None) => return Err(CheckError::NoLogDevice),
    };
    match log::look(device, offset, geometry) {
        Ok(view) => {
            if !view.clean {
                faults.note(
                    "the journal is dirty: the image was checked as it is on disk, without what only the journal holds"
                        .into(),
                );
            }
            Ok(Some(view))
        }
        Err(error) => {
            faults.add(Fault::new("log", "can be read from the device", Consequence::Image).found(error));
            Ok(None)
        }
    }
}

/// Calls `work` for every number below `count`, on several threads; each has a state of its own.
fn spread<S: Default + Send>(threads: usize, count: usize, work: impl Fn(&mut S, usize) + Sync) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = S::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return state;
            }
            work(&mut state, index);
        }
    };
    if threads <= 1 || count <= 1 {
        return vec![run()];
    }
    let states = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                let state = run();
                states.lock().push(state);
            });
        }
    });
    states.into_inner()
}

/// Checks an image.
pub(crate) fn run(
    device: &dyn BlockDevice,
    log_device: Option<&dyn BlockDevice>,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report, CheckError> {
    let superblock = match read_superblock(device)? {
        Ok(superblock) => superblock,
        Err(report) => return Ok(report),
    };
    let faults = Faults::new(options.most_faults);
    let geometry = Geometry::new(&superblock);
    let size = geometry.data_blocks << geometry.block_log;
    if size > device.size_bytes() {
        let fault = Fault::new("superblock", "the device holds the whole image", Consequence::Image).at(DiskAddress(0));
        faults.add(fault.found(format_args!("{} of {size} bytes", device.size_bytes())));
        faults.note("nothing else was checked, because the image was cut off".into());
        return Ok(faults.into_report(Summary::default(), LogCondition::Clean));
    }
    let log = look_at_log(device, log_device, &geometry, &faults)?;
    let small = superblock.raw().inode_count.get() < THREADS_FROM_INODES;
    let threads = if small { 1 } else { options.threads }.max(device.hints().queue_depth);
    let mut passes = Passes { context: Context::new(device, &superblock, log, faults), threads, progress };
    let summary = passes.run();
    let condition = match log {
        Some(log) if log.clean => LogCondition::Clean,
        Some(_) => LogCondition::Dirty,
        None => LogCondition::Unreadable,
    };
    Ok(passes.context.faults.into_report(summary, condition))
}

struct Passes<'a> {
    context: Context<'a>,
    threads: usize,
    progress: &'a dyn Progress,
}

impl Passes<'_> {
    fn run(&mut self) -> Summary {
        superblock::check_primary(&self.context);
        let mut ags = self.headers_and_trees();
        let mut gathered = self.inodes();
        let mut summary = gathered.summary;
        superblock::check_attr_bit(&self.context, summary.attributes);
        self.unlinked(&ags, &gathered.unlinked);
        if summary.unlinked > 0 && self.context.log.is_some_and(|log| log.clean) {
            self.context.faults.note(format!(
                "{} inodes without a name wait to be freed: xfskit does that at its next writable open, a kernel only \
                 when it recovers a dirty journal",
                summary.unlinked
            ));
        }
        let directories = Directories::new(std::mem::take(&mut gathered.directories));
        summary.names = self.directories(&directories);
        names::check(&self.context, &directories);
        drop(directories);
        self.context.inodes.ags = Vec::new();
        let mut usage = gathered.usage;
        for ag in &mut ags {
            usage.append(&mut ag.usage);
        }
        let (used, free) = self.blocks(&ags, usage);
        summary.used_blocks = used;
        summary.free_blocks = free;
        summary
    }

    fn headers_and_trees(&mut self) -> Vec<AgState> {
        let (context, progress) = (&self.context, self.progress);
        let count = context.geometry.ag_count as usize;
        progress.begin("headers and trees", count as u64);
        let found = spread(self.threads, count, |list: &mut Vec<(usize, AgState)>, ag| {
            list.push((ag, ag::check(context, AgNumber(ag as u32))));
            progress.step();
        });
        let mut found: Vec<(usize, AgState)> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|entry| entry.0);
        let mut ags: Vec<AgState> = found.into_iter().map(|entry| entry.1).collect();
        let mut sum = Counters::default();
        for ag in &ags {
            sum.inodes += ag.counters.inodes;
            sum.free_inodes += ag.counters.free_inodes;
            sum.free_blocks += ag.counters.free_blocks;
        }
        if ags.iter().all(|ag| ag.agi.is_some() && ag.free_known) {
            superblock::check_counters(context, sum);
        }
        self.context.inodes.ags = ags.iter_mut().map(|ag| AgInodes::new(std::mem::take(&mut ag.chunks))).collect();
        ags
    }

    fn inodes(&self) -> Gathered {
        let (context, progress) = (&self.context, self.progress);
        let runs = inodes::runs(context);
        progress.begin("inodes", runs.len() as u64);
        let parts = spread(self.threads, runs.len(), |state: &mut (Gathered, Vec<u8>), index| {
            inodes::check_run(context, runs[index], &mut state.1, &mut state.0);
            progress.step();
        });
        let mut all = Gathered::default();
        for (mut part, _) in parts {
            all.usage.append(&mut part.usage);
            all.directories.append(&mut part.directories);
            all.unlinked.append(&mut part.unlinked);
            all.summary.add(&part.summary);
        }
        all
    }

    fn unlinked(&self, ags: &[AgState], unlinked: &[(InodeNumber, AgInode)]) {
        let geometry = &self.context.geometry;
        let mut by_ag: Vec<Vec<(InodeNumber, AgInode)>> = vec![Vec::new(); ags.len()];
        for &(inode, next) in unlinked {
            if let Some((ag, _)) = geometry.split_inode(inode) {
                by_ag[ag.0 as usize].push((inode, next));
            }
        }
        for (index, ag) in ags.iter().enumerate() {
            if let Some(agi) = &ag.agi {
                inodes::check_unlinked(&self.context, AgNumber(index as u32), agi, &by_ag[index]);
            }
        }
    }

    fn directories(&self, directories: &Directories) -> u64 {
        let (context, progress) = (&self.context, self.progress);
        progress.begin("directories", directories.list.len() as u64);
        let counts = spread(self.threads, directories.list.len(), |count: &mut u64, index| {
            *count += dir::check(context, directories, index);
            progress.step();
        });
        counts.into_iter().sum()
    }

    /// Compares all uses of blocks with what the AGs say. Returns the numbers of used and free blocks.
    fn blocks(&self, ags: &[AgState], mut usage: Vec<Usage>) -> (u64, u64) {
        let (context, progress) = (&self.context, self.progress);
        progress.begin("blocks", ags.len() as u64);
        usage.sort_unstable_by_key(Usage::order);
        let parts = spread(self.threads, ags.len(), |sum: &mut (u64, u64), index| {
            let ag = AgNumber(index as u32);
            let first = usage.partition_point(|run| run.ag < ag);
            let end = usage.partition_point(|run| run.ag <= ag);
            let state = &ags[index];
            let claims = Claims {
                ag,
                rmaps: state.rmaps.as_deref(),
                refcounts: state.refcounts.as_deref(),
                free_known: state.free_known,
            };
            let (used, free) = usage::compare(context, claims, &usage[first..end]);
            *sum = (sum.0 + used, sum.1 + free);
            progress.step();
        });
        parts.into_iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }
}
