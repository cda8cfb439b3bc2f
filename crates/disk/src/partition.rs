//! Partition tables: what both kinds have in common.

use std::fmt;

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as in the name of the kernel's device.
    pub number: u32,
    /// Its first byte on the disk.
    pub offset: u64,
    /// Its size in bytes. It may be larger than the disk, where that was cut short.
    pub length: u64,
    /// Its type: a GUID (GPT) or two hexadecimal digits (MBR).
    pub kind: String,
    /// Its name in the table, which MBR does not have.
    pub name: Option<String>,
    /// Its UUID in the table; for MBR it is made of the disk's signature and the number, as Linux does.
    pub uuid: Option<String>,
}

/// The form of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt {
        /// The size of the sectors in which it counts, in bytes.
        sector_bytes: u32,
    },
    /// A master boot record.
    Mbr,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt { .. } => f.write_str("gpt"),
            Self::Mbr => f.write_str("dos"),
        }
    }
}

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its form.
    pub kind: TableKind,
    /// The disk's GUID (GPT) or signature (MBR).
    pub id: Option<String>,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// What is wrong with the table, for a person. The partitions can be used all the same.
    pub warnings: Vec<String>,
}
