//! Runs a workload on a recorded device, beside the model.

mod partial;

use crate::clock::{Clock, World};
use crate::contents::{Contents, Histories};
use crate::device::SimDevice;
use crate::events::{DurableParts, Event};
use crate::model::Model;
use crate::node::NodeId;
use crate::observed::{Observed, times};
use crate::operation::Operation;
use crate::random::Random;
use crate::stop::Stop;
use crate::times::{Change, Times};
use crate::tree::{describe, digest};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use xfskit_engine::incore::ForkKind;
use xfskit_engine::inode::bmap;
use xfskit_engine::mount::{BlockPool, Mount};
use xfskit_engine::trans::Reservation;
use xfskit_engine::{Error, MountOptions, Volume};
use xfskit_ondisk::FileBlock;
use xfskit_ondisk::inode::flags;

/// A workload that runs.
pub struct Run {
    fs: Option<Volume>,
    device: Arc<SimDevice>,
    options: MountOptions,
    /// The expected tree.
    pub model: Model,
    /// Decides what the workload does.
    pub random: Random,
    digests: Vec<u64>,
    trees: Option<Vec<Vec<String>>>,
    histories: Histories,
    /// Nodes of the model that the histories know.
    nodes: usize,
    /// For each inode, the last operation that concerned it.
    last: HashMap<NodeId, usize>,
    /// For each inode, the last operation that changed more of it than contents and times: it is in the journal, in
    /// whatever else a later fsync fails.
    last_logged: HashMap<NodeId, usize>,
    acknowledged: usize,
    /// The operations so far, in words, if they were asked for.
    transcript: Option<Vec<String>>,
    seed: u64,
    clock: Arc<Clock>,
    /// Workloads may set times, groups, flags and hints.
    pub sets_attributes: bool,
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct ResumeOptions {
    /// Keep the operations and the trees in words.
    pub in_words: bool,
    /// Set times, groups, flags and hints.
    pub sets_attributes: bool,
}

/// Where the log lies on the device.
pub fn log_of(mount: &Mount) -> Range<u64> {
    let geometry = &mount.geometry;
    let start = geometry.log_start.and_then(|start| geometry.fs_block_address(start)).map_or(0, |at| at.bytes());
    start..start + (u64::from(geometry.log_blocks) << geometry.block_log)
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct RunHistory {
    /// What the tree looked like after each operation.
    pub digests: Vec<u64>,
    /// The same in words; empty unless a transcript was asked for.
    pub trees: Vec<Vec<String>>,
    /// What the files contained.
    pub histories: Histories,
    /// The operations in words; empty unless a transcript was asked for.
    pub transcript: Vec<String>,
}

/// The lines that describe a model.
fn lines_of(model: &Model) -> Vec<String> {
    match describe(model) {
        Ok(lines) => lines,
    }
}

impl Run {
    /// Starts a run on a filesystem whose tree is the model's.
    pub fn resume(
        fs: Volume,
        device: &Arc<SimDevice>,
        options: MountOptions,
        model: Model,
        (seed, clock): (u64, Arc<Clock>),
        ResumeOptions { in_words, sets_attributes }: ResumeOptions,
    ) -> Self {
        let mut model = model;
        model.has_parents = fs.geometry().has_parent();
        let mut run = Self {
            fs: Some(fs),
            device: Arc::clone(device),
            options,
            model,
            random: Random::new(seed),
            digests: Vec::new(),
            trees: in_words.then(Vec::new),
            histories: Histories::default(),
            nodes: 0,
            last: HashMap::new(),
            last_logged: HashMap::new(),
            acknowledged: 0,
            transcript: in_words.then(Vec::new),
            seed,
            clock,
            sets_attributes,
        };
        run.note_tree(Change::OfTheTree);
        run
    }

    /// Ends the run.
    pub fn into_history(self) -> RunHistory {
        RunHistory {
            digests: self.digests,
            trees: self.trees.unwrap_or_default(),
            histories: self.histories,
            transcript: self.transcript.unwrap_or_default(),
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.fs().geometry().block_bytes() as u64
    }

    /// Whether files can share blocks.
    pub fn has_reflink(&self) -> bool {
        self.fs().geometry().has_reflink()
    }

    /// The filesystem.
    fn fs(&self) -> &Volume {
        self.fs.as_ref().expect("the filesystem is open but while it is opened again")
    }

    /// Gives a file blocks beyond its end, until about `left` blocks are free. Every state is read as a whole, and no
    /// judge reads these blocks, so a full image costs no more time.
    ///
    /// # Errors
    /// `Stop`.
    pub fn fill(&mut self, file: NodeId, left: u64) -> Result<(), Stop> {
        let mount = Arc::clone(self.fs().mount());
        let mut at = 0;
        while let Some(count) = mount.space.usable_blocks().checked_sub(left + 64).filter(|count| *count > 0) {
            let count = count.min(1000);
            let step = || {
                let reservation =
                    Reservation { log_bytes: 256 << 10, log_count: 1, blocks: count + 64, pool: BlockPool::Ordinary };
                let mut tx = mount.transaction(reservation)?;
                let inode = mount.inode(self.model.number(file))?;
                let ino = tx.join_inode(&inode);
                let result = bmap::allocate(&mut tx, ino, ForkKind::Data, FileBlock(at), count as u32).map(|_| ());
                tx.finish(result)
            };
            match step() {
                Ok(()) => at += count,
                Err(Error::Io { .. } | Error::Shutdown(_)) => return Err(Stop::Device),
                Err(Error::TooLarge | Error::NoSpace) if !self.options.error_tags.is_empty() => return Ok(()),
                Err(error) => return Err(Stop::Wrong(format!("filling the image: {error}"))),
            }
        }
        Ok(())
    }

    /// Marks the end of the preparation: cuts are made from here on.
    pub fn prepared(&self) {
        self.device.mark(Event::Prepared);
    }

    /// Performs an operation on the filesystem and on the model. Returns whether it was done: it may lack space, fail
    /// on a faulty device, or be refused as it should be.
    ///
    /// # Errors
    /// `Stop`.
    pub fn perform(&mut self, operation: &Operation) -> Result<bool, Stop> {
        let number = self.digests.len();
        self.device.mark(Event::Began(number));
        self.model.now = self.clock.step();
        self.device.take_refused();
        let result = operation.perform(self.fs(), &self.model);
        if let Some(transcript) = &mut self.transcript {
            let error = result.as_ref().err().map_or(String::new(), |error| format!(": {error}"));
            transcript.push(format!("{number}: {operation}{error}"));
        }
        let is_up = self.fs().mount().journal.check();
        let is_refused = operation.crosses_projects(&self.model);
        let outcome = match (&result, is_up) {
            (Ok(_), _) if is_refused => Err(Stop::Wrong(format!("operation {number}, {operation}: crosses projects"))),
            (Ok(_), _) => Ok(true),
            (Err(Error::CrossesProjects), Ok(())) if is_refused => Ok(false),
            (Err(Error::Invalid(_)), Ok(())) if operation.sets_another_hint(&self.model) => Ok(false),
            // An error tag made the operation fail. A release has dropped the reference all the same.
            (Err(Error::NoSpace | Error::TooLarge | Error::Corrupt(_)), Ok(()))
                if !self.options.error_tags.is_empty() =>
            {
                Ok(matches!(operation, Operation::Release { .. }))
            }
            (Err(Error::NoSpace), Ok(())) => Ok(false),
            (Err(Error::NoSpace), Err(error)) => {
                Err(Stop::Wrong(format!("{operation} found no space and shut down: {error}")))
            }
            (Err(Error::Io { .. }), Ok(())) => self.was_done(operation),
            (Err(Error::Io { .. } | Error::Shutdown(_)), _) => Err(self.why_shut_down(operation)),
            (Err(error), _) => Err(Stop::Wrong(format!("operation {number}, {operation}: {error}"))),
        };
        // An operation that a shutdown cut off may have been committed.
        if matches!(outcome, Ok(true) | Err(Stop::Device)) {
            for node in operation.touched(&self.model) {
                self.last.insert(node, number);
                if operation.change(self.options.wsync) == Change::OfTheTree {
                    self.last_logged.insert(node, number);
                }
            }
            for node in operation.replacing_files(&self.model) {
                self.histories.replace(number, node);
            }
            operation.apply(&mut self.model, result.as_ref().ok().copied().flatten());
            self.note_contents(operation, number);
        } else if outcome.is_ok() {
            self.adopt_contents(operation, number)?;
        }
        self.note_tree(operation.change(self.options.wsync));
        if result.is_ok() {
            self.compare_times(&operation.touched(&self.model), number)?;
            self.acknowledge(operation, number);
        } else if outcome.is_ok() && matches!(result, Err(Error::Io { .. })) {
            self.acknowledge_others(operation, number);
        }
        outcome
    }

    /// Whether an operation was done that returned an I/O error and did not shut the filesystem down. It must be done
    /// as a whole or not at all.
    fn was_done(&self, operation: &Operation) -> Result<bool, Stop> {
        if matches!(operation, Operation::Release { .. }) {
            // The reference is released. Only freeing the inode failed, and the next mount frees it.
            return Ok(true);
        }
        let wrong = |error: Error| Stop::Wrong(format!("reading the tree after {operation} failed: {error}"));
        let found = self.look(|fs| describe(&Observed::new(fs))).map_err(wrong)?;
        let before = lines_of(&self.model);
        let mut model = self.model.clone();
        operation.apply(&mut model, None);
        match (found == before, found == lines_of(&model)) {
            (true, _) => Ok(false),
            (false, true) => Ok(true),
            (false, false) => Err(Stop::Wrong(format!("{operation} answered with an I/O error and was half done"))),
        }
    }

    fn note_tree(&mut self, change: Change) {
        let lines = lines_of(&self.model);
        self.digests.push(digest(&lines));
        if let Some(trees) = &mut self.trees {
            trees.push(lines);
        }
        let operation = self.digests.len() - 1;
        for node in self.nodes..self.model.count() {
            let (contents, times) = (self.model.contents(node).clone(), self.model.times(node));
            self.histories.make(self.model.number(node), operation, node, contents, times);
        }
        self.nodes = self.model.count();
        for node in self.model.alive() {
            self.histories.times.note(node, operation, self.model.times(node), change);
        }
    }

    /// Notes the contents after an operation that was done, or that the end of the run cut off.
    fn note_contents(&mut self, operation: &Operation, number: usize) {
        if let Some((node, moved)) = operation.changed_file() {
            self.histories.change(node, number, self.model.contents(node).clone(), moved);
        }
    }

    /// Takes over the contents after an operation that returned an error while the filesystem goes on. A part of it may
    /// have been done. The file must be in a state that a crash may show, and the model has that state from here on.
    fn adopt_contents(&mut self, operation: &Operation, number: usize) -> Result<(), Stop> {
        let Some((node, moved)) = operation.changed_file() else { return Ok(()) };
        let before = self.model.times(node);
        operation.apply(&mut self.model, None);
        let after = self.model.times(node);
        self.histories.change(node, number, self.model.contents(node).clone(), moved);
        let wrong = |what: String| Stop::Wrong(format!("operation {number}, {operation}, failed, and then {what}"));
        let inode = self.model.number(node);
        let found =
            self.look(|fs| Contents::read(fs, inode)).map_err(|error| wrong(format!("reading did: {error}")))?;
        if let Some(fault) = self.histories.judge_node(node, &found, number - 1..=number) {
            return Err(wrong(fault));
        }
        self.histories.change(node, number, found.clone(), moved);
        *self.model.contents_mut(node) = found;
        // If a part was done, the file may have the times of the whole operation.
        self.histories.times.note(node, number, after, Change::Late);
        let found =
            self.look(|fs| times(fs, inode)).map_err(|error| wrong(format!("reading its times did: {error}")))?;
        if ![before, after].contains(&found) {
            return Err(wrong(format!("its times were {found}, neither {before} nor {after}")));
        }
        self.model.adopt_times(node, found);
        Ok(())
    }

    /// Compares the times of those inodes that exist with the model's.
    fn compare_times(&self, nodes: &[NodeId], operation: usize) -> Result<(), Stop> {
        let alive = self.model.alive();
        for &node in nodes.iter().filter(|node| alive.contains(node)) {
            let found: Times = match self.look(|fs| times(fs, self.model.number(node))) {
                Ok(found) => found,
                Err(Error::Io { .. } | Error::Shutdown(_)) => return Err(Stop::Device),
                Err(error) => return Err(Stop::Wrong(format!("the times of {node}: {error}"))),
            };
            let expected = self.model.times(node);
            if found != expected {
                let text = format!("after operation {operation} the times of {node} are {found}, not {expected}");
                return Err(Stop::Wrong(text));
            }
        }
        Ok(())
    }

    /// Compares all times and the contents of all files with the model's.
    fn compare_contents(&self) -> Result<(), Stop> {
        let now = self.digests.len();
        self.compare_times(&self.model.alive(), now)?;
        for node in self.model.files() {
            let found = match self.look(|fs| Contents::read(fs, self.model.number(node))) {
                Ok(found) => found,
                Err(Error::Io { .. } | Error::Shutdown(_)) => return Err(Stop::Device),
                Err(error) => return Err(Stop::Wrong(format!("reading file {node}: {error}"))),
            };
            if let Some(fault) = self.histories.judge_node(node, &found, now..=now) {
                return Err(Stop::Wrong(format!("before operation {now} file {node} is wrong: {fault}")));
            }
        }
        Ok(())
    }

    /// Records what is durable after an operation that succeeded.
    fn acknowledge(&mut self, operation: &Operation, number: usize) {
        let durable = match operation {
            Operation::Sync => number,
            Operation::Fsync { node } => self.last.get(node).copied().unwrap_or(0),
            // A file whose writes are synchronous.
            _ if self.synced(operation).is_some() => number,
            Operation::Hold { .. } | Operation::Release { .. } | Operation::PushTail | Operation::Fdatasync { .. } => 0,
            // Contents that wait in memory are not in the journal.
            _ if operation.changed_file().is_some() => 0,
            _ if self.options.wsync => number,
            _ => 0,
        };
        self.acknowledged = self.acknowledged.max(durable);
        self.device.mark(Event::Acknowledged(self.acknowledged));
        match operation {
            Operation::Sync => self.device.mark(Event::FileDurable(None, number, DurableParts::ContentsAndTimes)),
            Operation::Fsync { node } => {
                self.device.mark(Event::FileDurable(Some(*node), number, DurableParts::ContentsAndTimes));
            }
            Operation::Fdatasync { node } => {
                self.device.mark(Event::FileDurable(Some(*node), number, DurableParts::Contents))
            }
            _ => {
                if let Some(node) = self.synced(operation) {
                    self.device.mark(Event::FileDurable(Some(node), number, DurableParts::ContentsAndTimes));
                }
            }
        }
    }

    /// The file that an operation wrote to and that has the flag by which all writes to it are synchronous.
    fn synced(&self, operation: &Operation) -> Option<NodeId> {
        let writes = !matches!(operation, Operation::Truncate { .. });
        let (node, _) = operation.changed_file().filter(|_| writes)?;
        (self.model.settings(node).flags & flags::SYNC != 0).then_some(node)
    }

    /// Closes the filesystem and opens it again.
    ///
    /// # Errors
    /// `Stop`.
    pub fn remount(&mut self) -> Result<(), Stop> {
        let is_tagged = !self.options.error_tags.is_empty();
        let stop = |what: &str, error| match error {
            Error::Io { .. } | Error::Shutdown(_) => Stop::Device,
            // Dirty contents could not be written out, and the image is as a crash leaves it.
            Error::NoSpace | Error::TooLarge | Error::Corrupt(_) if is_tagged => Stop::Device,
            error => Stop::Wrong(format!("{what}: {error}")),
        };
        self.compare_contents()?;
        if let Some(fs) = self.fs.take() {
            let mount = Arc::clone(fs.mount());
            self.device.take_refused();
            if let Err(error) = fs.unmount() {
                self.keep_what_unmount_forced(&mount, &error);
                return Err(stop("unmount", error));
            }
        }
        self.model.release_all();
        self.acknowledged = self.digests.len() - 1;
        self.device.mark(Event::Acknowledged(self.acknowledged));
        self.device.mark(Event::FileDurable(None, self.acknowledged, DurableParts::ContentsAndTimes));
        let env = Arc::new(World::new(self.seed ^ self.digests.len() as u64, &self.clock));
        let fs = Volume::open_in(Arc::clone(&self.device) as _, None, self.options.clone(), env);
        self.fs = Some(fs.map_err(|error| stop("open", error))?);
        self.compare_contents()
    }
}
