//! Whole trees, entry by entry.

use super::{AsPath, DirEntry, Error, Filesystem, Held, LastLink, OnPath, ReadDir, Result};
use std::collections::HashSet;
use std::ops::Deref;
use xfskit_engine::Result as EngineResult;
use xfskit_ondisk::{Corruption, InodeNumber};

impl Filesystem {
    /// Everything below a directory, depth first: a directory comes before what is in it. Symbolic links are not
    /// followed. An error is an item like any other, and the walk goes on with what can be read.
    ///
    /// Entries are read in batches: the walk may list a file that was removed since, or has moved. Who removes a
    /// directory that the walk has just listed calls [`Walk::skip_dir`], or the next item is the error `NotFound`.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// fs.create_dir_all("/etc/app")?;
    /// fs.write("/etc/app/motd", "hello")?;
    /// let mut paths = Vec::new();
    /// for entry in fs.walk("/")? {
    ///     match entry {
    ///         Ok(entry) => paths.push((entry.depth(), entry.path())),
    ///         Err(error) => eprintln!("passed over: {error}"),
    ///     }
    /// }
    /// assert_eq!(paths.last().unwrap(), &(3, "/etc/app/motd".into()));
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Path`: `NotFound`, `NotADirectory` for the directory itself.
    pub fn walk(&self, path: impl AsPath) -> Result<Walk> {
        let path = path.as_path_bytes();
        let top = self
            .reference(path, LastLink::Follow)
            .and_then(|dir| ReadDir::start(Held::new(self, dir), path.to_vec()))
            .on("list", path)?;
        Ok(Walk { above: HashSet::from([top.dir().number()]), levels: vec![top], enter: None })
    }
}

/// A walk through a tree, by [`Filesystem::walk`]. It holds one directory of each level, and a batch of entries of it,
/// and keeps its filesystem open, see [`Filesystem::close`].
#[derive(Debug)]
pub struct Walk {
    levels: Vec<ReadDir>,
    /// The directories that the walk is in: where one is entered again, the image is damaged.
    above: HashSet<InodeNumber>,
    /// The directory that was handed out last, to be entered next.
    enter: Option<DirEntry>,
}

impl Walk {
    /// Passes over the directory that was handed out last: what is in it is not visited.
    pub fn skip_dir(&mut self) {
        self.enter = None;
    }

    fn enter(&mut self, entry: &DirEntry) -> EngineResult<()> {
        let level = self.levels.last().expect("the entry came from a level");
        // By its name in the directory, which is referenced: the path may lead elsewhere by now.
        let above = level.dir();
        let (dir, _) = above.volume().lookup_ref(above.number(), entry.name())?;
        let number = dir.number();
        if self.above.contains(&number) {
            return Err(Corruption::new("directory", "leads to no directory above it").of(number.0).into());
        }
        let dir = Held::new(above.fs(), dir);
        self.levels.push(ReadDir::start(dir, entry.path_bytes().to_vec())?);
        self.above.insert(number);
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.enter.take()
            && let Err(error) = self.enter(&entry)
        {
            return Some(Err(error).on("list", entry.path_bytes()));
        }
        loop {
            let level = self.levels.last_mut()?;
            match level.next() {
                Some(Ok(entry)) => {
                    self.enter = entry.file_type().is_dir().then(|| entry.clone());
                    return Some(Ok(WalkEntry { entry, depth: self.levels.len() }));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    let level = self.levels.pop().expect("there was a level");
                    self.above.remove(&level.dir().number());
                }
            }
        }
    }
}

/// An entry of a tree: a [`DirEntry`] that knows how deep it lies.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    entry: DirEntry,
    depth: usize,
}

impl WalkEntry {
    /// How deep below the start of the walk the entry lies; its own entries are at 1.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl Deref for WalkEntry {
    type Target = DirEntry;

    fn deref(&self) -> &Self::Target {
        &self.entry
    }
}
