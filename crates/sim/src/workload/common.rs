//! What workloads share: the form of one, images whose shape varies, and steps that several take.

use crate::far::Distance;
use crate::image::Shape;
use crate::node::{Name, NodeId, ROOT};
use crate::operation::Operation;
use crate::random::Random;
use crate::run::Run;
use crate::stop::Stop;

/// A workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// A campaign divides the number of states to explore of a run by this.
    pub share: u64,
    /// How far the device of a seed is.
    pub distance: fn(u64) -> Distance,
    /// The image that it works on.
    pub shape: fn(&mut Random) -> Shape,
    /// The work.
    pub run: fn(&mut Run) -> Result<(), Stop>,
}

/// An image whose shape varies with the seed.
pub(super) fn varied(random: &mut Random) -> Shape {
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
    pub(super) fn create(&mut self, dir: NodeId, name: Name, mode: u16) -> Result<Option<NodeId>, Stop> {
        let done = self.perform(&Operation::Create { dir, name, mode, device: 0 })?;
        Ok(done.then(|| self.model.newest()))
    }

    /// Makes a regular file under any name.
    pub(super) fn new_file(&mut self, dir: NodeId) -> Result<Option<NodeId>, Stop> {
        let name = self.fresh_name(dir);
        self.create(dir, name, 0o100_644)
    }

    /// Once in `one_in` calls on average: makes something durable, or pushes the tail.
    pub(super) fn settle(&mut self, one_in: usize) -> Result<(), Stop> {
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
    pub(super) fn fresh_name(&mut self, dir: NodeId) -> Name {
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
    pub(super) fn any_name(&mut self) -> Option<(NodeId, Name)> {
        let dirs: Vec<_> =
            self.model.directories().into_iter().filter(|dir| !self.model.names(*dir).is_empty()).collect();
        let dir = *self.random.pick(&dirs)?;
        let names = self.model.names(dir);
        self.random.pick(&names).map(|name| (dir, name.clone()))
    }

    pub(super) fn any_dir(&mut self) -> NodeId {
        let dirs = self.model.directories();
        self.random.pick(&dirs).copied().unwrap_or(ROOT)
    }

    pub(super) fn any_inode(&mut self) -> NodeId {
        let alive = self.model.alive();
        self.random.pick(&alive).copied().unwrap_or(ROOT)
    }
}
