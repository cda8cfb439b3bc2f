//! The faults: commands of xfs_db, what the check must report, and whether `xfs_repair -n` complains too.

mod inodes;
mod names;
mod space;

/// A fault to plant.
pub struct Plant {
    pub commands: &'static [&'static str],
    pub structure: &'static str,
    pub check: &'static str,
    pub repair: bool,
}

impl Plant {
    /// Its name in messages of the test.
    pub fn name(&self) -> String {
        format!("{:?} for {} / {}", self.commands, self.structure, self.check)
    }
}

const fn plant(commands: &'static [&'static str], structure: &'static str, check: &'static str, repair: bool) -> Plant {
    Plant { commands, structure, check, repair }
}

/// All of them.
pub const ALL: &[&[Plant]] = &[
    space::HEADERS,
    space::SPACE,
    space::OWNERS,
    space::INODE_TREES,
    inodes::INODES,
    inodes::MAPS,
    names::DIRECTORIES,
    names::INDEXES,
    inodes::TREE,
    names::ATTRIBUTES,
    names::PARENTS,
];
