//! The contents of an image, as the reference tools and the kernel see them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use xfskit_testkit::{Reference, TreeEntry, kernel_mount, reference, scratch, tree};

/// Blocks that belong to the AG's own trees and free list, which may lie anywhere.
const OWNERS_OF_TREES: [&str; 2] = ["-5", "-8"];

/// What two recoveries of one image must agree on.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    tree: Vec<TreeEntry>,
    /// Cores and extent maps of the first inodes.
    inodes: Vec<String>,
    rmaps: BTreeMap<u32, Vec<String>>,
    refcounts: BTreeMap<u32, Vec<String>>,
    /// Blocks that are free or the AG's own.
    free: BTreeSet<(u32, u64)>,
}

impl State {
    /// The state of an image after the kernel has mounted and unmounted it, recovering it if need be.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let reference = reference()?;
        let scratch = scratch();
        let path = scratch.file("image");
        std::fs::write(&path, bytes).unwrap();
        let mount = kernel_mount(&path)?;
        let tree = tree(mount.path());
        mount.unmount();
        reference.repair_finds_nothing(&path);
        Some(Self::read(&reference, &path, tree))
    }

    fn read(reference: &Reference, path: &Path, tree: Vec<TreeEntry>) -> Self {
        let mut state = Self {
            tree,
            inodes: Vec::new(),
            rmaps: BTreeMap::new(),
            refcounts: BTreeMap::new(),
            free: BTreeSet::new(),
        };
        for ag in 0..2 {
            let agf = format!("agf {ag}");
            let dump = |root: &str| {
                let root = format!("addr {root}");
                let arguments =
                    ["-r", "-c", &agf, "-c", &root, "-c", "btdump", path.to_str().unwrap()].map(str::to_owned);
                records(&String::from_utf8_lossy(&reference.tool("xfs_db", arguments).stdout))
            };
            for record in dump("bnoroot") {
                state.take_free(ag, &record);
            }
            let rmaps = dump("rmaproot");
            for record in &rmaps {
                if OWNERS_OF_TREES.contains(&record[2].as_str()) {
                    state.take_free(ag, record);
                }
            }
            let of_others = |record: &&Vec<String>| !OWNERS_OF_TREES.contains(&record[2].as_str());
            state.rmaps.insert(ag, rmaps.iter().filter(of_others).map(|record| record.join(",")).collect());
            let has_refcounts = reference.db(path, &["version"]).contains("REFLINK");
            if !has_refcounts {
                continue;
            }
            state.refcounts.insert(ag, dump("refcntroot").iter().map(|record| record.join(",")).collect());
        }
        for number in 131..135 {
            let inode = format!("inode {number}");
            let fields = "print core.format core.size core.nblocks core.nextents core.aformat core.forkoff v3.reflink";
            let commands = [inode.as_str(), fields, "bmap -d", "bmap -a"];
            let mut arguments = vec!["-r".to_owned()];
            commands.iter().for_each(|command| arguments.extend(["-c".to_owned(), (*command).to_owned()]));
            arguments.push(path.to_str().unwrap().to_owned());
            let output = reference.tool("xfs_db", arguments);
            state.inodes.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        state
    }

    /// Panics if the trees of files differ: attributes may lie at other places in their fork.
    pub fn assert_same_tree(&self, other: &Self, who: &str) {
        for (one, two) in self.tree.iter().zip(&other.tree) {
            assert!(one == two, "{who} differ:\n{one}\n{two}");
        }
        assert_eq!(self.tree.len(), other.tree.len(), "{who}");
    }

    /// Panics with what differs.
    pub fn assert_same(&self, other: &Self, who: &str) {
        if self == other {
            return;
        }
        let text = |state: &Self| format!("{state:#?}").lines().map(str::to_owned).collect::<Vec<_>>();
        let (left, right) = (text(self), text(other));
        let only = |a: &[String], b: &[String]| {
            a.iter().filter(|line| !b.contains(line)).cloned().collect::<Vec<_>>().join("\n")
        };
        panic!(
            "{who} differ: only the first has\n{}\nonly the second has\n{}",
            only(&left, &right),
            only(&right, &left)
        );
    }

    fn take_free(&mut self, ag: u32, record: &[String]) {
        let (start, count): (u64, u64) = (record[0].parse().unwrap(), record[1].parse().unwrap());
        self.free.extend((start..start + count).map(|block| (ag, block)));
    }
}

/// The records that `btdump` printed of leaves: lines such as `3:[13,2,-5,0]`.
fn records(dump: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut in_records = false;
    for line in dump.lines() {
        if line.contains('=') {
            in_records = line.starts_with("recs[");
        }
        let list = line.trim().split_once(":[").and_then(|(_, rest)| rest.strip_suffix(']'));
        if let Some(list) = list.filter(|_| in_records) {
            found.push(list.split(',').map(str::to_owned).collect());
        }
    }
    found
}
