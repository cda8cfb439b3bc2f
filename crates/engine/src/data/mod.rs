//! Contents of files: where a block is, reading, writing in place, dirty blocks, write-out.
//!
//! ```text
//! read ── dirty blocks, else the device, else zeros
//! write ─┬─ in place          mapped, written, not shared            at once
//!        └─ buffer            everything else                        dirty blocks, until
//!             write_out       window ─▶ device ─▶ map                an extent in each transaction
//! ```
//! `docs/design/contents.md` gives the order in which bytes and maps reach the device, and what a crash may show.
//!
//! Locking: the inode's lock covers its map, its dirty blocks and the I/O on them; writing in place needs it shared,
//! everything else that writes exclusively.

mod buffer;
mod discard;
mod in_place;
mod pack;
mod piece;
mod read;
mod window;
mod write_out;

pub use buffer::{buffer, cut_tail, extend, zero};
pub use discard::discard;
pub use in_place::write_in_place;
pub use pack::{Packed, pack, unpack};
pub use piece::{BlockState, Piece, piece};
pub use read::read;
pub use write_out::{Source, write_out_core, write_out_run};

use crate::error::{Error, Result};
use crate::error_tags::DATA_IOERROR;
use crate::inode::bmap;
use crate::space::refcount;
use crate::sync::atomic::Ordering;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{Corruption, FileBlock, FsBlock};

/// Largest size of a file in bytes.
pub const MAX_SIZE_BYTES: u64 = i64::MAX as u64;

/// Bytes that are written at once where a request takes long, as across a network: the device cuts them and has the
/// parts on their way together.
const LONG_PIECE_BYTES: usize = 8 << 20;

/// Where a block of a file begins, in bytes. A map may reach behind the largest size; the result is then a number
/// larger than every offset in a file.
pub fn file_offset(block: FileBlock, block_log: u8) -> u64 {
    block.0.saturating_mul(1 << block_log)
}

/// Where a block of a file lies on the device, in bytes.
fn device_offset(tx: &Transaction, ino: InoId, block: FsBlock) -> Result<u64> {
    let address = tx.geometry().fs_block_address(block);
    let address =
        address.ok_or_else(|| Corruption::new("extent record", "lies on the device").of(tx.inode(ino).core.inode.0))?;
    Ok(address.bytes())
}

fn read_device(tx: &Transaction, offset: u64, buffer: &mut [u8]) -> Result<()> {
    tx.mount().device.read(offset, buffer).map_err(|source| Error::Io { offset, source })
}

/// Checks blocks of a file that are about to be written in place: if the file shared them, the loss of the other
/// references must be durable.
fn expect_sole_owner(tx: &Transaction, ino: InoId, block: FsBlock, count: u64) -> Result<()> {
    if bmap::may_share(&tx.inode(ino).core) { refcount::expect_durable(tx, block, count) } else { Ok(()) }
}

/// By when contents that were written must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushedBefore {
    /// The records of the next checkpoint: a map or a size in them relies on the contents.
    Records,
    /// An fsync is answered: map and size show the block without them.
    Fsync,
}

impl FlushedBefore {
    /// For a write to a block that is mapped as written, which ends at byte `end` of the file.
    fn of_write(tx: &Transaction, ino: InoId, end: u64) -> Self {
        if end <= tx.inode(ino).core.size { Self::Fsync } else { Self::Records }
    }
}

/// Writes contents to blocks that the file maps, from byte `within` of the first on.
fn write_mapped(
    tx: &Transaction,
    ino: InoId,
    (block, within): (FsBlock, u64),
    data: &[u8],
    flushed: FlushedBefore,
) -> Result<()> {
    let blocks = (within + data.len() as u64).div_ceil(tx.geometry().block_bytes() as u64);
    expect_sole_owner(tx, ino, block, blocks)?;
    write_device(tx, device_offset(tx, ino, block)? + within, data, flushed)
}

/// Whether the device's requests take so long that fewer of them are worth a copy of the bytes.
fn is_far(tx: &Transaction) -> bool {
    tx.mount().device.hints().queue_depth > 1
}

/// Writes contents.
fn write_device(tx: &Transaction, offset: u64, data: &[u8], flushed: FlushedBefore) -> Result<()> {
    let journal = &tx.mount().journal;
    journal.check()?;
    tx.mount().error_tags.fail(DATA_IOERROR)?;
    tx.mount().device.write(offset, data).map_err(|source| Error::Io { offset, source })?;
    match flushed {
        FlushedBefore::Records => journal.ordered_flag().store(true, Ordering::Release),
        FlushedBefore::Fsync => journal.note_in_place(),
    }
    Ok(())
}
