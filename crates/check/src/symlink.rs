//! Symbolic links: the target in the inode, or in runs of blocks with a header each.

use crate::context::Context;
use crate::fork::{Fork, InodeView, Map};
use crate::report::{Consequence, Fault};
use xfskit_ondisk::part_header::{PART_CRC_OFFSET, PART_LSN_OFFSET};
use xfskit_ondisk::symlink::{capacity, decode_run, verify_symlink};
use xfskit_ondisk::{Corruption, DiskAddress, Extent, ForkFormat, Verdict, checksum_matches};

const NAME: &str = "symbolic link";

/// Checks the target of a link.
pub(crate) fn check(context: &Context<'_>, inode: &InodeView<'_>, map: &Map) {
    let size = inode.core.size as usize;
    let mut target = Vec::new();
    if inode.core.data_format == ForkFormat::Local {
        target.extend_from_slice(&inode.fork(context, Fork::Data)[..size]);
    } else {
        for extent in &map.extents {
            if target.len() >= size {
                break;
            }
            match read_run(context, inode, extent, target.len(), size) {
                Ok(Some(part)) => target.extend_from_slice(&part),
                Ok(None) => return,
                Err(corruption) => {
                    context.report(Fault::of(&corruption, inode.owner(), Consequence::Contents));
                    return;
                }
            }
        }
    }
    let fault = |check, found: String| {
        context
            .report(Fault::new(NAME, check, Consequence::Contents).at(inode.address).inode(inode.number).found(found));
    };
    if target.len() != size {
        fault("the target has the inode's size", format!("{} of {size} bytes", target.len()));
    } else if target.contains(&0) {
        fault("the target has no zero bytes", String::new());
    }
}

fn read_run(
    context: &Context<'_>,
    inode: &InodeView<'_>,
    extent: &Extent,
    offset: usize,
    size: usize,
) -> Verdict<Option<Vec<u8>>> {
    let Some(address) = context.address_of(extent.block) else { return Ok(None) };
    let block_bytes = context.geometry.block_bytes();
    // A target has at most 1024 bytes, whatever the map says.
    let blocks = (extent.count as usize).min((size + block_bytes).div_ceil(capacity(block_bytes)));
    let mut bytes = vec![0; blocks * block_bytes];
    if !context.read(address, &mut bytes, NAME, inode.owner()) {
        return Ok(None);
    }
    decode(context, inode, address, &bytes, offset).map(Some).map_err(|e| e.at(address))
}

fn decode(
    context: &Context<'_>,
    inode: &InodeView<'_>,
    address: DiskAddress,
    bytes: &[u8],
    offset: usize,
) -> Verdict<Vec<u8>> {
    if !checksum_matches(bytes, PART_CRC_OFFSET) {
        return Err(Corruption::new("symbolic link block", "checksum"));
    }
    verify_symlink(&context.geometry, address, bytes)?;
    let lsn = u64::from_be_bytes(bytes[PART_LSN_OFFSET..PART_LSN_OFFSET + 8].try_into().expect("eight bytes"));
    context.check_lsn(lsn, "symbolic link block", address, inode.owner());
    decode_run(inode.number.0, bytes, offset).map(<[u8]>::to_vec)
}
