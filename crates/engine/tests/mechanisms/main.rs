//! Each mechanism of attributes and of fsync, pinned: a test that reads the counters, and fails when the mechanism is
//! taken out.
//! `scripts/disable-mechanisms` takes them out one by one. What the mechanisms leave is compared with the kernel.

mod absent;
mod acl;
mod announce;
mod copies;
mod far;
mod fast_path;
mod fsyncs;
mod gathering;
mod in_place;
mod intents;
mod nameless;
#[path = "../refusals/shapes.rs"]
#[allow(dead_code)]
mod shapes;
#[path = "../stress/mod.rs"]
mod stress;
mod whiteouts;

use std::collections::BTreeMap;
use xfskit_engine::error_tags::BMAP_ALLOC_MINLEN_EXTENT;
use xfskit_engine::{AttrLogging, AttrPath, Caller, Error, MountOptions, NewFile, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{TreeEntry, kernel_mount};

/// The features without which no AG has space for itself: what is free in pieces is all that is free.
pub const UNRESERVED: &[(char, &str)] =
    &[('n', "parent=0"), ('i', "exchange=0,nrext64=0"), ('m', "bigtime=0,inobtcount=0,rmapbt=0,reflink=0,finobt=0")];

/// The next long value gets an extent for each of its 17 blocks, if free space is fragmented.
pub fn in_pieces(fs: &Volume) {
    fs.mount().error_tags.arm_for(BMAP_ALLOC_MINLEN_EXTENT, 1, 17);
}

/// Makes a file, a directory or another node with that type and those permissions.
pub fn make(fs: &Volume, dir: InodeNumber, name: &str, mode: u16) -> InodeNumber {
    try_make(fs, dir, name, mode).unwrap()
}

/// As [`make`], where that may fail.
pub fn try_make(fs: &Volume, dir: InodeNumber, name: &str, mode: u16) -> Result<InodeNumber, Error> {
    fs.create(dir, name.as_bytes(), &NewFile::of_mode(mode).unwrap(), &Caller::root()).map(|made| made.inode)
}

/// Makes an empty file in the root directory.
pub fn make_file(fs: &Volume, name: &str) -> InodeNumber {
    make(fs, fs.root(), name, stress::FILE | 0o644)
}

/// Sets an attribute.
pub fn set(fs: &Volume, inode: InodeNumber, name: &str, value: &[u8]) {
    fs.set_xattr(inode, name.as_bytes(), value, SetMode::Any, &Caller::root()).unwrap();
}

/// Every update that may be logged is, and in links of its own.
pub fn intents() -> MountOptions {
    MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..Default::default() }
}

/// What `work` adds to the counters; those to which it adds nothing are left out.
pub fn counted(fs: &Volume, work: impl FnOnce()) -> Counted {
    let before = fs.mount().counters.list();
    work();
    let after = fs.mount().counters.list();
    Counted(before.iter().zip(&after).map(|((name, before), (_, after))| (*name, after - before)).collect())
}

/// Differences of counters.
#[derive(Debug)]
pub struct Counted(BTreeMap<&'static str, u64>);

impl Counted {
    /// What was added to one of them.
    pub fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("there is no counter {name}"))
    }

    /// Asserts the values of some counters.
    #[track_caller]
    pub fn expect(&self, expected: &[(&str, u64)]) {
        let found: Vec<_> = expected.iter().map(|(name, _)| (*name, self.get(name))).collect();
        assert_eq!(found, expected);
    }
}

/// The tree that the kernel finds, after its recovery where the log is dirty; xfs_repair must find nothing. `None` on
/// machines without the kernel's XFS.
pub fn kernels_tree(image: &stress::Image) -> Option<Vec<TreeEntry>> {
    let tree = kernel_mount(&image.path)?.into_tree();
    image.assert_sound();
    Some(tree)
}

/// The value of an attribute in a tree.
pub fn xattr<'t>(tree: &'t [TreeEntry], path: &str, name: &str) -> Option<&'t [u8]> {
    let entry = tree.iter().find(|entry| entry.path.to_str() == Some(path))?;
    entry.xattrs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_slice())
}

/// The intents of a kind in the log, each as the line of xfs_logprint that says how many regions it has.
pub fn logged_intents(image: &stress::Image, kind: &str) -> Option<Vec<String>> {
    let reference = xfskit_testkit::reference()?;
    let output = reference.tool("xfs_logprint", ["-t", "-o", image.path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().filter(|line| line.contains(kind)).map(|line| line.trim().to_owned()).collect())
}
