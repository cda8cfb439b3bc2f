//! Changes to a tree while it is copied: owners, times, attributes, labels.
//!
//! They are made in the source's thread, in this order: numbers of users are mapped, one owner is given to all, the
//! manifest's entry for the path is applied, times are limited, and the label of the path is set.

use crate::error::{Result, TransferError, shown};
use crate::event::{Kind, Node};
use crate::labels::FileContexts;
use crate::manifest::Manifest;
use std::str::FromStr;
use std::sync::Arc;
use xfskit_vfs::Timestamp;

/// The attribute that has the label of SELinux.
pub(crate) const LABEL: &[u8] = b"security.selinux";

/// Changes to a tree while it is copied.
#[derive(Clone, Debug, Default)]
pub struct Adjust {
    /// Owner and group of everything.
    pub owner: Owners,
    /// Which numbers the users of the source have in the copy; all must be mapped if any is.
    pub uid_map: IdMap,
    /// The same for groups.
    pub gid_map: IdMap,
    /// Access times become those of the last change of contents, and no time is later than this one. The result does
    /// not depend on when the source was read.
    pub newest: Option<Timestamp>,
    /// Access time of everything.
    pub accessed: Option<Timestamp>,
    /// Whether extended attributes, ACLs among them, are copied.
    pub attributes: Attributes,
    /// Owners, permissions, times and attributes of single paths.
    pub manifest: Option<Arc<Manifest>>,
    /// Labels by paths. The source's labels are left out then.
    pub labels: Option<Labels>,
}

/// An owner and a group, each of which may be left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

/// What the caller asked for by name, which existing files get too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub(crate) owner: Owners,
    pub(crate) label: Label,
}

/// Where the label of an existing file comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Label {
    /// It is the file's own.
    #[default]
    Kept,
    /// It is that of its path.
    OfThePath,
}

/// Labels, and where the tree lies that gets them.
#[derive(Clone, Debug)]
pub struct Labels {
    /// The labels by paths.
    pub contexts: Arc<FileContexts>,
    /// The path of the copy's root in the system that will use it, with a slash at the front and none at the end;
    /// empty for the root of that system.
    pub root: Vec<u8>,
}

/// Whether extended attributes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// They are copied.
    #[default]
    Kept,
    /// They are left out.
    Dropped,
}

/// A range of numbers of users or groups, and the numbers that they get.
///
/// ```
/// use xfskit_transfer::IdRange;
/// let range: IdRange = "100000:0:65536".parse().unwrap();
/// assert_eq!((range.from, range.to, range.count), (100_000, 0, 65_536));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first number in the source.
    pub from: u32,
    /// The number that it gets.
    pub to: u32,
    /// How many numbers follow one another.
    pub count: u32,
}

impl FromStr for IdRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        let Some(&[from, to, count]) = numbers.as_deref() else {
            return Err("expected FROM:TO:COUNT, three numbers".into());
        };
        // The last number stands for no user, so no range may contain it.
        let ends = |start: u32| start.checked_add(count).is_some();
        if count == 0 || !ends(from) || !ends(to) {
            return Err(format!("{text}: a range has 1 number at least and ends before 4294967295"));
        }
        Ok(Self { from, to, count })
    }
}

/// A map of numbers; an empty one leaves all as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

impl IdMap {
    /// A map of these ranges.
    ///
    /// # Errors
    /// A text, for ranges that share numbers on either side: a number would have two others, or two numbers one.
    pub fn new(ranges: &[IdRange]) -> Result<Self, String> {
        let overlap = |a: u32, b: u32, other: &IdRange, one: &IdRange| {
            u64::from(a) < u64::from(b) + u64::from(other.count) && u64::from(b) < u64::from(a) + u64::from(one.count)
        };
        for (at, one) in ranges.iter().enumerate() {
            for other in &ranges[..at] {
                if overlap(one.from, other.from, other, one) || overlap(one.to, other.to, other, one) {
                    let text = |range: &IdRange| format!("{}:{}:{}", range.from, range.to, range.count);
                    return Err(format!("{} and {} have numbers in common", text(other), text(one)));
                }
            }
        }
        Ok(Self(ranges.to_vec()))
    }

    /// The number that a number of the source gets; `None` if it is in no range.
    fn map(&self, id: u32) -> Option<u32> {
        if self.0.is_empty() {
            return Some(id);
        }
        let range = self.0.iter().find(|range| id >= range.from && id - range.from < range.count)?;
        Some(range.to + (id - range.from))
    }
}

/// Where a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A tree, whose numbers of users may be mapped.
    Tree,
    /// A manifest, which has those of the copy.
    Manifest,
}

impl Adjust {
    /// What existing files get too.
    pub fn asked(&self) -> Asked {
        let label = if self.labels.is_some() { Label::OfThePath } else { Label::Kept };
        Asked { owner: self.owner, label }
    }

    pub(crate) fn apply(&self, node: &mut Node, origin: Origin) -> Result<()> {
        let meta = &mut node.meta;
        if self.attributes == Attributes::Dropped {
            meta.xattrs.clear();
        }
        // A further name of a file has no owner of its own.
        if !matches!(node.kind, Kind::Link(_)) {
            let unmapped = |what, id| TransferError::Unmapped { path: shown(&node.path), what, id };
            let map = |map: &IdMap, id| if origin == Origin::Tree { map.map(id) } else { Some(id) };
            let own = |given: Option<u32>, ids, what, id| match given {
                Some(given) => Ok(given),
                None => map(ids, id).ok_or_else(|| unmapped(what, id)),
            };
            meta.uid = own(self.owner.uid, &self.uid_map, "owner", meta.uid)?;
            meta.gid = own(self.owner.gid, &self.gid_map, "group", meta.gid)?;
        }
        if let Some(manifest) = &self.manifest {
            manifest.apply(node)?;
        }
        let meta = &mut node.meta;
        if let Some(time) = self.accessed {
            meta.atime = time;
        }
        if let Some(newest) = self.newest {
            meta.mtime = meta.mtime.min(newest);
            meta.atime = meta.mtime;
        }
        self.label(node)
    }

    /// Sets the label of a path. A further name of a file does not change its label.
    fn label(&self, node: &mut Node) -> Result<()> {
        let Some(labels) = &self.labels else { return Ok(()) };
        if matches!(node.kind, Kind::Link(_)) {
            return Ok(());
        }
        let slash: &[u8] = if node.path.is_empty() && !labels.root.is_empty() { b"" } else { b"/" };
        let path = [&labels.root, slash, &node.path].concat();
        node.meta.xattrs.retain(|(name, _)| name != LABEL);
        if let Some(value) = labels.contexts.label(&path, (&node.kind).into())? {
            let place = node.meta.xattrs.partition_point(|(name, _)| name.as_slice() < LABEL);
            node.meta.xattrs.insert(place, (LABEL.to_vec(), value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_map_what_they_contain() {
        let map = IdMap::new(&["100000:0:1000".parse().unwrap(), "1000:1000:1".parse().unwrap()]).unwrap();
        assert_eq!(
            [99_999, 100_000, 100_999, 101_000, 1000].map(|id| map.map(id)),
            [None, Some(0), Some(999), None, Some(1000)]
        );
        assert_eq!(IdMap::default().map(7), Some(7));
        for wrong in ["1:2", "1:2:0", "1:2:x", "4294967295:0:1", "0:4294967290:6", "1:2:3:4"] {
            assert!(wrong.parse::<IdRange>().is_err(), "{wrong}");
        }
        for pair in [["0:0:10", "9:20:1"], ["0:0:10", "20:9:1"]] {
            let ranges = pair.map(|text| text.parse().unwrap());
            assert!(IdMap::new(&ranges).unwrap_err().contains("in common"));
        }
    }
}
