//! Finds the kind of a metadata block by its contents: recovery reads blocks without knowing what refers to them.

use super::SUPERBLOCK_KIND;
use crate::attr::remote::ATTR_REMOTE_KIND;
use crate::buffer::BufferKind;
use crate::dabtree::{ATTR_LEAF_KIND, DA_NODE_KIND, DIR_LEAFN_KIND};
use crate::dir::{DIR_BLOCK_KIND, DIR_DATA_KIND, DIR_FREE_KIND, DIR_LEAF1_KIND};
use crate::inode::bmap::BMBT_KIND;
use crate::space::{
    AGF_KIND, AGFL_KIND, AGI_KIND, BNOBT_KIND, CNTBT_KIND, FINOBT_KIND, INOBT_KIND, REFCOUNTBT_KIND, RMAPBT_KIND,
};
use crate::symlink::SYMLINK_KIND;
use xfskit_ondisk::ag::{AGF_MAGIC, AGFL_MAGIC, AGI_MAGIC};
use xfskit_ondisk::attr::leaf::ATTR_LEAF_MAGIC;
use xfskit_ondisk::attr::remote::REMOTE_MAGIC;
use xfskit_ondisk::btree::{
    BMBT_MAGIC, BNOBT_MAGIC, CNTBT_MAGIC, FINOBT_MAGIC, INOBT_MAGIC, REFCOUNTBT_MAGIC, RMAPBT_MAGIC,
};
use xfskit_ondisk::da::{DA_NODE_MAGIC, da_magic};
use xfskit_ondisk::dir::data::{DIR_BLOCK_MAGIC, DIR_DATA_MAGIC};
use xfskit_ondisk::dir::free::DIR_FREE_MAGIC;
use xfskit_ondisk::dir::leaf::{DIR_LEAF1_MAGIC, DIR_LEAFN_MAGIC};
use xfskit_ondisk::superblock::SUPERBLOCK_MAGIC;
use xfskit_ondisk::symlink::SYMLINK_MAGIC;

/// The kind of a block that has a checksum and an LSN of its own: all but inodes and quota records.
pub(super) fn kind_of(bytes: &[u8]) -> Option<&'static BufferKind> {
    let magic = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
    Some(match magic {
        SUPERBLOCK_MAGIC => &SUPERBLOCK_KIND,
        AGF_MAGIC => &AGF_KIND,
        AGI_MAGIC => &AGI_KIND,
        AGFL_MAGIC => &AGFL_KIND,
        BNOBT_MAGIC => &BNOBT_KIND,
        CNTBT_MAGIC => &CNTBT_KIND,
        INOBT_MAGIC => &INOBT_KIND,
        FINOBT_MAGIC => &FINOBT_KIND,
        RMAPBT_MAGIC => &RMAPBT_KIND,
        REFCOUNTBT_MAGIC => &REFCOUNTBT_KIND,
        BMBT_MAGIC => &BMBT_KIND,
        DIR_BLOCK_MAGIC => &DIR_BLOCK_KIND,
        DIR_DATA_MAGIC => &DIR_DATA_KIND,
        DIR_FREE_MAGIC => &DIR_FREE_KIND,
        SYMLINK_MAGIC => &SYMLINK_KIND,
        REMOTE_MAGIC => &ATTR_REMOTE_KIND,
        _ => match da_magic(bytes) {
            DA_NODE_MAGIC => &DA_NODE_KIND,
            DIR_LEAF1_MAGIC => &DIR_LEAF1_KIND,
            DIR_LEAFN_MAGIC => &DIR_LEAFN_KIND,
            ATTR_LEAF_MAGIC => &ATTR_LEAF_KIND,
            _ => return None,
        },
    })
}
