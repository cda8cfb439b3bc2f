//! Reads a tree in an image, in the order of its names.
//!
//! Where the device's requests take long, as across a network, the next files of the walk are read by many threads,
//! as many as there is room for, and sent in their order:
//!
//! ```text
//! walk ──▶ found found found found       at most MAX_AHEAD
//!           read  read found found       the first, and others until they have MAX_AHEAD_BYTES
//! sent ◀──  read  read                   the others have their turn when these are sent
//! ```

use crate::adjust::Attributes;
use crate::error::{Losses, Result, TransferError, image, shown};
use crate::event::{Contents, Event, Kind, MAX_INLINE_BYTES, Meta, Node, PIECE_BYTES};
use crate::image::reader::{Attributed, Read, Reader, Room, Step, Turn, is_unreadable, is_whole};
use crate::image::walk::{Found, ImageWalk, WalkEvent};
use crate::paths::{PathId, Paths};
use crate::pipe::{LeaveOut, Outlet, Sort, Source};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use xfskit::device::at_once;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Error, FileType, Seek, Stat, Volume};

/// Where a piece cannot be read as a whole, it is read in steps of this size.
const STEP_BYTES: usize = 4096;

/// Most files that are read ahead, and the bytes of contents and attributes at which there are enough of them; at twice
/// as many, files that were begun are left for later.
const MAX_AHEAD: usize = 256;
const MAX_AHEAD_BYTES: u64 = 8 << 20;

/// A file or directory of an image, with everything in it.
pub struct ImageSource<'a> {
    reader: Reader<'a>,
    start: InodeNumber,
    prefix: Vec<u8>,
    recursive: bool,
    /// The first name of each file that has several.
    links: HashMap<InodeNumber, PathId>,
    paths: Paths,
    leave_out: LeaveOut<'a>,
    losses: Losses,
}

impl<'a> ImageSource<'a> {
    /// A source for the inode `start`, which is sent under the path `prefix`.
    pub fn new(filesystem: &'a Volume, start: InodeNumber, prefix: &[u8], recursive: bool) -> Self {
        Self {
            reader: Reader { filesystem, attributes: Attributes::Kept },
            start,
            prefix: prefix.to_vec(),
            recursive,
            links: HashMap::new(),
            paths: Paths::default(),
            leave_out: Box::new(|_, _| false),
            losses: Losses::default(),
        }
    }

    /// Counts and reports a file that cannot be read, so that the copy continues with the other files.
    fn pass_over(&mut self, error: TransferError, out: &mut Outlet) -> Result<()> {
        match &error {
            TransferError::Image { source, .. } if is_unreadable(source) => {
                self.losses.unreadable.note_reason(&error);
                out.send(Event::Unreadable(error))
            }
            TransferError::LostNames { path, lost } => {
                self.losses.lost_names.note_names(path, lost.names);
                out.send(Event::Unreadable(error))
            }
            _ => Err(error),
        }
    }

    /// Sets whether extended attributes are copied; those that are dropped are not read.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Attributes) -> Self {
        self.reader.attributes = attributes;
        self
    }

    /// Leaves out the paths for which `leave_out` returns true.
    #[must_use]
    pub fn leaving_out(mut self, leave_out: LeaveOut<'a>) -> Self {
        self.leave_out = leave_out;
        self
    }

    fn visit(&mut self, read: Read, out: &mut Outlet) -> Result<()> {
        let Read { found: Found { path, stat, .. }, attributes, whole } = read;
        let inode = stat.inode;
        let Attributed { meta, damage } = attributes?;
        if let Some(error) = damage {
            self.losses.unreadable_attributes.note_reason(&error);
            out.send(Event::Unreadable(error))?;
        }
        let kind = match stat.file_type {
            FileType::Dir if !self.recursive => return Err(TransferError::NotRecursive(shown(&path))),
            FileType::Dir => Kind::Directory,
            _ if stat.links > 1 && self.links.contains_key(&inode) => Kind::Link(self.paths.get(self.links[&inode])),
            FileType::File => {
                self.remember(&stat, &path);
                return self.file(&stat, path, meta, whole, out);
            }
            FileType::Symlink => Kind::Symlink(self.reader.filesystem.read_link(inode).map_err(image(&path))?),
            FileType::CharDevice => Kind::Char(stat.device),
            FileType::BlockDevice => Kind::Block(stat.device),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        };
        if !matches!(kind, Kind::Link(_) | Kind::Directory) {
            self.remember(&stat, &path);
        }
        out.send(Event::Node(Node { path, kind, meta }))
    }

    fn remember(&mut self, stat: &Stat, path: &[u8]) {
        if stat.links > 1 {
            self.links.insert(stat.inode, self.paths.keep(path));
        }
    }

    fn file(
        &mut self,
        stat: &Stat,
        path: Vec<u8>,
        meta: Meta,
        whole: Option<Result<Vec<u8>>>,
        out: &mut Outlet,
    ) -> Result<()> {
        let size = stat.size;
        let whole = whole.or_else(|| is_whole(stat, out.wants_data()).then(|| self.reader.whole(stat, &path)));
        if let Some(bytes) = whole {
            let kind = Kind::File { size, contents: Contents::Whole(bytes?) };
            return out.send(Event::Node(Node { path, kind, meta }));
        }
        let parts = self.parts(stat.inode, size, &path)?;
        let kind = Kind::File { size, contents: Contents::Parts(parts.clone()) };
        out.send(Event::Node(Node { path: path.clone(), kind, meta }))?;
        if !out.wants_data() {
            return Ok(());
        }
        match self.contents(stat.inode, &parts, &path, out) {
            // The file's event is already sent, so the sink decides what becomes of the file.
            Err(TransferError::Image { path, source }) if is_unreadable(&source) => {
                self.links.remove(&stat.inode);
                out.send(Event::Broken(TransferError::Image { path, source }))
            }
            Ok(()) => out.send(Event::End),
            failed => failed,
        }
    }

    fn contents(&self, inode: InodeNumber, parts: &[(u64, u64)], path: &[u8], out: &mut Outlet) -> Result<()> {
        // The device cuts a long read into several that are on their way at the same time.
        let most = if self.reader.filesystem.queue_depth() > 1 { MAX_AHEAD_BYTES } else { PIECE_BYTES as u64 };
        for &(start, length) in parts {
            let mut done = 0;
            while done < length {
                let mut bytes = vec![0; (length - done).min(most) as usize];
                let offset = start + done;
                match self.reader.read(inode, offset, &mut bytes, path) {
                    Err(TransferError::Image { source, .. }) if is_unreadable(&source) => {
                        let at = offset + self.readable_bytes(inode, offset, &mut bytes, path);
                        return Err(TransferError::Image { path: format!("{} at byte {at}", shown(path)), source });
                    }
                    read => read?,
                }
                done += bytes.len() as u64;
                send_pieces(offset, bytes, out)?;
            }
        }
        Ok(())
    }

    /// How much of a piece that cannot be read as a whole can be read from its start.
    fn readable_bytes(&self, inode: InodeNumber, offset: u64, piece: &mut [u8], path: &[u8]) -> u64 {
        let mut done = 0;
        for step in piece.chunks_mut(STEP_BYTES) {
            if self.reader.read(inode, offset + done, step, path).is_err() {
                break;
            }
            done += step.len() as u64;
        }
        done
    }

    /// The parts of a file that contain data.
    fn parts(&self, inode: InodeNumber, size: u64, path: &[u8]) -> Result<Vec<(u64, u64)>> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match self.reader.filesystem.seek(inode, at, Seek::Data) {
                Err(Error::NoMoreData) => break,
                found => found.map_err(image(path))?,
            };
            let end = self.reader.filesystem.seek(inode, start, Seek::Hole).map_err(image(path))?;
            parts.push((start, end - start));
            at = end;
        }
        Ok(parts)
    }

    /// The next steps of the walk that are sent: one, or several that are read at the same time.
    fn next_steps(&self, walk: &mut ImageWalk<'_>) -> VecDeque<Step> {
        let most = if self.reader.filesystem.queue_depth() > 1 { MAX_AHEAD } else { 1 };
        let (mut steps, mut bytes) = (VecDeque::new(), 0);
        while steps.len() < most && bytes < MAX_AHEAD_BYTES {
            match walk.next() {
                None => break,
                Some(Ok(WalkEvent::Left(_))) => {}
                Some(Err(error)) => steps.push_back(Step::Failed(error)),
                Some(Ok(WalkEvent::Found(found))) => {
                    let sort = if found.is_dir() { Sort::Directory } else { Sort::Other };
                    if (self.leave_out)(&found.path, sort) {
                        walk.skip_below();
                        continue;
                    }
                    bytes += found.stat.size.min(MAX_INLINE_BYTES) + found.path.len() as u64;
                    steps.push_back(Step::Found(found));
                }
            }
        }
        steps
    }

    /// Reads what is sent with the names of the steps: of the first, and of the others as far as there is room.
    fn read_steps(&self, steps: VecDeque<Step>, wants_data: bool) -> VecDeque<Step> {
        let reader = self.reader;
        let held = steps.iter().map(|step| if let Step::Read(read) = step { read.bytes() } else { 0 });
        let room = Room::new(MAX_AHEAD_BYTES, held.sum());
        let read = |turn, step| match step {
            Step::Found(found) => reader.read_small(found, wants_data, turn, &room),
            other => other,
        };
        let threads = reader.filesystem.queue_depth();
        if steps.len() == 1 || threads == 1 {
            return steps.into_iter().map(|step| read(Turn::Next, step)).collect();
        }
        let places: Vec<_> = steps.into_iter().map(|step| Mutex::new(Some(step))).collect();
        at_once(threads, "reader", places.iter().enumerate(), |(number, place)| {
            // No other thread has this place.
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = if number == 0 { Turn::Next } else { Turn::Ahead };
            *place = place.take().map(|step| read(turn, step));
        });
        places.into_iter().filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Sends a file that was read, or passes over it.
    fn send_read(&mut self, read: Read, out: &mut Outlet) -> Result<()> {
        // A directory is sent, or the whole copy ends: files below one that was not sent had no place.
        if read.found.is_dir() {
            return self.visit(read, out);
        }
        let first_name = (read.found.stat.links > 1).then(|| (read.found.stat.inode, read.found.path.clone()));
        let Err(error) = self.visit(read, out) else { return Ok(()) };
        // A link must not refer to a file that was not sent.
        if let Some((inode, path)) = first_name
            && self.links.get(&inode).is_some_and(|&first| self.paths.get(first) == path)
        {
            self.links.remove(&inode);
        }
        self.pass_over(error, out)
    }
}

/// Sends contents in pieces of at most [`PIECE_BYTES`].
fn send_pieces(offset: u64, bytes: Vec<u8>, out: &mut Outlet) -> Result<()> {
    if bytes.len() <= PIECE_BYTES {
        return out.send(Event::Data { offset, bytes });
    }
    for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        let offset = offset + (number * PIECE_BYTES) as u64;
        out.send(Event::Data { offset, bytes: piece.to_vec() })?;
    }
    Ok(())
}

impl Source for ImageSource<'_> {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        let mut walk = ImageWalk::new(self.reader.filesystem, self.start, &self.prefix);
        let mut steps = VecDeque::new();
        loop {
            match steps.pop_front() {
                None => {
                    steps = self.next_steps(&mut walk);
                    if steps.is_empty() {
                        return Ok(());
                    }
                }
                Some(Step::Read(read)) => self.send_read(read, out)?,
                Some(Step::Failed(error)) => self.pass_over(error, out)?,
                Some(found) => {
                    steps.push_front(found);
                    steps = self.read_steps(steps, out.wants_data());
                }
            }
        }
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}
