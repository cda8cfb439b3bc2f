//! Values in blocks of their own.

use crate::context::Context;
use crate::fork::{InodeView, Map};
use crate::report::{Consequence, Fault};
use xfskit_ondisk::FileBlock;
use xfskit_ondisk::attr::remote::{blocks_for, bytes_per_block, decode_block};

const NAME: &str = "remote attr block";

/// Checks the value of `length` bytes from fork block `block`; returns the number of its blocks.
pub(super) fn check(context: &Context<'_>, inode: &InodeView<'_>, map: &Map, block: u32, length: usize) -> u64 {
    let geometry = &context.geometry;
    let per_block = bytes_per_block(geometry);
    let blocks = blocks_for(geometry, length);
    for index in 0..blocks {
        let at = FileBlock(u64::from(block) + u64::from(index));
        let offset = index as usize * per_block;
        let Some((address, bytes)) = map.read(context, at, 1, NAME, inode.owner()) else {
            let fault = Fault::new(NAME, "every block of the value is mapped", Consequence::Attributes);
            context.report(fault.at(inode.address).owned(inode.owner()).found(format_args!("fork block {at}")));
            break;
        };
        let part = per_block.min(length - offset);
        if let Err(corruption) = decode_block(geometry, inode.number.0, address, &bytes, offset, part) {
            context.report(Fault::of(&corruption.at(address), inode.owner(), Consequence::Attributes));
        }
    }
    blocks.into()
}
