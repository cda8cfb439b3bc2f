//! The tree of what is on disks, as text.

use crate::disks::{Disks, Found};
use std::fmt::{self, Write};

/// A size for a person.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        for (shift, unit) in units {
            if self.0 >= 1 << shift {
                let tenths = (u128::from(self.0) * 10) >> shift;
                let (whole, tenth) = (tenths / 10, tenths % 10);
                return if tenth == 0 { write!(f, "{whole} {unit}") } else { write!(f, "{whole}.{tenth} {unit}") };
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

/// What a part contains, in a line.
fn describe(found: &Found) -> String {
    let mut line = match (&found.device, found.contents.format) {
        (Err(why), _) => format!("cannot be used: {why}"),
        (Ok(_), Some(format)) => format.to_string(),
        (Ok(_), None) => "unknown contents".to_string(),
    };
    if let Some(label) = &found.contents.label {
        // Writing to a String does not fail.
        let _ = write!(line, ", label {label:?}");
    }
    line
}

/// The tree with a note on each XFS filesystem, see [`Disks::tree`].
pub struct Tree<'a> {
    disks: &'a Disks,
    note: &'a dyn Fn(&Found) -> String,
}

impl Disks {
    /// The tree as [`Display`](fmt::Display) shows it, with what `note` says of each XFS filesystem behind its line.
    pub fn tree<'a>(&'a self, note: &'a dyn Fn(&Found) -> String) -> Tree<'a> {
        Tree { disks: self, note }
    }
}

impl fmt::Display for Disks {
    /// The tree, a line for each disk, partition and volume, without a newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree(&|_| String::new()).fmt(f)
    }
}

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let describe = |found: &Found| {
            let note = if found.contents.is_xfs() { (self.note)(found) } else { String::new() };
            describe(found) + &note
        };
        for (number, disk) in self.disks.disks.iter().enumerate() {
            let newline = if number > 0 { "\n" } else { "" };
            write!(f, "{newline}{}: {}, {}", disk.path.display(), disk.format, Size(disk.whole.size_bytes))?;
            match &disk.table {
                Some(table) => write!(f, ", partition table {}", table.kind)?,
                None => write!(f, ", {}", describe(&disk.whole))?,
            }
            for path in &disk.below {
                write!(f, "\n  on {}", path.display())?;
            }
            for warning in &disk.warnings {
                write!(f, "\n  warning: {warning}")?;
            }
            let described = disk.table.iter().flat_map(|table| &table.partitions).zip(&disk.partitions);
            for (partition, found) in described {
                write!(
                    f,
                    "\n  {:<5} {:>10}  {}",
                    found.part.to_string(),
                    Size(found.size_bytes).to_string(),
                    describe(found)
                )?;
                if let Some(name) = &partition.name {
                    write!(f, ", partition label {name:?}")?;
                }
            }
        }
        for group in &self.disks.groups {
            write!(f, "\n  LVM2 group {}", group.name)?;
            for (volume, found) in &group.volumes {
                let size = Size(found.size_bytes);
                write!(f, "\n    {}  {size}, {}, {}", found.part, volume.kind, describe(found))?;
            }
        }
        Ok(())
    }
}
