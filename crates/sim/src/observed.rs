//! The tree as a filesystem shows it. Parent pointers are not in it; the check of the image covers them.

use crate::contents::Contents;
use crate::times::Times;
use crate::tree::{Described, Digested, Settings, Tree};
use std::cell::RefCell;
use xfskit_engine::{Error, ReadAhead, Stat, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_SYMLINK, MODE_TYPE, flags, flags2};

/// Flags that say how an inode is stored.
const OF_THE_FORMAT: u64 = flags2::REFLINK | flags2::BIGTIME | flags2::NREXT64;

/// A filesystem to be compared.
pub struct Observed<'a> {
    fs: &'a Volume,
    inodes: RefCell<Vec<(InodeNumber, u16)>>,
}

impl<'a> Observed<'a> {
    /// Looks at a filesystem.
    pub fn new(fs: &'a Volume) -> Self {
        Self { fs, inodes: RefCell::default() }
    }

    /// The inodes that were seen, each once, but whiteouts, with their times and, if they are files, their contents.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn contents(&self) -> Result<Vec<(InodeNumber, Contents, Times)>, Error> {
        let mut inodes = self.inodes.borrow().clone();
        inodes.sort_unstable();
        inodes.dedup();
        let read = |(inode, mode)| {
            let is_file = mode & MODE_TYPE == MODE_REGULAR;
            let contents = if is_file { Contents::read(self.fs, inode)? } else { Contents::default() };
            Ok((inode, contents, times(self.fs, inode)?))
        };
        inodes.into_iter().map(read).collect()
    }
}

/// The times of an inode.
///
/// # Errors
/// The filesystem's.
pub fn times(fs: &Volume, inode: InodeNumber) -> Result<Times, Error> {
    Ok(times_of(&fs.stat(inode)?))
}

fn times_of(stat: &Stat) -> Times {
    Times { atime: stat.atime, mtime: stat.mtime, ctime: stat.ctime }
}

/// The flags, the project and the hints of an inode.
fn settings(fs: &Volume, inode: InodeNumber) -> Result<Settings, Error> {
    let inode = fs.mount().inode(inode)?;
    let state = inode.state_lock().read();
    let core = &state.core;
    Ok(Settings {
        flags: core.flags & !flags::PREALLOC,
        flags2: core.flags2 & !OF_THE_FORMAT,
        project: core.project,
        extent_blocks: core.extent_size,
        cow_extent_blocks: core.cow_extent_size,
    })
}

impl Tree for Observed<'_> {
    type Error = Error;

    fn root(&self) -> u64 {
        self.fs.root().0
    }

    fn node(&self, number: u64) -> Result<Described, Error> {
        let fs = self.fs;
        let inode = InodeNumber(number);
        let stat = fs.stat(inode)?;
        let mut described = Described {
            mode: stat.mode(),
            uid: stat.uid,
            gid: stat.gid,
            times: times_of(&stat),
            birth_time: stat.birth_time,
            settings: settings(fs, inode)?,
            links: stat.links,
            device: stat.device,
            ..Described::default()
        };
        if !described.is_whiteout() {
            self.inodes.borrow_mut().push((inode, stat.mode()));
        }
        match stat.mode() & MODE_TYPE {
            MODE_DIR => {
                let dots = |name: &[u8]| name == b"." || name == b"..";
                let listed = fs.list_dir(inode)?;
                let inodes: Vec<_> = listed.iter().map(|entry| entry.inode).collect();
                fs.read_ahead(&inodes, ReadAhead::Listings);
                let entries = listed.into_iter().filter(|entry| !dots(&entry.name));
                described.entries = entries.map(|entry| (entry.name.to_vec(), entry.inode.0)).collect();
                described.entries.sort();
            }
            MODE_SYMLINK => described.target = fs.read_link(inode)?,
            _ => {}
        }
        for name in fs.list_xattrs(inode)? {
            let value = fs.get_xattr(inode, &name)?;
            described.xattrs.push((name, Digested::of(&value)));
        }
        described.xattrs.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(described)
    }
}
