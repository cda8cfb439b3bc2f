//! The scan over all inodes, in runs of adjacent blocks; and the unlinked lists.

use crate::ag::chunk_blocks;
use crate::context::Context;
use crate::inode::{Gathered, check_free, check_used};
use crate::report::{Consequence, Fault, Owner};
use std::collections::HashMap;
use xfskit_ondisk::ag::{Agi, UNLINKED_BUCKETS};
use xfskit_ondisk::{AgBlock, AgInode, AgNumber, DiskAddress, InodeNumber, NULL_AG_INODE};

/// Maximum length of a read, in bytes.
const RUN_BYTES: usize = 1 << 20;

/// Adjacent blocks of inodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    ag: AgNumber,
    block: AgBlock,
    blocks: u32,
}

/// All inode blocks, in runs.
pub(crate) fn runs(context: &Context<'_>) -> Vec<Run> {
    let geometry = &context.geometry;
    let most = (RUN_BYTES >> geometry.block_log).max(1) as u32;
    let mut runs: Vec<Run> = Vec::new();
    for (ag, inodes) in context.inodes.ags.iter().enumerate() {
        let ag = AgNumber(ag as u32);
        for chunk in inodes.chunks() {
            for (mut block, mut blocks) in chunk_blocks(geometry, chunk) {
                match runs.last_mut().filter(|last| last.ag == ag) {
                    // A block that contains several chunks is read for the first of them.
                    Some(last) if last.block.0 + last.blocks > block.0 => continue,
                    Some(last) if last.block.0 + last.blocks == block.0 => {
                        let more = blocks.min(most.saturating_sub(last.blocks));
                        last.blocks += more;
                        block = block.add(more);
                        blocks -= more;
                    }
                    _ => {}
                }
                if blocks > 0 {
                    runs.push(Run { ag, block, blocks });
                }
            }
        }
    }
    runs
}

/// Checks the inodes of a run. `buffer` is memory that each run uses again.
pub(crate) fn check_run(context: &Context<'_>, run: Run, buffer: &mut Vec<u8>, gathered: &mut Gathered) {
    let geometry = &context.geometry;
    let start = geometry.address(run.ag, run.block);
    buffer.resize(run.blocks as usize * geometry.block_bytes(), 0);
    if !context.read(start, buffer, "inodes", Owner::Ag(run.ag)) {
        context.owners_unknown();
        context.names_unknown();
        return;
    }
    let inodes = &context.inodes.ags[run.ag.0 as usize];
    let first = geometry.first_inode_of_block(run.block);
    let mut current = None;
    for (index, bytes) in buffer.chunks_exact(geometry.inode_bytes()).enumerate() {
        let within = AgInode(first.0 + index as u32);
        let known = current.filter(|&chunk: &usize| inodes.chunks()[chunk].index_of(within).is_some());
        // A block may contain a chunk that no record names.
        let Some(chunk) = known.or_else(|| inodes.chunk_of(within)) else { continue };
        current = Some(chunk);
        let record = &inodes.chunks()[chunk];
        let bit = within.0 - record.first.0;
        if record.holes() >> bit & 1 == 1 {
            continue;
        }
        let number = geometry.inode_number(run.ag, within);
        let address = DiskAddress(start.0 + ((index << geometry.inode_log) >> 9) as u64);
        if record.free >> bit & 1 == 1 {
            check_free(context, number, address, bytes);
        } else {
            check_used(context, number, address, bytes, inodes.slot(chunk, bit), gathered);
        }
    }
}

/// Follows the unlinked lists of an AG, which must contain exactly the inodes without a name, each in its bucket.
/// `unlinked` are those inodes of the AG, each with the next one of its list.
pub(crate) fn check_unlinked(context: &Context<'_>, ag: AgNumber, agi: &Agi, unlinked: &[(InodeNumber, AgInode)]) {
    let geometry = &context.geometry;
    let fault = |check, found: String| {
        let fault = Fault::new("unlinked list", check, Consequence::Inodes).at(geometry.ag_header(ag, 2)).ag(ag);
        context.report(fault.found(found));
    };
    let within = |inode: InodeNumber| geometry.split_inode(inode).map(|(_, within)| within);
    let mut waiting: HashMap<AgInode, AgInode> =
        unlinked.iter().filter_map(|&(inode, next)| Some((within(inode)?, next))).collect();
    for (bucket, head) in agi.unlinked.iter().enumerate() {
        let mut at = AgInode(head.get());
        while at != NULL_AG_INODE {
            if at.0 as usize % UNLINKED_BUCKETS != bucket {
                fault("inodes are in their bucket", format!("inode {at} of the AG in bucket {bucket}"));
                break;
            }
            let Some(next) = waiting.remove(&at) else {
                let found = format!("inode {at} of the AG in bucket {bucket}");
                fault("has only inodes in use that have no name, each once", found);
                break;
            };
            at = next;
        }
    }
    let mut lost: Vec<AgInode> = waiting.into_keys().collect();
    lost.sort_unstable();
    for inode in lost {
        let number = geometry.inode_number(ag, inode);
        let fault =
            Fault::new("inode", "without a name, so on an unlinked list", Consequence::Unreachable).inode(number);
        let fault = match context.inode_address(number) {
            Some(address) => fault.at(address),
            None => fault,
        };
        context.report(fault.found(format_args!("bucket {}", inode.0 as usize % UNLINKED_BUCKETS)));
    }
}
