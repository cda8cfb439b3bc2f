//! Attributes in the inode.

use super::Found;
use crate::context::Context;
use crate::fork::InodeView;
use crate::report::{Consequence, Fault};
use xfskit_ondisk::Corruption;
use xfskit_ondisk::attr::flags;
use xfskit_ondisk::attr::shortform::{ShortformAttr, attrs, verify_shortform};

const NAME: &str = "shortform attributes";

/// Checks the form and calls `take` for each attribute.
pub(super) fn walk(context: &Context<'_>, inode: &InodeView<'_>, fork: &[u8], take: &mut dyn FnMut(&Found<'_>)) {
    let size = fork.first_chunk().map_or(0, |size| usize::from(u16::from_be_bytes(*size)));
    let verdict = match fork.get(..size) {
        Some(bytes) => verify_shortform(bytes).map(|()| bytes),
        None => Err(Corruption::new(NAME, "size").found(size)),
    };
    let bytes = match verdict {
        Ok(bytes) => bytes,
        Err(corruption) => {
            let fault = Fault::of(&corruption, inode.owner(), Consequence::Attributes);
            return context.report(fault.at(inode.address));
        }
    };
    if bytes[2] > 1 {
        find_duplicates(context, inode, bytes);
    }
    // The verifier has made sure that every attribute is whole.
    for attr in attrs(bytes).flatten() {
        take(&Found {
            namespace: attr.namespace,
            name: attr.name,
            value: Some(attr.value),
            hash: None,
            address: inode.address,
            structure: NAME,
        });
    }
}

fn find_duplicates(context: &Context<'_>, inode: &InodeView<'_>, bytes: &[u8]) {
    // Parent pointers with the same name may lead to several directories.
    let key = |attr: &ShortformAttr<'_>| match attr.namespace & flags::PARENT {
        0 => (attr.namespace, attr.name.to_vec(), Vec::new()),
        _ => (attr.namespace, attr.name.to_vec(), attr.value.to_vec()),
    };
    let mut keys: Vec<_> = attrs(bytes).flatten().map(|attr| key(&attr)).collect();
    keys.sort_unstable();
    for pair in keys.windows(2).filter(|pair| pair[0] == pair[1]) {
        let fault = Fault::new(NAME, "names are unique", Consequence::Attributes).at(inode.address);
        context.report(fault.owned(inode.owner()).found(pair[0].1.escape_ascii()));
    }
}
