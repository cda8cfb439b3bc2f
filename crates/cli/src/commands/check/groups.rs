//! Faults that one place of damage explains are one to a person: names that lead to inodes of one AG, structures that
//! lie one behind the other.

use super::paths::Paths;
use std::fmt::Write;
use xfskit_check::{Consequence, Fault, Owner};
use xfskit_ondisk::{AgNumber, Geometry};

/// So many faults are shown one by one.
const MOST_SINGLE: usize = 3;
/// Sectors between two structures that lie one behind the other: those of the largest block.
const MOST_GAP_SECTORS: u64 = 128;
/// What says that the inodes of an AG cannot be found or read.
const CAUSES: [&str; 5] = ["inodes", "inode cluster", "inobt block", "AGI", "inode"];

/// Faults of one kind at one place.
pub struct Group<'f> {
    faults: Vec<&'f Fault>,
    /// What explains them.
    cause: Option<&'f Fault>,
}

/// What faults have in common that are one.
#[derive(PartialEq, Eq)]
struct Kind {
    structure: &'static str,
    check: &'static str,
    consequence: Consequence,
    /// The AG of the inodes to which names lead.
    target: Option<AgNumber>,
}

/// The groups of faults that are sorted by address, in the order of their first ones.
pub fn of<'f>(faults: &'f [Fault], geometry: Option<&Geometry>) -> Vec<Group<'f>> {
    let mut groups: Vec<(Kind, Group<'f>)> = Vec::new();
    for fault in faults {
        let ag = |inode| Some(geometry?.split_inode(inode)?.0);
        let target = fault.target.and_then(ag);
        let (structure, check, consequence) = (fault.structure, fault.check, fault.consequence);
        let kind = Kind { structure, check, consequence, target };
        let same = groups.iter_mut().rev().find(|(of, group)| *of == kind && group.is_beside(fault));
        match same {
            Some((_, group)) => group.faults.push(fault),
            None => groups.push((kind, Group { faults: vec![fault], cause: None })),
        }
    }
    let of_ag =
        |ag| faults.iter().find(|fault| fault.owner == Some(Owner::Ag(ag)) && CAUSES.contains(&fault.structure));
    let explained = groups.into_iter().map(|(kind, group)| Group { cause: kind.target.and_then(of_ag), ..group });
    explained.collect()
}

impl Group<'_> {
    /// Whether a fault of the same kind has the same place. Names that lead to one AG may be anywhere.
    fn is_beside(&self, fault: &Fault) -> bool {
        let last = self.faults.last().and_then(|last| last.address);
        match (last, fault.address) {
            _ if fault.target.is_some() => true,
            (Some(last), Some(address)) => address.0.abs_diff(last.0) <= MOST_GAP_SECTORS,
            (last, address) => last == address,
        }
    }

    /// What is shown of it.
    pub fn text(&self, paths: &Paths) -> String {
        let mut text = String::new();
        let shown = if self.faults.len() > MOST_SINGLE { 1 } else { self.faults.len() };
        for fault in &self.faults[..shown] {
            let separator = if text.is_empty() { "" } else { "\n" };
            // Writing to a String does not fail.
            let _ = write!(text, "{separator}{}", line(fault, paths));
        }
        let rest = self.faults.len() - shown;
        if rest > 0 {
            let _ = write!(text, "\n    and {rest} more of that kind");
            let last = self.faults.last().and_then(|fault| fault.address);
            if let Some(last) = last.filter(|last| Some(*last) != self.faults[0].address) {
                let _ = write!(text, ", up to disk address {last}");
            }
            let _ = write!(text, " (--json has each)");
        }
        if let Some(cause) = self.cause {
            let _ = write!(text, "\n    explained by: {}", line(cause, paths));
        }
        let _ = write!(text, "\n    {}", self.faults[0].consequence);
        text
    }
}

/// A fault with the path of its inode.
fn line(fault: &Fault, paths: &Paths) -> String {
    let text = fault.to_string();
    let (Some(owner), Some(path)) = (fault.owner, paths.of_owner(fault)) else { return text };
    let owner = owner.to_string();
    text.replacen(&owner, &format!("{owner} ({path})"), 1)
}
