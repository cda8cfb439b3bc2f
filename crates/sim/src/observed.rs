//! The tree as a filesystem shows it. Parent pointers are not in it; the check of the image covers them.

use crate::contents::Contents;
use crate::times::Changed;
use crate::tree::{Described, Digested, Settings, Tree};
use std::cell::RefCell;
use xfskit::volume::{Error, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_SYMLINK, MODE_TYPE, flags, flags2};

/// Flags that say how an inode is stored.
const OF_THE_FORMAT: u64 = flags2::REFLINK | flags2::BIGTIME | flags2::NREXT64;

/// A filesystem to be compared.
pub struct Observed<'a> {
    fs: &'a Volume,
    files: RefCell<Vec<InodeNumber>>,
}

impl<'a> Observed<'a> {
    /// Looks at a filesystem.
    pub fn new(fs: &'a Volume) -> Self {
        Self { fs, files: RefCell::default() }
    }

    /// The regular files that were seen, each once, with their contents and times.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn contents(&self) -> Result<Vec<(InodeNumber, Contents, Changed)>, Error> {
        let mut files = self.files.borrow().clone();
        files.sort_unstable();
        files.dedup();
        let read = |inode| Ok((inode, Contents::read(self.fs, inode)?, changed(self.fs, inode)?));
        files.into_iter().map(read).collect()
    }
}

/// When an inode was changed.
///
/// # Errors
/// The filesystem's.
pub fn changed(fs: &Volume, inode: InodeNumber) -> Result<Changed, Error> {
    let stat = fs.stat(inode)?;
    Ok(Changed { mtime: stat.mtime, ctime: stat.ctime })
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
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            atime: stat.atime,
            changed: Changed { mtime: stat.mtime, ctime: stat.ctime },
            birth_time: stat.birth_time,
            settings: settings(fs, inode)?,
            links: stat.links,
            device: stat.device,
            ..Described::default()
        };
        match stat.mode & MODE_TYPE {
            MODE_DIR => {
                let dots = |name: &[u8]| name == b"." || name == b"..";
                let entries = fs.list_dir(inode)?.into_iter().filter(|entry| !dots(&entry.name));
                described.entries = entries.map(|entry| (entry.name.to_vec(), entry.inode.0)).collect();
                described.entries.sort();
            }
            MODE_REGULAR => self.files.borrow_mut().push(inode),
            MODE_SYMLINK => described.target = fs.read_link(inode)?,
            _ => {}
        }
        for name in fs.list_xattr(inode)? {
            let value = fs.get_xattr(inode, &name)?;
            described.xattrs.push((name, Digested::of(&value)));
        }
        described.xattrs.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(described)
    }
}
