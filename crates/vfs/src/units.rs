//! Numbers with a unit.

use std::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

unit! {
    /// An inode number: what names a file within its filesystem.
    InodeNumber(u64)
}
unit! {
    /// A place on the device in 512-byte basic blocks (`xfs_daddr_t`).
    DiskAddress(u64)
}

impl DiskAddress {
    /// The address in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 * 512
    }
}
