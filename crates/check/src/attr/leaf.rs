//! Leaves of attributes, alone or in a tree.

use super::{Found, remote};
use crate::context::Context;
use crate::da::{DaForm, DaWalk};
use crate::fork::{InodeView, Map};
use crate::report::{Consequence, Fault};
use xfskit_ondisk::attr::leaf::{
    LEAF_ENTRY_BYTES, LEAF_HEADER_BYTES, LeafAttr, LeafValue, attrs, leaf_entries, leaf_header, verify_leaf,
};
use xfskit_ondisk::attr::{flags, hash_attr};
use xfskit_ondisk::{DiskAddress, FileBlock};

const NAME: &str = "attr leaf block";
const KNOWN_FLAGS: u8 = flags::LOCAL | flags::NAMESPACE | flags::INCOMPLETE;

const FORM: DaForm = DaForm {
    root: FileBlock(0),
    blocks: 1,
    name: NAME,
    verify_leaf,
    first_hash: |bytes| leaf_entries(bytes).first().map(|entry| entry.hash.get()),
    consequence: Consequence::Attributes,
};

/// Checks the leaves and calls `take` for each attribute that is complete.
pub(super) fn walk(context: &Context<'_>, inode: &InodeView<'_>, map: &Map, take: &mut dyn FnMut(&Found<'_>)) {
    let mut value_blocks = 0;
    let mut incomplete = 0u32;
    let mut tree = DaWalk::new(context, inode, map, FORM);
    tree.walk(&mut |bytes, address| {
        check_space(context, inode, bytes, address);
        // The verifier has made sure that every attribute is whole.
        for attr in attrs(bytes).flatten() {
            if attr.is_incomplete() {
                incomplete += 1;
                continue;
            }
            check_entry(context, inode, &attr, address);
            let value = match attr.value {
                LeafValue::Local(value) => Some(value),
                LeafValue::Remote { block, length } => {
                    value_blocks += remote::check(context, inode, map, block, length as usize);
                    None
                }
            };
            take(&Found {
                namespace: attr.namespace(),
                name: attr.name,
                value,
                hash: Some(attr.hash),
                address,
                structure: NAME,
            });
        }
    });
    let (number, mapped, named) = (inode.number, map.blocks_in(0..u64::MAX), tree.blocks + value_blocks);
    if incomplete > 0 {
        context.faults.note(format!("inode {number} has {incomplete} incomplete attributes, which no program sees"));
    } else if tree.whole && mapped > named {
        // A crash between the steps of a large value leaves such blocks, here and in the kernel.
        let unnamed = mapped - named;
        context.faults.note(format!("inode {number} keeps {unnamed} blocks for values that were never set"));
    } else if tree.whole && mapped < named {
        let found = format!("{mapped} mapped, {} of the tree, {value_blocks} of values", tree.blocks);
        inode.fault(context, "values share no blocks", found, Consequence::Attributes);
    }
}

fn check_entry(context: &Context<'_>, inode: &InodeView<'_>, attr: &LeafAttr<'_>, address: DiskAddress) {
    let fault = |check, found: String| {
        context.report(Fault::new(NAME, check, Consequence::Attributes).at(address).owned(inode.owner()).found(found));
    };
    let value = if let LeafValue::Local(value) = attr.value { value } else { &[] };
    let hash = hash_attr(attr.namespace(), attr.name, value);
    if hash != attr.hash {
        fault("hash of the name", format!("{:#x} instead of {hash:#x}: {}", attr.hash, attr.name.escape_ascii()));
    }
    if attr.flags & !KNOWN_FLAGS != 0 {
        fault("only known flags", format!("{:#x}: {}", attr.flags, attr.name.escape_ascii()));
    }
}

/// Checks that names, values and free runs do not overlap, and that the header's count of bytes is right.
fn check_space(context: &Context<'_>, inode: &InodeView<'_>, bytes: &[u8], address: DiskAddress) {
    let fault = |check, found: String| {
        context.report(Fault::new(NAME, check, Consequence::Attributes).at(address).owned(inode.owner()).found(found));
    };
    let header = leaf_header(bytes);
    let table = LEAF_HEADER_BYTES + usize::from(header.count.get()) * LEAF_ENTRY_BYTES;
    let mut runs: Vec<(usize, usize)> = attrs(bytes).flatten().map(|attr| (attr.offset, attr.size())).collect();
    let used: usize = runs.iter().map(|run| run.1).sum();
    if used != usize::from(header.used_bytes.get()) {
        fault("bytes that names and values take", format!("{} instead of {used}", header.used_bytes));
    }
    for run in &header.free {
        let (start, length) = (usize::from(run.start.get()), usize::from(run.length.get()));
        if length > 0 && start < table {
            fault("free runs lie behind the entries", format!("{length} at {start}"));
        }
        if length > 0 {
            runs.push((start, length));
        }
    }
    runs.sort_unstable();
    if let Some(pair) = runs.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        fault("names, values and free runs do not overlap", format!("{:?}, {:?}", pair[0], pair[1]));
    }
}
