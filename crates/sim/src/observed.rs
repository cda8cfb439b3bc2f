//! The tree as a filesystem shows it, parent pointers included.

use crate::contents::Contents;
use crate::tree::{Described, Digested, Tree};
use std::cell::RefCell;
use xfskit::{Error, Filesystem};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_SYMLINK, MODE_TYPE};

/// A filesystem to be compared.
pub struct Observed<'a> {
    fs: &'a Filesystem,
    files: RefCell<Vec<InodeNumber>>,
}

impl<'a> Observed<'a> {
    /// Looks at a filesystem.
    pub fn new(fs: &'a Filesystem) -> Self {
        Self { fs, files: RefCell::default() }
    }

    /// The regular files that were seen, each once, with their contents.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn contents(&self) -> Result<Vec<(InodeNumber, Contents)>, Error> {
        let mut files = self.files.borrow().clone();
        files.sort_unstable();
        files.dedup();
        files.into_iter().map(|inode| Ok((inode, Contents::read(self.fs, inode)?))).collect()
    }
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
