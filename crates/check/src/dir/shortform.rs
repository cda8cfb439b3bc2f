//! Directories in the inode.

use super::Name;
use crate::context::Context;
use crate::fork::{Fork, InodeView};
use crate::report::{Consequence, Fault};
use std::collections::HashSet;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::FileType;
use xfskit_ondisk::dir::shortform::{Shortform, verify_shortform};

const NAME: &str = "shortform directory";

/// Checks the form and calls `take` for each name, and for `.` and `..`, which have no entries.
pub(super) fn walk(context: &Context<'_>, inode: &InodeView<'_>, take: &mut dyn FnMut(&Name<'_>)) -> bool {
    // The core's verifier made sure that the size fits the fork.
    let bytes = &inode.fork(context, Fork::Data)[..inode.core.size as usize];
    let directory = verify_shortform(&context.geometry, bytes).and_then(|()| Shortform::new(bytes));
    let directory = match directory {
        Ok(directory) => directory,
        Err(corruption) => {
            context.report(Fault::of(&corruption, inode.owner(), Consequence::Names).at(inode.address));
            return false;
        }
    };
    let address = inode.address;
    let mut dot = |name: &[u8], target| take(&Name { name, target, file_type: FileType::Directory, address });
    dot(b".", inode.number);
    dot(b"..", InodeNumber(directory.parent()));
    let mut seen: HashSet<&[u8]> = HashSet::new();
    // The verifier has made sure that every entry is whole.
    for entry in directory.entries().flatten() {
        let twice = directory.count() > 1 && !seen.insert(entry.name);
        if twice || matches!(entry.name, b"." | b"..") {
            let check = if twice { "names are unique" } else { "dots have no entries" };
            let fault = Fault::new(NAME, check, Consequence::Names).at(address).inode(inode.number);
            context.report(fault.found(entry.name.escape_ascii()));
            continue;
        }
        let target = InodeNumber(entry.inode);
        take(&Name { name: entry.name, target, file_type: entry.file_type, address });
    }
    true
}
