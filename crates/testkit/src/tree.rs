//! A tree of files as sorted entries, with everything that two implementations must agree on.

use crc_fast::{CrcAlgorithm, Digest};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path below the root of the tree; empty for the root itself.
    pub path: PathBuf,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links.
    pub links: u64,
    /// Size in bytes of a regular file or a symbolic link; 0 for others, whose sizes may differ between
    /// implementations.
    pub size: u64,
    /// The device of a device file.
    pub rdev: u64,
    /// Time of the last change of the contents: seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Where a symbolic link points.
    pub target: Option<PathBuf>,
    /// Extended attributes by name, including those of the system.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// Checksum of a regular file's contents.
    pub contents: Option<u32>,
}

impl fmt::Display for TreeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{} {:o} {}:{} {} links", self.path.display(), self.mode, self.uid, self.gid, self.links)?;
        write!(f, " {} bytes, rdev {:#x}, mtime {}.{:09}", self.size, self.rdev, self.mtime.0, self.mtime.1)?;
        if let Some(target) = &self.target {
            write!(f, " -> {}", target.display())?;
        }
        if let Some(contents) = self.contents {
            write!(f, " contents {contents:08x}")?;
        }
        self.xattrs.iter().try_for_each(|(name, value)| write!(f, " {name}={}", value.escape_ascii()))
    }
}

/// All files below `root`, and `root` itself, sorted by path.
///
/// # Panics
/// If something cannot be read, which in a test is a finding.
pub fn tree(root: &Path) -> Vec<TreeEntry> {
    let mut entries = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    entries.push(entry(root, root));
    while let Some(folder) = folders.pop() {
        let listing = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for item in listing {
            let path = item.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
            let found = entry(root, &path);
            if rustix::fs::FileType::from_raw_mode(found.mode) == rustix::fs::FileType::Directory {
                folders.push(path);
            }
            entries.push(found);
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

fn entry(root: &Path, path: &Path) -> TreeEntry {
    let fail = |what: &str, e: &dyn fmt::Display| -> ! { panic!("{what} of {}: {e}", path.display()) };
    let data = std::fs::symlink_metadata(path).unwrap_or_else(|e| fail("attributes", &e));
    let kind = data.file_type();
    let contents = kind.is_file().then(|| checksum(path).unwrap_or_else(|e| fail("contents", &e)));
    let target = kind.is_symlink().then(|| std::fs::read_link(path).unwrap_or_else(|e| fail("target", &e)));
    TreeEntry {
        path: path.strip_prefix(root).expect("a path below the root").into(),
        mode: data.mode(),
        uid: data.uid(),
        gid: data.gid(),
        links: data.nlink(),
        size: if kind.is_file() || kind.is_symlink() { data.size() } else { 0 },
        rdev: if kind.is_char_device() || kind.is_block_device() { data.rdev() } else { 0 },
        mtime: (data.mtime(), data.mtime_nsec()),
        target,
        xattrs: xattrs(path).unwrap_or_else(|e| fail("extended attributes", &e)),
        contents,
    }
}

fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    loop {
        match std::io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(digest.finalize() as u32),
            count => digest.update(&buffer[..count]),
        }
    }
}

fn xattrs(path: &Path) -> rustix::io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0u8; 65536];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let mut list = Vec::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 65536];
        let length = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value)?;
        value.truncate(length);
        list.push((String::from_utf8_lossy(name).into_owned(), value));
    }
    list.sort();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_lists_types_contents_and_attributes() {
        let dir = crate::scratch();
        std::fs::create_dir(dir.file("b")).unwrap();
        std::fs::write(dir.file("b/file"), "hello").unwrap();
        std::os::unix::fs::symlink("b/file", dir.file("a")).unwrap();
        let entries = tree(dir.path());
        let paths: Vec<_> = entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["", "a", "b", "b/file"]);
        assert_eq!(entries[1].target.as_deref(), Some(Path::new("b/file")));
        assert_eq!(entries[3].size, 5);
        assert_eq!(entries[3].contents, Some(0x9a71_bb4c));
        std::fs::write(dir.file("b/file"), "hallo").unwrap();
        assert_ne!(tree(dir.path())[3].contents, entries[3].contents);
    }
}
