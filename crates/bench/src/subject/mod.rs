//! What is measured: something with files.

mod engine;
mod path;

pub(crate) use engine::Engine;
pub(crate) use path::{PathTarget, server_counts, server_requests};

use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// Names that are listed before they are removed, so that memory does not grow with the directory.
pub(crate) const PIECE: usize = 4096;

/// What a target has counted so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: Option<u64>,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) others: BTreeMap<String, u64>,
}

/// What a reader of a report has to know of a target.
#[derive(Clone, Debug, Default, Serialize)]
pub struct About {
    /// How it is reached.
    pub how: String,
    /// The geometry of the image, in mkfs.xfs's words, or what is known instead.
    pub geometry: String,
    /// The options of the mount.
    pub options: String,
    /// What was durable, and when.
    pub durability: String,
}

/// Something with directories and files. Several threads may call its methods at once.
pub(crate) trait Target: Sync {
    /// A directory as later calls name it.
    type Dir: Send + Sync;
    /// A file as later calls name it.
    type File: Clone + Send + Sync;
    /// A directory that is being listed, and the position reached.
    type Listing: Send;

    fn about(&self) -> About;
    /// The directory in which everything is done.
    fn base(&self) -> &Self::Dir;
    fn make_dir(&self, parent: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;
    /// Makes an empty file. [`Self::file`] takes the number that is returned.
    fn create(&self, dir: &Self::Dir, name: &[u8]) -> Result<u64>;
    /// The file for which [`Self::create`] returned `made`.
    fn file(&self, dir: &Self::Dir, name: &[u8], made: u64) -> Self::File;
    /// The file after a rename to `name` in `dir`.
    fn renamed(&self, dir: &Self::Dir, name: &[u8], file: Self::File) -> Self::File;
    /// Looks a name up and asks for the file's attributes.
    fn stat(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;
    /// Asks for a file's ACL and capabilities, as the kernel's VFS does when a file is opened or written. A target
    /// behind a kernel does nothing here, since the kernel asks.
    fn ask_permission(&self, file: &Self::File) -> Result<()>;
    /// Asks for an attribute that does not exist.
    fn ask_absent(&self, file: &Self::File, name: &str) -> Result<()>;
    fn unlink(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;
    fn rename(&self, from: (&Self::Dir, &[u8]), to: (&Self::Dir, &[u8])) -> Result<()>;
    /// Begins to list a directory.
    fn open_list(&self, dir: &Self::Dir) -> Result<Self::Listing>;
    /// The next `most` names, without `.` and `..`; fewer only at the end. The caller may remove names that it got
    /// before it asks for more; of the others, none is lost or returned twice.
    fn next_names(&self, listing: &mut Self::Listing, most: usize) -> Result<Vec<Vec<u8>>>;
    /// All names, without `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Result<Vec<Vec<u8>>> {
        self.next_names(&mut self.open_list(dir)?, usize::MAX)
    }
    fn set_xattr(&self, file: &Self::File, name: &str, value: &[u8]) -> Result<()>;
    /// The length of the value.
    fn get_xattr(&self, file: &Self::File, name: &str, buffer: &mut [u8]) -> Result<usize>;
    fn remove_xattr(&self, file: &Self::File, name: &str) -> Result<()>;
    /// Bytes of all names.
    fn list_xattrs(&self, file: &Self::File, buffer: &mut [u8]) -> Result<usize>;
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;
    fn read(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> Result<()>;
    fn fsync(&self, file: &Self::File) -> Result<()>;
    fn statfs(&self) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
    fn counts(&self) -> Result<Counts>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ImageFiles;
    use crate::scratch::Scratch;
    use std::collections::BTreeSet;

    /// Lists a directory in pieces and removes the names of each piece before it asks for the next.
    fn emptied_in_pieces(target: &impl Target, dir: &str, files: usize, most: usize) {
        let dir = target.make_dir(target.base(), dir.as_bytes()).unwrap();
        let made: BTreeSet<Vec<u8>> = (0..files).map(|n| format!("a file, {n}").into_bytes()).collect();
        for name in &made {
            target.create(&dir, name).unwrap();
        }
        assert_eq!(BTreeSet::from_iter(target.list(&dir).unwrap()), made);
        let mut listing = target.open_list(&dir).unwrap();
        let mut seen = BTreeSet::new();
        loop {
            let names = target.next_names(&mut listing, most).unwrap();
            assert_eq!(names.len(), most.min(files - seen.len()), "fewer only at the end");
            if names.is_empty() {
                break;
            }
            for name in names {
                target.unlink(&dir, &name).unwrap();
                assert!(seen.insert(name), "a name came twice");
            }
        }
        assert_eq!(seen, made);
        assert!(target.next_names(&mut listing, most).unwrap().is_empty(), "the end stays");
        assert!(target.list(&dir).unwrap().is_empty());
    }

    /// Directories of all forms, which go through the smaller forms again while they are emptied.
    fn all_sizes_are_emptied_in_pieces(target: &impl Target) {
        for (files, most) in [(0, 1), (3, 1), (5, 2), (70, 7), (2500, 1), (2500, 100), (2500, 1250)] {
            emptied_in_pieces(target, &format!("{files} by {most}"), files, most);
        }
    }

    #[test]
    fn the_engine_lists_in_pieces() {
        let scratch = Scratch::new().unwrap();
        let image = scratch.make_image("image", 512 << 20).unwrap();
        let engine =
            Engine::open(&ImageFiles::alone(&image), xfskit_engine::MountOptions::default(), "folder").unwrap();
        all_sizes_are_emptied_in_pieces(&engine);
        engine.close(true).unwrap();
    }

    #[test]
    fn a_directory_lists_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::open(dir.path(), "folder").unwrap();
        all_sizes_are_emptied_in_pieces(&target);
        target.close(true).unwrap();
    }

    #[test]
    fn the_engine_removes_what_is_left() {
        let scratch = Scratch::new().unwrap();
        let image = scratch.make_image("image", 512 << 20).unwrap();
        let engine =
            Engine::open(&ImageFiles::alone(&image), xfskit_engine::MountOptions::default(), "folder").unwrap();
        let dir = engine.make_dir(engine.base(), b"dir").unwrap();
        for n in 0..PIECE + 10 {
            engine.create(&dir, format!("{n}").as_bytes()).unwrap();
        }
        engine.close(true).unwrap();
        let engine = Engine::open(&ImageFiles::alone(&image), xfskit_engine::MountOptions::default(), "folder");
        assert!(engine.is_ok(), "the folder is gone and can be made again");
        engine.unwrap().close(true).unwrap();
    }
}
