//! The tree in terms that we, the kernel and the model have in common.

use crate::node::{LINK, Node, TYPE};
use crate::stress::{DIR, FILE};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xfskit_engine::Volume;
use xfskit_testkit::{TreeEntry, tree};

/// An entry in few words.
pub fn brief(entry: &TreeEntry) -> String {
    let mut text = format!("{}\n", TreeEntry { xattrs: Vec::new(), ..entry.clone() });
    for (name, value) in &entry.xattrs {
        let sum = value.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        text += &format!("    {name}: {} bytes, {sum:x}\n", value.len());
    }
    text
}

pub fn entry(path: PathBuf, node: &Node) -> TreeEntry {
    let kind = node.mode & TYPE;
    let mut xattrs: Vec<_> =
        node.xattrs.iter().map(|(n, v)| (String::from_utf8_lossy(n).into_owned(), v.clone())).collect();
    xattrs.sort();
    TreeEntry {
        path,
        mode: node.mode.into(),
        uid: node.uid,
        gid: node.gid,
        links: node.links.into(),
        size: node.target.len() as u64,
        rdev: node.rdev.into(),
        mtime: (node.mtime.seconds, node.mtime.nanoseconds.into()),
        target: (kind == LINK).then(|| OsStr::from_bytes(&node.target).into()),
        xattrs,
        contents: (kind == FILE).then_some(0),
    }
}

/// The tree as we read it. Contents of files are not ours to read.
pub fn seen_by_us(fs: &Volume) -> Vec<TreeEntry> {
    let mut entries = Vec::new();
    let mut todo = vec![(PathBuf::new(), fs.root())];
    while let Some((path, inode)) = todo.pop() {
        let stat = fs.stat(inode).unwrap();
        let kind = stat.mode() & TYPE;
        if kind == DIR {
            for entry in fs.list_dir(inode).unwrap() {
                assert_eq!(fs.lookup_number(inode, &entry.name).unwrap(), entry.inode);
                todo.push((path.join(OsStr::from_bytes(&entry.name)), entry.inode));
            }
        }
        // The raw attributes of ACLs are listed too, for programs that restore them.
        let names = fs.list_xattrs(inode).unwrap();
        let mut xattrs: Vec<_> = names
            .into_iter()
            .map(|name| (String::from_utf8_lossy(&name).into_owned(), fs.get_xattr(inode, &name).unwrap()))
            .collect();
        xattrs.retain(|(name, _)| !name.starts_with("trusted.SGI_ACL_"));
        xattrs.sort();
        entries.push(TreeEntry {
            path,
            mode: stat.mode().into(),
            uid: stat.uid,
            gid: stat.gid,
            links: stat.links.into(),
            size: if matches!(kind, FILE | LINK) { stat.size } else { 0 },
            rdev: stat.device.into(),
            mtime: (stat.mtime.seconds, stat.mtime.nanoseconds.into()),
            target: (kind == LINK).then(|| OsStr::from_bytes(&fs.read_link(inode).unwrap()).into()),
            xattrs,
            contents: (kind == FILE).then_some(0),
        });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// The tree as the kernel reads it, in the same terms as [`seen_by_us`].
pub fn seen_by_kernel(root: &Path, contents: bool) -> Vec<TreeEntry> {
    let mut entries = tree(root);
    for entry in &mut entries {
        entry.xattrs.retain(|(name, _)| !name.starts_with("trusted.SGI_ACL_"));
        if !contents {
            entry.contents = entry.contents.map(|_| 0);
        }
    }
    entries
}
