//! Listings of directories, with and without attributes.

use crate::convert::mode_of_entry;
use std::ops::ControlFlow;
use xfskit_fuse_session::{Entry, Listed, Listing, ListingPlus, Room};
use xfskit_vfs::{DirEntry, Handle, Handles, InodeNumber, ReadAhead, Result, Stat, Volume};

/// Entries that are read from a directory before their inodes are read, so that the directory is not locked meanwhile.
const BATCH: usize = 64;
/// The same where the device's requests take long: the inodes of a batch are read at the same time.
const FAR_BATCH: usize = 512;

pub(crate) fn plain(filesystem: &impl Volume, dir: InodeNumber, offset: u64, listing: &mut Listing<'_>) -> Result<()> {
    filesystem.read_dir(dir, offset, &mut |entry| {
        let listed = Listed {
            inode: entry.inode.0,
            next_offset: entry.next_cookie,
            mode: mode_of_entry(entry.file_type),
            name: entry.name,
        };
        if listing.add(&listed) == Room::Full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// As [`plain`], with what `tell` makes of the attributes for the kernel.
pub(crate) fn plus(
    filesystem: &impl Handles,
    dir: InodeNumber,
    offset: u64,
    listing: &mut ListingPlus<'_>,
    tell: impl Fn(&Stat) -> Entry,
) -> Result<()> {
    let mut cookie = offset;
    let is_far = filesystem.queue_depth() > 1;
    loop {
        let batch = batch(filesystem, dir, cookie, BATCH)?;
        // One reply has room for a part of what is brought; those behind it find the rest in the cache.
        if is_far && batch.iter().any(|entry| !filesystem.is_cached(entry.inode)) {
            let ahead = self::batch(filesystem, dir, cookie, FAR_BATCH)?;
            filesystem.read_ahead(&ahead.iter().map(|entry| entry.inode).collect::<Vec<_>>(), ReadAhead::Inodes);
        }
        for entry in &batch {
            if add(filesystem, entry, listing, &tell) == Room::Full {
                return Ok(());
            }
        }
        match batch.last() {
            Some(last) if batch.len() == BATCH => cookie = last.next_cookie,
            _ => return Ok(()),
        }
    }
}

fn batch(filesystem: &impl Volume, dir: InodeNumber, cookie: u64, most: usize) -> Result<Vec<DirEntry>> {
    let mut entries = Vec::with_capacity(most);
    filesystem.read_dir(dir, cookie, &mut |entry| {
        entries.push(entry.into());
        if entries.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(entries)
}

/// Adds an entry with the attributes of its inode, which the kernel then caches as after a look-up. Of `.` and `..` it
/// shows the numbers and caches nothing.
fn add(
    filesystem: &impl Handles,
    found: &DirEntry,
    listing: &mut ListingPlus<'_>,
    tell: impl Fn(&Stat) -> Entry,
) -> Room {
    let number = found.inode;
    let is_dot = found.name == b"." || found.name == b"..";
    // Of an inode that cannot be read the listing shows the name all the same.
    let grab = || filesystem.inode(number)?.grab();
    let known = if is_dot { None } else { grab().ok().map(|stat| tell(&stat)) };
    let listed = Listed {
        inode: number.0,
        next_offset: found.next_cookie,
        mode: mode_of_entry(found.file_type),
        name: &found.name,
    };
    let room = listing.add(&listed, known.as_ref());
    if room == Room::Full && known.is_some() {
        drop_reference(filesystem, number);
    }
    room
}

fn drop_reference(filesystem: &impl Volume, number: InodeNumber) {
    if let Err(error) = filesystem.drop_references(number, 1) {
        tracing::error!(%error, inode = number.0, "an unlinked inode could not be freed");
    }
}
