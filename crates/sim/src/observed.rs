//! The tree as a filesystem shows it, parent pointers included.

use crate::tree::{Described, Digested, Tree};
use xfskit::{Error, Filesystem};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::{MODE_DIR, MODE_SYMLINK, MODE_TYPE};

/// A filesystem to be compared.
pub struct Observed<'a>(pub &'a Filesystem);

impl Tree for Observed<'_> {
    type Error = Error;

    fn root(&self) -> u64 {
        self.0.root().0
    }

    fn node(&self, number: u64) -> Result<Described, Error> {
        let fs = self.0;
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
