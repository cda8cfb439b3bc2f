//! Listings of directories, with and without attributes.

use crate::convert::{FOREVER, attr, generation, kind_of_entry, no_attr};
use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{DirEntry, Result, Volume};

/// Entries that are read from a directory before their inodes are read, so that the directory is not locked meanwhile.
const BATCH: usize = 64;

pub(crate) fn plain(filesystem: &Volume, dir: InodeNumber, offset: u64, reply: &mut ReplyDirectory) -> Result<()> {
    // No entry has an offset of more than 32 bits.
    let Ok(cookie) = u32::try_from(offset) else { return Ok(()) };
    filesystem.read_dir(dir, cookie, |entry| {
        let name = OsStr::from_bytes(entry.name);
        let full = reply.add(INodeNo(entry.inode.0), entry.next_cookie.into(), kind_of_entry(entry.file_type), name);
        if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

pub(crate) fn plus(filesystem: &Volume, dir: InodeNumber, offset: u64, reply: &mut ReplyDirectoryPlus) -> Result<()> {
    let Ok(mut cookie) = u32::try_from(offset) else { return Ok(()) };
    loop {
        let batch = batch(filesystem, dir, cookie)?;
        for entry in &batch {
            if !add(filesystem, entry, reply) {
                return Ok(());
            }
        }
        match batch.last() {
            Some(last) if batch.len() == BATCH => cookie = last.next_cookie,
            _ => return Ok(()),
        }
    }
}

fn batch(filesystem: &Volume, dir: InodeNumber, cookie: u32) -> Result<Vec<DirEntry>> {
    let mut entries = Vec::with_capacity(BATCH);
    filesystem.read_dir(dir, cookie, |entry| {
        entries.push(entry.into());
        if entries.len() == BATCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(entries)
}

/// Adds an entry with the attributes of its inode, which the kernel then caches as after a look-up.
fn add(filesystem: &Volume, entry: &DirEntry, reply: &mut ReplyDirectoryPlus) -> bool {
    let number = entry.inode;
    let dots = entry.name == b"." || entry.name == b"..";
    let known = if dots { None } else { reference_and_stat(filesystem, number) };
    let nothing = no_attr(kind_of_entry(entry.file_type));
    // The kernel shows the numbers of `.` and `..` and caches nothing of them.
    let nothing = if dots { FileAttr { ino: INodeNo(number.0), ..nothing } } else { nothing };
    let (attributes, generation) = known.unwrap_or((nothing, Generation(0)));
    let name = OsStr::from_bytes(&entry.name);
    let full = reply.add(INodeNo(number.0), entry.next_cookie.into(), name, &FOREVER, &attributes, generation);
    if full && known.is_some() {
        drop_reference(filesystem, number);
    }
    !full
}

/// `None` for an inode that cannot be read; the listing shows its name all the same.
fn reference_and_stat(filesystem: &Volume, number: InodeNumber) -> Option<(FileAttr, Generation)> {
    filesystem.add_reference(number).ok()?;
    match filesystem.stat(number) {
        Ok(stat) => Some((attr(&stat), generation(&stat))),
        Err(_) => {
            drop_reference(filesystem, number);
            None
        }
    }
}

fn drop_reference(filesystem: &Volume, number: InodeNumber) {
    if let Err(error) = filesystem.drop_references(number, 1) {
        tracing::error!(%error, inode = number.0, "an unlinked inode could not be freed");
    }
}
