//! The superblock in memory, and what it announces.

use super::{AttrLogging, Mount};
use crate::buffer::BufferKind;
use crate::sync::atomic::Ordering;
use xfskit_ondisk::features::{LogIncompat, VersionFlags};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET;
use xfskit_ondisk::{DiskAddress, Geometry, RawSuperblock, Verdict};

/// The superblock of AG 0 as a buffer.
pub static SUPERBLOCK_KIND: BufferKind = BufferKind {
    name: "superblock",
    family: "superblock",
    log_type: buffer_type::SUPERBLOCK,
    crc_offset: Some(SUPERBLOCK_CRC_OFFSET),
    lsn_offset: Some(240),
    verify: verify_superblock,
    refine: None,
};

fn verify_superblock(_: &Geometry, _: DiskAddress, bytes: &[u8]) -> Verdict {
    let magic = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    xfskit_ondisk::ensure!(magic == xfskit_ondisk::superblock::SUPERBLOCK_MAGIC, "superblock", "magic number");
    Ok(())
}

impl Mount {
    /// The superblock's fields as they are now, the lazy counters included.
    pub fn superblock(&self) -> RawSuperblock {
        let mut raw = self.superblock.lock().clone();
        let (inodes, free) = self.space.inodes();
        raw.inode_count = inodes.into();
        raw.free_inodes = free.into();
        raw.free_blocks = self.space.free_blocks().into();
        raw
    }

    /// Whether attribute intents other than those of parent pointers may be logged: recovery refuses them in an image
    /// whose superblock does not announce them.
    pub fn may_log_attr_intents(&self) -> bool {
        LogIncompat::from_bits_truncate(self.superblock.lock().log_incompat.get()).contains(LogIncompat::XATTRS)
    }

    /// Records that the superblock on the device announces attribute intents.
    pub(crate) fn note_attr_intents_announced(&self) {
        self.superblock.lock().log_incompat = LogIncompat::XATTRS.bits().into();
    }

    /// Whether updates of attributes are logged by intents where the caller does not say.
    pub fn attr_logging(&self) -> AttrLogging {
        if self.logs_attrs.load(Ordering::Relaxed) { AttrLogging::Always } else { AttrLogging::Never }
    }

    /// Decides that for updates that begin from now on.
    pub fn set_attr_logging(&self, logging: AttrLogging) {
        self.logs_attrs.store(logging == AttrLogging::Always, Ordering::Relaxed);
    }

    /// Whether the superblock says that there are attr forks.
    pub(crate) fn announces_attrs(&self) -> bool {
        self.announces_attrs.load(Ordering::Acquire)
    }

    /// Records that a transaction which sets that flag was committed.
    pub(crate) fn note_attrs_announced(&self) {
        let mut raw = self.superblock.lock();
        raw.version = (raw.version.get() | VersionFlags::ATTR.bits()).into();
        self.announces_attrs.store(true, Ordering::Release);
    }
}
