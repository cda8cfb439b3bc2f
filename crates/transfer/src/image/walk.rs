//! The one walk through a whole tree of an image: depth first, in the order of names, and finite whatever the image
//! contains.

use crate::error::{Result, TransferError, image, shown};
use std::collections::HashSet;
use xfskit_vfs::{Corruption, InodeNumber};
use xfskit_vfs::{ReadAhead, Stat, Volume};

/// Entries of a directory whose inodes are brought into the cache at a time, where requests take long.
const AHEAD_ENTRIES: usize = 1024;

/// A walk through a tree. A directory that is found a second time has several names, or lies in itself: this is an
/// error, and the walk continues without it. A name that occurs twice in a directory is an error as well.
pub struct ImageWalk<'a> {
    filesystem: &'a dyn Volume,
    start: Option<InodeNumber>,
    /// The path of what was found last. The walk has only one, since the image decides how deep its directories are.
    path: Vec<u8>,
    /// A directory that was found and not entered yet.
    next: Option<Frame>,
    stack: Vec<Frame>,
    /// Directories that were found. Each has one name, unless the image is damaged.
    dirs: HashSet<InodeNumber>,
    damaged: DamagedDirs,
}

/// What is done with a directory of which a block cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DamagedDirs {
    /// What is left is found: for those who read.
    WhatIsLeft,
    /// It counts as empty: for those who change what they find.
    Empty,
}

/// A step of a walk.
#[derive(Clone, Debug)]
pub enum WalkEvent {
    /// A file, or a directory before anything in it.
    Found(Found),
    /// A directory after everything in it, also if an error replaced its contents.
    Left(Found),
}

/// A file or directory that a walk has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its path, below that of the start.
    pub path: Vec<u8>,
    /// The directory that contains it; `None` for the start.
    pub dir: Option<InodeNumber>,
    /// Its attributes.
    pub stat: Stat,
    /// Whether it is the last one of its directory.
    pub is_last: bool,
}

/// A directory that is being walked through. The entries that remain are in `left`, the next one last.
struct Frame {
    path_bytes: usize,
    dir: Option<InodeNumber>,
    stat: Stat,
    is_last: bool,
    left: Vec<(Vec<u8>, InodeNumber)>,
    /// How many of these have been brought into the cache.
    ahead: usize,
    /// Names that it has more than once, which is damage.
    twice: Vec<Vec<u8>>,
}

impl Found {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.stat.file_type.is_dir()
    }
}

impl<'a> ImageWalk<'a> {
    /// A walk that begins with the inode `start`, which has the path `path`.
    pub fn new(filesystem: &'a dyn Volume, start: InodeNumber, path: &[u8]) -> Self {
        let (path, stack, dirs) = (path.to_vec(), Vec::new(), HashSet::new());
        Self { filesystem, start: Some(start), path, next: None, stack, dirs, damaged: DamagedDirs::WhatIsLeft }
    }

    /// Treats the directories above the start as found already, so that a damaged tree cannot lead a caller that
    /// changes files out of it; and a directory of which a block cannot be used as empty.
    ///
    /// # Errors
    /// `Image` when one of them cannot be read.
    pub fn staying_below(mut self) -> Result<Self> {
        self.damaged = DamagedDirs::Empty;
        let Some(start) = self.start else { return Ok(self) };
        if !self.filesystem.stat(start).map_err(image(&self.path))?.file_type.is_dir() {
            return Ok(self);
        }
        let mut at = start;
        loop {
            at = self.filesystem.lookup(at, b"..").map_err(image(&self.path))?.inode;
            if at == start || !self.dirs.insert(at) {
                return Ok(self);
            }
        }
    }

    /// Skips the contents of the directory that was found last; the walk does not report that it leaves it.
    pub fn skip_below(&mut self) {
        self.next = None;
    }

    fn find(&mut self, inode: InodeNumber, dir: Option<InodeNumber>, is_last: bool) -> Result<WalkEvent> {
        let stat = self.filesystem.stat(inode).map_err(image(&self.path))?;
        let found = Found { path: self.path.clone(), dir, stat, is_last };
        if found.is_dir() {
            if !self.dirs.insert(inode) {
                let twice = Corruption::new("directory", "it has one name only").of(inode.0);
                return Err(image(&self.path)(twice.into()));
            }
            let (path_bytes, stat) = (self.path.len(), found.stat.clone());
            self.next = Some(Frame { path_bytes, dir, stat, is_last, left: Vec::new(), ahead: 0, twice: Vec::new() });
        }
        Ok(WalkEvent::Found(found))
    }

    /// Enters a directory. One that cannot be listed counts as empty, and the walk leaves it like any other; of one
    /// that is lost in part, the rest follows the error.
    fn enter(&mut self, mut frame: Frame) -> Result<()> {
        let inode = frame.stat.inode;
        let listed = match self.damaged {
            DamagedDirs::WhatIsLeft => self.filesystem.list_what_is_left(inode),
            DamagedDirs::Empty => self.filesystem.list_dir(inode).map(|entries| (entries, None)),
        };
        let listed = listed.map_err(image(&self.path)).and_then(|(entries, lost)| {
            frame.left = entries.into_iter().map(|entry| (entry.name, entry.inode)).collect();
            // Of entries with the same name the first stays, which is the one that a look-up finds.
            frame.left.sort_by(|a, b| a.0.cmp(&b.0));
            frame.left.dedup_by(|later, first| {
                let is_twice = later.0 == first.0;
                if is_twice {
                    frame.twice.push(std::mem::take(&mut later.0));
                }
                is_twice
            });
            frame.left.reverse();
            let path = shown(&self.path);
            lost.map_or(Ok(()), |lost| Err(TransferError::LostNames { path, lost: lost.into() }))
        });
        self.stack.push(frame);
        listed
    }

    /// Brings the inodes of the next entries into the cache where the device's requests take long.
    fn bring_ahead(&mut self) {
        let is_far = self.filesystem.queue_depth() > 1;
        let Some(frame) = self.stack.last_mut().filter(|frame| is_far && frame.ahead == 0) else { return };
        frame.ahead = frame.left.len().min(AHEAD_ENTRIES);
        let inodes: Vec<_> = frame.left.iter().rev().take(frame.ahead).map(|(_, inode)| *inode).collect();
        self.filesystem.read_ahead(&inodes, ReadAhead::Listings);
    }

    /// The next entry of the innermost directory, or the step that leaves it.
    fn advance(&mut self) -> Option<Result<WalkEvent>> {
        self.bring_ahead();
        let frame = self.stack.last_mut()?;
        self.path.truncate(frame.path_bytes);
        if let Some((name, inode)) = frame.left.pop() {
            frame.ahead = frame.ahead.saturating_sub(1);
            let (dir, is_last) = (frame.stat.inode, frame.left.is_empty());
            // The path of the root is a slash already, and an empty path gets none.
            if self.path.last().is_some_and(|&byte| byte != b'/') {
                self.path.push(b'/');
            }
            self.path.extend(name);
            return Some(self.find(inode, Some(dir), is_last));
        }
        if let Some(name) = frame.twice.pop() {
            let owner = frame.stat.inode.0;
            let twice = Corruption::new("directory", "each name is there once").of(owner);
            let slash: &[u8] = if self.path.ends_with(b"/") { b"" } else { b"/" };
            return Some(Err(image(&[&self.path, slash, &name].concat())(twice.into())));
        }
        let Frame { dir, stat, is_last, .. } = self.stack.pop()?;
        Some(Ok(WalkEvent::Left(Found { path: self.path.clone(), dir, stat, is_last })))
    }
}

impl<'a> ImageWalk<'a> {
    /// What the walk finds, a directory before anything in it.
    pub fn found(self) -> impl Iterator<Item = Result<Found>> + use<'a> {
        self.filter_map(|event| match event {
            Ok(WalkEvent::Found(found)) => Some(Ok(found)),
            Ok(WalkEvent::Left(_)) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl Iterator for ImageWalk<'_> {
    type Item = Result<WalkEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.find(start, None, true));
        }
        match self.next.take().map(|frame| self.enter(frame)) {
            Some(Err(error)) => Some(Err(error)),
            _ => self.advance(),
        }
    }
}
