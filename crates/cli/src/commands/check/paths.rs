//! The paths of the inodes that faults are about, found by one walk through the directories that can be read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xfskit_check::{Fault, Owner, Report};
use xfskit_device::BlockDevice;
use xfskit_engine::{FileType, MountOptions, Volume};
use xfskit_ondisk::InodeNumber;

/// The paths, as far as there are any.
#[derive(Debug, Default)]
pub struct Paths(HashMap<InodeNumber, String>);

/// A directory on the walk: itself, the place of the one above, and its name there.
type Dir = (InodeNumber, Option<usize>, Vec<u8>);

impl Paths {
    /// Finds the paths of all inodes of a report. What cannot be read has none.
    pub fn find(report: &Report, device: Arc<dyn BlockDevice>, log_device: Option<Arc<dyn BlockDevice>>) -> Self {
        let mut wanted: HashSet<InodeNumber> = report.faults.iter().filter_map(owner).collect();
        if wanted.is_empty() {
            return Self::default();
        }
        let options = MountOptions { no_recovery: true, ..MountOptions::read_only() };
        let opened = match log_device {
            Some(log) => Volume::open_with_log(device, log, options),
            None => Volume::open(device, options),
        };
        opened.map_or_else(|_| Self::default(), |volume| Self(walk(&volume, &mut wanted)))
    }

    /// The path of the inode to which the structure of a fault belongs.
    pub fn of_owner(&self, fault: &Fault) -> Option<&str> {
        self.0.get(&owner(fault)?).map(String::as_str)
    }
}

fn owner(fault: &Fault) -> Option<InodeNumber> {
    match fault.owner {
        Some(Owner::Inode(inode)) => Some(inode),
        _ => None,
    }
}

fn walk(volume: &Volume, wanted: &mut HashSet<InodeNumber>) -> HashMap<InodeNumber, String> {
    let mut found = HashMap::new();
    let mut dirs: Vec<Dir> = vec![(volume.root(), None, Vec::new())];
    let mut seen = HashSet::from([volume.root()]);
    if wanted.remove(&volume.root()) {
        found.insert(volume.root(), "/".into());
    }
    let mut at = 0;
    while at < dirs.len() && !wanted.is_empty() {
        let listed = volume.list_what_is_left(dirs[at].0);
        for entry in listed.into_iter().flat_map(|(entries, _)| entries) {
            if wanted.remove(&entry.inode) {
                found.insert(entry.inode, path(&dirs, at, &entry.name));
            }
            if entry.file_type == Some(FileType::Dir) && seen.insert(entry.inode) {
                dirs.push((entry.inode, Some(at), entry.name));
            }
        }
        at += 1;
    }
    found
}

fn path(dirs: &[Dir], mut at: usize, name: &[u8]) -> String {
    let mut names = vec![name];
    while let (_, Some(above), name) = &dirs[at] {
        names.push(name);
        at = *above;
    }
    names.iter().rev().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect()
}
