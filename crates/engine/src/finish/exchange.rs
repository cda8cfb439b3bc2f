//! Exchange intents (XMI): two forks exchange what they map, piece by piece.
//!
//! ```text
//! step   the next two pieces of equal length, each a part of one record or a hole: both leave their maps and enter the
//!        other's, reverse mappings included; in the last step the files get their sizes and flags
//! rest   the same exchange from behind these pieces
//! ```
//! Pieces that are the same in both forks, and holes and unwritten pieces of the first file if the exchange is of
//! written contents, are passed over.
//!
//! The new sizes of the files are those in the intent. The kernel's recovery takes them from the inodes instead, which
//! differs when some steps were done before the crash.
//!
//! An exchanged directory or symbolic link keeps its form, even where a smaller one would do.

use super::inode;
use crate::attr::EmptyFork;
use crate::error::Result;
use crate::error_tags::EXCHMAPS_FINISH_ONE;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::space::step_reservation;
use crate::trans::deferred::{StepResult, Work};
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::inode::flags2;
use xfskit_ondisk::log_items::exchange::{encode_intent, flags};
use xfskit_ondisk::log_items::{ExchangeIntent, encode_done};
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// An exchange, or the rest of one.
pub(super) struct Exchange(ExchangeIntent);

/// A part of a fork that is one record's or a hole.
#[derive(Clone, Copy)]
struct Piece {
    at: FileBlock,
    count: u64,
    /// `None` for a hole.
    block: Option<FsBlock>,
    unwritten: bool,
}

impl Piece {
    fn extent(self) -> Option<Extent> {
        self.block.map(|block| Extent { file_block: self.at, block, count: self.count, unwritten: self.unwritten })
    }
}

/// The piece of the fork that starts at `at`, `most` blocks at most.
fn piece(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, most: u64) -> Result<Piece> {
    let list = bmap::extents(tx, ino, fork)?;
    let index = list.index_at(at);
    Ok(match list.get(index) {
        Some(extent) if extent.file_block <= at => Piece {
            at,
            count: (extent.end().0 - at.0).min(most),
            block: Some(FsBlock(extent.block.0 + (at.0 - extent.file_block.0))),
            unwritten: extent.unwritten,
        },
        Some(extent) => Piece { at, count: (extent.file_block.0 - at.0).min(most), block: None, unwritten: false },
        None => Piece { at, count: most, block: None, unwritten: false },
    })
}

impl Exchange {
    pub(super) fn new(mount: &Arc<Mount>, intent: ExchangeIntent) -> Result<Self> {
        for side in 0..2 {
            inode::named(mount, intent.inodes[side], Some(intent.generations[side]))?;
        }
        Ok(Self(intent))
    }

    fn has(&self, flag: u64) -> bool {
        self.0.flags & flag != 0
    }

    fn fork(&self) -> ForkKind {
        if self.has(flags::ATTR_FORK) { ForkKind::Attr } else { ForkKind::Data }
    }

    fn advance(&mut self, blocks: u64) {
        self.0.offsets = self.0.offsets.map(|at| at.add(blocks));
        self.0.count -= blocks;
    }

    /// Goes to the next two pieces that must change places.
    fn next_pieces(&mut self, tx: &mut Transaction, inos: [InoId; 2]) -> Result<Option<[Piece; 2]>> {
        let fork = self.fork();
        while self.0.count > 0 {
            let mut first = piece(tx, inos[0], fork, self.0.offsets[0], self.0.count)?;
            if self.has(flags::FILE1_WRITTEN) && (first.block.is_none() || first.unwritten) {
                self.advance(first.count);
                continue;
            }
            let second = piece(tx, inos[1], fork, self.0.offsets[1], first.count)?;
            first.count = second.count;
            if first.block != second.block {
                return Ok(Some([first, second]));
            }
            ensure_on_disk!(
                first.unwritten == second.unwritten,
                "extent map",
                "shared blocks are written for both files or for neither",
                "{:?} of inodes {} and {}",
                first.block,
                self.0.inodes[0],
                self.0.inodes[1]
            );
            self.advance(first.count);
        }
        Ok(None)
    }

    /// Lets two pieces change places.
    fn exchange(&self, tx: &mut Transaction, inos: [InoId; 2], pieces: [Piece; 2]) -> Result<()> {
        let fork = self.fork();
        for side in 0..2 {
            if let Some(extent) = pieces[side].extent() {
                let left = bmap::unmap_extent(tx, inos[side], fork, extent)?;
                assert_eq!(left, 0, "a piece lies within one record");
            }
        }
        for side in 0..2 {
            let moved = Piece { at: pieces[side].at, ..pieces[1 - side] };
            if let Some(extent) = moved.extent() {
                bmap::map_extent(tx, inos[side], fork, extent)?;
            }
            if fork == ForkKind::Data && self.has(flags::SET_SIZES) {
                self.grow(tx, inos[side], moved, self.0.sizes[side]);
            }
        }
        Ok(())
    }

    /// No block may be mapped behind the end of a file: it grows with the pieces, up to its size in the end.
    fn grow(&self, tx: &mut Transaction, ino: InoId, piece: Piece, most: u64) {
        let end = (piece.at.0 + piece.count).saturating_mul(tx.geometry().block_bytes() as u64).min(most);
        if end > tx.inode(ino).core.size {
            tx.inode_mut(ino, InodeFields::CORE).core.size = end;
        }
    }

    /// Gives both files large extent counters if the image has that feature, and lets both share blocks if one may.
    fn prepare(&self, tx: &mut Transaction, inos: [InoId; 2]) -> Result<()> {
        for ino in inos {
            bmap::expect_extents(tx, ino, self.fork())?;
        }
        let mut wanted = inos.iter().fold(0, |flags, &ino| flags | tx.inode(ino).core.flags2) & flags2::REFLINK;
        if tx.geometry().has_large_extent_counts() {
            wanted |= flags2::NREXT64;
        }
        for ino in inos {
            if tx.inode(ino).core.flags2 & wanted != wanted {
                tx.inode_mut(ino, InodeFields::CORE).core.flags2 |= wanted;
            }
            tx.inode_memory_mut(ino).known_absent = Default::default();
        }
        Ok(())
    }

    /// After the last piece: sets the sizes and flags, and makes the second file's attributes shortform where they fit.
    fn conclude(&self, tx: &mut Transaction, inos: [InoId; 2]) -> Result<()> {
        // The intent may also say that a file shares nothing any more (`CLEAR_REFLINK1`, `CLEAR_REFLINK2`). That is not
        // to be believed: pieces that the exchange leaves out keep their blocks, which may be shared. The kernel's
        // recovery ignores it, too (`xfs_xmi_item_recover_intent`), and the mark of a file that shares nothing is
        // legal.
        if self.has(flags::SET_SIZES) && self.fork() == ForkKind::Data {
            for (ino, size) in inos.into_iter().zip(self.0.sizes) {
                tx.inode_mut(ino, InodeFields::CORE).core.size = size;
            }
        }
        if self.fork() == ForkKind::Attr {
            crate::attr::tree::to_shortform(tx, inos[1], EmptyFork::Keep)?;
        }
        Ok(())
    }
}

impl Work for Exchange {
    fn reserve(&self, mount: &Mount) -> Reservation {
        let levels = mount.limits.data_levels.max(mount.limits.attr_levels);
        let one = step_reservation(mount, 0, 4 * (u64::from(levels) + 2));
        Reservation { log_bytes: 2 * one.log_bytes, ..one }
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
        let [first, second] = self.0.inodes;
        // In either order: no other thread locks inodes.
        let first_ino = inode::join(tx, first)?;
        let inos = [first_ino, if first == second { first_ino } else { inode::join(tx, second)? }];
        self.prepare(tx, inos)?;
        if let Some(pieces) = self.next_pieces(tx, inos)? {
            self.exchange(tx, inos, pieces)?;
            self.advance(pieces[0].count);
        }
        if self.0.count > 0 {
            return Ok(StepResult::Roll);
        }
        self.conclude(tx, inos)?;
        Ok(StepResult::Done)
    }

    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_intent(&ExchangeIntent { id, ..self.0 }));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::XMD, id));
    }

    fn error_tag(&self) -> &'static str {
        EXCHMAPS_FINISH_ONE
    }
}
