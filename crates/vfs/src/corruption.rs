//! What a verifier returns when a structure on disk is wrong.

use crate::DiskAddress;
use core::fmt;

/// A structure on disk that fails one of its checks.
///
/// It names the four facts that a person needs to look at the damage: the check, the structure, its disk address and
/// its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The structure, in the format's own terms: `"AGF"`, `"directory leaf block"`.
    pub structure: &'static str,
    /// The check that failed, as a condition that should be true: `"magic number"`, `"records in order"`.
    pub check: &'static str,
    /// Where the structure starts on the device; `None` if it has no address of its own.
    pub address: Option<DiskAddress>,
    /// Where the structure that refers to this one starts (an inode, the header of an AG); set only if `address` is
    /// unknown.
    pub below: Option<DiskAddress>,
    /// The inode (or AG) that owns the structure, where it is known.
    pub owner: Option<u64>,
    /// What was found, in words or numbers; may be empty.
    pub found: String,
}

impl Corruption {
    /// A failure of `check` on `structure`.
    pub fn new(structure: &'static str, check: &'static str) -> Box<Self> {
        Box::new(Self { structure, check, address: None, below: None, owner: None, found: String::new() })
    }

    /// Sets the address of the structure, unless it is set already.
    pub fn at(mut self: Box<Self>, address: DiskAddress) -> Box<Self> {
        self.address.get_or_insert(address);
        self
    }

    /// Sets the address and the owner of the structure that refers to this one. What is set already stays, and so does
    /// `below` when the structure's own address is set.
    pub fn below(mut self: Box<Self>, address: DiskAddress, owner: u64) -> Box<Self> {
        if self.address.is_none() {
            self.below.get_or_insert(address);
        }
        self.owner.get_or_insert(owner);
        self
    }

    /// Sets the owner of the structure, unless it is set already.
    pub fn of(mut self: Box<Self>, owner: u64) -> Box<Self> {
        self.owner.get_or_insert(owner);
        self
    }

    /// Sets what was found instead.
    pub fn found(mut self: Box<Self>, found: impl fmt::Display) -> Box<Self> {
        self.found = found.to_string();
        self
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt {}", self.structure)?;
        if let Some(address) = self.address {
            write!(f, " at disk address {address}")?;
        } else if let Some(address) = self.below {
            write!(f, " below disk address {address}")?;
        }
        if let Some(owner) = self.owner {
            write!(f, " of owner {owner}")?;
        }
        write!(f, ": check \"{}\" failed", self.check)?;
        if !self.found.is_empty() {
            write!(f, " ({})", self.found)?;
        }
        Ok(())
    }
}

impl std::error::Error for Corruption {}

/// What a verifier returns.
pub type Verdict<T = ()> = Result<T, Box<Corruption>>;

/// Fails with a [`Corruption`] of `structure` unless `condition` is true.
///
/// ```
/// # use xfskit_vfs::{ensure, Verdict};
/// fn verify(level: u16) -> Verdict {
///     ensure!(level < 9, "AGF", "tree height", "level {level}");
///     Ok(())
/// }
/// assert!(verify(12).unwrap_err().to_string().contains("level 12"));
/// ```
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $structure:expr, $check:expr $(,)?) => {
        if !$condition {
            return Err($crate::Corruption::new($structure, $check));
        }
    };
    ($condition:expr, $structure:expr, $check:expr, $($found:tt)+) => {
        if !$condition {
            return Err($crate::Corruption::new($structure, $check).found(format_args!($($found)+)));
        }
    };
}
