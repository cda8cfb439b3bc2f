//! What the check found: faults, each with structure, address and consequence, and the figures of the image.

use core::fmt;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xfskit_ondisk::{AgNumber, Corruption, DiskAddress, InodeNumber};

/// The owner of a damaged structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// An allocation group.
    Ag(AgNumber),
    /// A file.
    Inode(InodeNumber),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ag(ag) => write!(f, "AG {ag}"),
            Self::Inode(inode) => write!(f, "inode {inode}"),
        }
    }
}

/// What a fault means for the user of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consequence {
    /// The image as a whole.
    Image,
    /// A copy that only repair reads.
    Copy,
    /// Allocation in one AG.
    Allocation,
    /// Blocks that no file can use.
    LostSpace,
    /// Blocks that two owners use.
    SharedSpace,
    /// A wrong count.
    Count,
    /// An index that another structure could rebuild.
    Index,
    /// Inodes that cannot be found.
    Inodes,
    /// One file.
    File,
    /// The contents of one file.
    Contents,
    /// Names in a directory.
    Names,
    /// One name.
    Name,
    /// A file without a name.
    Unreachable,
    /// Attributes of a file.
    Attributes,
    /// Parent pointers.
    Parents,
    /// Removal of a file.
    Removal,
    /// Order of recovery.
    Recovery,
    /// Usage and limits of users, groups or projects.
    Quota,
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "the image cannot be trusted as a whole; copy what can be read, then run xfs_repair",
            Self::Copy => "only xfs_repair reads it, if the first copy is lost; xfs_repair writes it anew",
            Self::Allocation => "allocating or freeing in this AG fails or shuts the filesystem down; run xfs_repair",
            Self::LostSpace => "the blocks stay unusable until xfs_repair frees them",
            Self::SharedSpace => "a write through one owner damages the other; copy both first, then run xfs_repair",
            Self::Count => "space or inodes are reported wrongly, and a later change may fail; xfs_repair counts anew",
            Self::Index => "changes to what it describes fail or go wrong; xfs_repair builds it anew",
            Self::Inodes => "files of this AG cannot be found by their numbers; run xfs_repair",
            Self::File => "the file cannot be opened; xfs_repair removes or resets it",
            Self::Contents => "a part of the file cannot be read or is not its own; copy it before xfs_repair cuts it",
            Self::Names => {
                "names of this directory cannot be found or listed; xfs_repair builds it anew from what it can read"
            }
            Self::Name => "the name leads nowhere or to the wrong file; xfs_repair removes or corrects it",
            Self::Unreachable => "no path leads to the file; xfs_repair moves it to lost+found",
            Self::Attributes => {
                "attributes of the file (ACLs, labels) are lost or wrong; xfs_repair may drop all of them"
            }
            Self::Parents => {
                "the paths of the file cannot be found from its inode; xfs_repair builds the pointers anew"
            }
            Self::Removal => "removing a name frees the file too early or never; xfs_repair counts the names anew",
            Self::Quota => {
                "a mount with quotas fails, one without them does not notice; xfs_repair makes the file anew"
            }
            Self::Recovery => "a later replay of the journal may leave out changes; xfs_repair writes a new journal",
        })
    }
}

/// Something that is wrong with the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The structure, in XFS's own terms.
    pub structure: &'static str,
    /// The condition that should have held.
    pub check: &'static str,
    /// Disk address of the structure.
    pub address: Option<DiskAddress>,
    /// The owner of the structure.
    pub owner: Option<Owner>,
    /// What was found; may be empty.
    pub found: String,
    /// The inode that a name leads to, of a fault of the name.
    pub target: Option<InodeNumber>,
    /// What the fault means for the user.
    pub consequence: Consequence,
}

impl Fault {
    pub(crate) fn new(structure: &'static str, check: &'static str, consequence: Consequence) -> Self {
        Self { structure, check, address: None, owner: None, found: String::new(), target: None, consequence }
    }

    /// A fault that a structure's verifier found.
    pub(crate) fn of(corruption: &Corruption, owner: Owner, consequence: Consequence) -> Self {
        Self {
            structure: corruption.structure,
            check: corruption.check,
            address: corruption.address,
            owner: Some(owner),
            found: corruption.found.clone(),
            target: None,
            consequence,
        }
    }

    pub(crate) fn at(mut self, address: DiskAddress) -> Self {
        self.address = Some(address);
        self
    }

    pub(crate) fn owned(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    pub(crate) fn inode(self, inode: InodeNumber) -> Self {
        self.owned(Owner::Inode(inode))
    }

    pub(crate) fn ag(self, ag: AgNumber) -> Self {
        self.owned(Owner::Ag(ag))
    }

    pub(crate) fn leading_to(mut self, inode: InodeNumber) -> Self {
        self.target = Some(inode);
        self
    }

    pub(crate) fn found(mut self, found: impl fmt::Display) -> Self {
        self.found = found.to_string();
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.structure)?;
        if let Some(owner) = self.owner {
            write!(f, " of {owner}")?;
        }
        if let Some(address) = self.address {
            write!(f, " at disk address {address}")?;
        }
        write!(f, ": check \"{}\" failed", self.check)?;
        if !self.found.is_empty() {
            write!(f, " ({})", self.found)?;
        }
        Ok(())
    }
}

/// The figures of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inodes in use.
    pub inodes: u64,
    /// Directories; `inodes` counts them too.
    pub directories: u64,
    /// Names in directories, except `.` and `..`.
    pub names: u64,
    /// Attributes, parent pointers included.
    pub attributes: u64,
    /// Parent pointers; `attributes` counts them too.
    pub parent_pointers: u64,
    /// Extents of all forks.
    pub extents: u64,
    /// Inodes that wait on the unlinked lists to be freed.
    pub unlinked: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        self.inodes += other.inodes;
        self.directories += other.directories;
        self.names += other.names;
        self.attributes += other.attributes;
        self.parent_pointers += other.parent_pointers;
        self.extents += other.extents;
        self.unlinked += other.unlinked;
        self.used_blocks += other.used_blocks;
        self.free_blocks += other.free_blocks;
    }
}

/// The state of the journal that a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogCondition {
    /// It ends with an unmount record.
    #[default]
    Clean,
    /// It does not: its replay may mend some of the faults.
    Dirty,
    /// It cannot be read, which is a fault that no replay mends.
    Unreadable,
}

/// What the check of an image found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The faults, up to the maximum, by disk address.
    pub faults: Vec<Fault>,
    /// Number of all faults, including those that are not listed.
    pub fault_count: u64,
    /// Remarks that are no faults.
    pub notes: Vec<String>,
    /// The state of the journal.
    pub log: LogCondition,
    /// The figures.
    pub summary: Summary,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.fault_count == 0
    }
}

/// Gathers faults from all threads.
#[derive(Debug)]
pub(crate) struct Faults {
    kept: Mutex<Vec<Fault>>,
    total: AtomicU64,
    most: usize,
    muted: AtomicBool,
    notes: Mutex<Vec<String>>,
}

impl Faults {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            kept: Mutex::default(),
            total: AtomicU64::new(0),
            most,
            muted: AtomicBool::new(false),
            notes: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, fault: Fault) {
        if self.muted.load(Ordering::Relaxed) {
            return;
        }
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.len() < self.most {
            kept.push(fault);
        }
    }

    pub(crate) fn note(&self, note: String) {
        if !self.muted.load(Ordering::Relaxed) {
            self.notes.lock().push(note);
        }
    }

    /// Does `work` without recording its faults, which are known already. No other thread may add faults meanwhile.
    pub(crate) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        self.muted.store(true, Ordering::Relaxed);
        let result = work();
        self.muted.store(false, Ordering::Relaxed);
        result
    }

    pub(crate) fn into_report(self, summary: Summary, log: LogCondition) -> Report {
        let mut faults = self.kept.into_inner();
        faults.sort_by(|a, b| {
            (a.address, a.owner, a.structure, a.check).cmp(&(b.address, b.owner, b.structure, b.check))
        });
        let mut notes = self.notes.into_inner();
        notes.sort();
        Report { faults, fault_count: self.total.into_inner(), notes, log, summary }
    }
}
