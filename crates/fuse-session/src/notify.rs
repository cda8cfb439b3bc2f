//! Notices: what the kernel is to drop from its cache.

use crate::abi::{RawInvalEntryOut, RawInvalInodeOut, RawPruneOut, notice};
use crate::channel::Channel;
use std::io;
use zerocopy::IntoBytes;

/// Sends notices. It keeps the connection open.
#[derive(Clone, Debug)]
pub struct Notifier(pub(crate) Channel);

impl Notifier {
    /// Makes the kernel drop the attributes of an inode and, where `offset` is not negative, its cached contents from
    /// there on, `length` bytes, or all if that is not positive. Dirty pages are written back first, by requests: a
    /// thread that answers those must not wait for this. Nothing happens for an inode that the kernel does not know.
    ///
    /// # Errors
    /// The system's.
    pub fn inval_inode(&self, node: u64, offset: i64, length: i64) -> io::Result<()> {
        let notice_of = RawInvalInodeOut { ino: node, off: offset, len: length };
        self.0.send(0, notice::INVAL_INODE, &[notice_of.as_bytes()])
    }

    /// Makes the kernel forget inodes, those of them that no program uses.
    ///
    /// # Errors
    /// `InvalidInput` from a kernel that does not know this notice, before Linux 6.18; the system's.
    pub fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        let notice_of = RawPruneOut { count: nodes.len() as u32, ..RawPruneOut::default() };
        self.0.send(0, notice::PRUNE, &[notice_of.as_bytes(), nodes.as_bytes()])
    }

    /// Makes the kernel drop a name in a directory. It takes the directory's lock, so a thread that answers a request
    /// about that directory must not call it.
    ///
    /// # Errors
    /// The system's.
    pub fn inval_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        let notice_of = RawInvalEntryOut { parent: dir, namelen: name.len() as u32, flags: 0 };
        self.0.send(0, notice::INVAL_ENTRY, &[notice_of.as_bytes(), name, &[0]])
    }
}
