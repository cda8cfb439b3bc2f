//! Workloads: what is done to a filesystem whose power is then cut.

mod attributes;
mod contents;
mod directories;
mod extents;
mod full;
mod full_contents;
mod log_wrap;
mod mix;
mod no_space;
mod renames;
mod replacements;
mod settings;
mod sharing;
mod unlinked;

use crate::image::Shape;
use crate::model::{NodeId, ROOT};
use crate::operation::{Name, Operation};
use crate::random::Random;
use crate::run::{Run, Stop};

/// A workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// A campaign divides the number of states to explore of a run by this.
    pub share: u64,
    /// The image that it works on.
    pub shape: fn(&mut Random) -> Shape,
    /// The work.
    pub run: fn(&mut Run) -> Result<(), Stop>,
}

/// All workloads.
pub static WORKLOADS: &[Workload] = &[
    attributes::WORKLOAD,
    renames::WORKLOAD,
    directories::WORKLOAD,
    unlinked::WORKLOAD,
    log_wrap::WORKLOAD,
    full::WORKLOAD,
    no_space::WORKLOAD,
    mix::WORKLOAD,
    contents::WORKLOAD,
    sharing::WORKLOAD,
    extents::WORKLOAD,
    full_contents::WORKLOAD,
    replacements::WORKLOAD,
];

/// The workload of a name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// A few operations of any kind on what a recovery left.
///
/// # Errors
/// `Stop`.
pub fn go_on(run: &mut Run) -> Result<(), Stop> {
    for _ in 0..3 + run.random.below(8) {
        mix::step(run)?;
        run.settle(4)?;
    }
    Ok(())
}

/// An image whose shape varies with the seed.
fn varied(random: &mut Random) -> Shape {
    let block = ["1024", "2048", "4096", "4096"][random.below(4)];
    // A block holds at least two inodes.
    let inode = ["512", "512", "1024"][random.below(if block == "1024" { 2 } else { 3 })];
    let mut options = vec![
        ('b', format!("size={block}")),
        ('i', format!("size={inode}")),
        ('d', format!("agcount={}", 1 + random.below(4))),
    ];
    if random.one_in(6) {
        options.push(('n', "parent=0".to_owned()));
    }
    Shape { mib: 64, options }
}

impl Run {
    /// Makes a file under a name.
    fn create(&mut self, dir: NodeId, name: Name, mode: u16) -> Result<Option<NodeId>, Stop> {
        let done = self.perform(&Operation::Create { dir, name, mode, device: 0 })?;
        Ok(done.then(|| self.model.newest()))
    }

    /// Makes a regular file under any name.
    fn new_file(&mut self, dir: NodeId) -> Result<Option<NodeId>, Stop> {
        let name = self.fresh_name(dir);
        self.create(dir, name, 0o100_644)
    }

    /// Once in `one_in` calls on average: makes something durable, or pushes the tail.
    fn settle(&mut self, one_in: usize) -> Result<(), Stop> {
        if !self.random.one_in(one_in) {
            return Ok(());
        }
        let operation = match self.random.below(5) {
            0..=2 => Operation::Sync,
            3 => Operation::PushTail,
            _ => match self.random.pick(&self.model.alive()) {
                Some(&node) => Operation::Fsync { node },
                None => Operation::Sync,
            },
        };
        self.perform(&operation).map(|_| ())
    }

    /// A name that is not in the directory, of a length that varies.
    fn fresh_name(&mut self, dir: NodeId) -> Name {
        loop {
            let length = [1, 3, 8, 20, 60, 200, 255][self.random.below(7)];
            let mut name = format!("{:x}", self.random.next()).into_bytes();
            name.resize(length, b'n');
            if self.model.lookup(dir, &name).is_none() {
                return name;
            }
        }
    }

    /// A directory and a name in it.
    fn any_name(&mut self) -> Option<(NodeId, Name)> {
        let dirs: Vec<_> =
            self.model.directories().into_iter().filter(|dir| !self.model.names(*dir).is_empty()).collect();
        let dir = *self.random.pick(&dirs)?;
        let names = self.model.names(dir);
        self.random.pick(&names).map(|name| (dir, name.clone()))
    }

    fn any_dir(&mut self) -> NodeId {
        let dirs = self.model.directories();
        self.random.pick(&dirs).copied().unwrap_or(ROOT)
    }

    fn any_inode(&mut self) -> NodeId {
        let alive = self.model.alive();
        self.random.pick(&alive).copied().unwrap_or(ROOT)
    }
}
