//! Finds blocks of large directories again without the extent map and the cache's index ([`DirMemory`]).

use super::{BufId, InoId, Transaction};
use crate::buffer::{BufferKind, Fill};
use crate::error::Result;
use crate::incore::DirMemory;
use std::sync::Arc;
use xfskit_ondisk::FileBlock;

impl Transaction<'_> {
    /// Locks the directory block at a fork block, if it is remembered and still in the cache.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_remembered(
        &mut self,
        ino: InoId,
        at: FileBlock,
        kind: &'static BufferKind,
    ) -> Result<Option<BufId>> {
        let Some(buffer) = self.inode(ino).dir_memory.as_ref().and_then(|memory| memory.buffer(at)) else {
            return Ok(None);
        };
        if self.holds(buffer.key().address()) {
            return self.buffers.use_again(buffer.key(), kind, Fill::Read, self.geometry());
        }
        let content = self.mount.cache.lock_known(&buffer, kind, self.mode)?;
        Ok(content.map(|content| self.buffers.add(buffer, content)))
    }

    /// The memory of a directory, if it is large and the transaction may change anything.
    pub(crate) fn dir_memory_mut(&mut self, ino: InoId) -> Option<&mut DirMemory> {
        if self.is_writable() { self.inode_memory_mut(ino).dir_memory.as_deref_mut() } else { None }
    }

    /// Remembers the directory block that lies at a fork block, if the transaction may change anything and the
    /// directory is large enough.
    pub(crate) fn remember_block(&mut self, ino: InoId, at: FileBlock, id: BufId) {
        let (core, geometry) = (&self.inode(ino).core, self.geometry());
        let blocks = core.blocks >> (geometry.dir_block_log - geometry.block_log);
        let slots = if self.is_writable() && core.is_dir() { DirMemory::slots_for(blocks) } else { 0 };
        if slots == 0 {
            return;
        }
        let buffer = Arc::clone(self.buffers.handle(id));
        let memory = &mut self.inodes.memory_mut(ino).dir_memory;
        if memory.as_ref().is_none_or(|memory| memory.slots() < slots)
            && let Some(charge) = self.mount.cache.charge(DirMemory::bytes(slots))
        {
            let old = memory.take();
            *memory = Some(Box::new(DirMemory::new(slots, charge, old.as_deref())));
        }
        if let Some(memory) = memory {
            memory.remember(at, &buffer);
        }
    }
}
