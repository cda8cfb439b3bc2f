//! A filesystem in memory as a server of a mount uses it.

use super::MemoryVolume;
use crate::{ByNumber, Extras, Handles, InodeNumber, Result};

impl Handles for MemoryVolume {
    type Inode<'v> = ByNumber<'v, Self>;

    fn inode(&self, number: InodeNumber) -> Result<Self::Inode<'_>> {
        Ok(ByNumber::new(self, number))
    }

    fn has_references(&self, inode: InodeNumber) -> bool {
        self.state().node(inode).is_ok_and(|node| node.references > 0)
    }
}

impl Extras for MemoryVolume {}
