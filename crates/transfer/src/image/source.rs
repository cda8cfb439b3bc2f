//! Reads a tree in an image, in the order of its names.

use crate::adjust::Attributes;
use crate::error::{Losses, Result, TransferError, image, shown};
use crate::event::{Contents, Event, Kind, MAX_INLINE_BYTES, Meta, Node, PIECE_BYTES, is_not_the_files};
use crate::image::walk::{Found, ImageWalk, WalkEvent};
use crate::pipe::{LeaveOut, Outlet, Sort, Source};
use std::collections::HashMap;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Error, FileType, Seek, Stat, Volume};

/// Where a piece cannot be read as a whole, it is read in steps of this size.
const STEP_BYTES: usize = 4096;

/// A file or directory of an image, with everything in it.
pub struct ImageSource<'a> {
    filesystem: &'a Volume,
    start: InodeNumber,
    prefix: Vec<u8>,
    recursive: bool,
    /// The first name of each file that has several.
    links: HashMap<InodeNumber, Vec<u8>>,
    leave_out: LeaveOut<'a>,
    attributes: Attributes,
    losses: Losses,
}

impl<'a> ImageSource<'a> {
    /// A source for the inode `start`, which is sent under the path `prefix`.
    pub fn new(filesystem: &'a Volume, start: InodeNumber, prefix: &[u8], recursive: bool) -> Self {
        Self {
            filesystem,
            start,
            prefix: prefix.to_vec(),
            recursive,
            links: HashMap::new(),
            leave_out: Box::new(|_, _| false),
            attributes: Attributes::Kept,
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
            _ => Err(error),
        }
    }

    /// Sets whether extended attributes are copied; those that are dropped are not read.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// Leaves out the paths for which `leave_out` returns true.
    #[must_use]
    pub fn leaving_out(mut self, leave_out: LeaveOut<'a>) -> Self {
        self.leave_out = leave_out;
        self
    }

    fn visit(&mut self, Found { path, stat, .. }: Found, out: &mut Outlet) -> Result<()> {
        let inode = stat.inode;
        let meta = self.meta(&stat, &path, out)?;
        let kind = match stat.file_type {
            FileType::Dir if !self.recursive => return Err(TransferError::NotRecursive(shown(&path))),
            FileType::Dir => Kind::Directory,
            _ if stat.links > 1 && self.links.contains_key(&inode) => Kind::Link(self.links[&inode].clone()),
            FileType::File => {
                self.remember(&stat, &path);
                return self.file(&stat, path, meta, out);
            }
            FileType::Symlink => Kind::Symlink(self.filesystem.read_link(inode).map_err(image(&path))?),
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

    /// The attributes of a file, without those that cannot be read, so that its contents are copied all the same.
    fn meta(&mut self, stat: &Stat, path: &[u8], out: &mut Outlet) -> Result<Meta> {
        let mut meta = bare_meta(stat);
        if self.attributes == Attributes::Dropped {
            return Ok(meta);
        }
        let is_damage =
            |error: &TransferError| matches!(error, TransferError::Image { source, .. } if is_unreadable(source));
        let (mut names, mut first) = (Vec::new(), None);
        match names_of_xattrs(self.filesystem, stat, path) {
            Err(error) if is_damage(&error) => first = Some(error),
            found => names = found?,
        }
        for name in names {
            match self.filesystem.get_xattr(stat.inode, &name).map_err(image_attribute(path, &name)) {
                Err(error) if is_damage(&error) => first = first.or(Some(error)),
                value => meta.xattrs.push((name, value?)),
            }
        }
        if let Some(error) = first {
            self.losses.unreadable_attributes.note_reason(&error);
            out.send(Event::Unreadable(error))?;
        }
        Ok(meta)
    }

    fn remember(&mut self, stat: &Stat, path: &[u8]) {
        if stat.links > 1 {
            self.links.insert(stat.inode, path.to_vec());
        }
    }

    fn file(&mut self, stat: &Stat, path: Vec<u8>, meta: Meta, out: &mut Outlet) -> Result<()> {
        let size = stat.size;
        let is_dense = stat.blocks.saturating_mul(512) >= size;
        if size <= MAX_INLINE_BYTES && is_dense && (out.wants_data() || size == 0) {
            let mut bytes = vec![0; size as usize];
            self.read(stat.inode, 0, &mut bytes, &path)?;
            let kind = Kind::File { size, contents: Contents::Whole(bytes) };
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
        for &(start, length) in parts {
            let mut done = 0;
            while done < length {
                let mut bytes = vec![0; (length - done).min(PIECE_BYTES as u64) as usize];
                let offset = start + done;
                match self.read(inode, offset, &mut bytes, path) {
                    Err(TransferError::Image { source, .. }) if is_unreadable(&source) => {
                        let at = offset + self.readable_bytes(inode, offset, &mut bytes, path);
                        return Err(TransferError::Image { path: format!("{} at byte {at}", shown(path)), source });
                    }
                    read => read?,
                }
                done += bytes.len() as u64;
                out.send(Event::Data { offset, bytes })?;
            }
        }
        Ok(())
    }

    /// How much of a piece that cannot be read as a whole can be read from its start.
    fn readable_bytes(&self, inode: InodeNumber, offset: u64, piece: &mut [u8], path: &[u8]) -> u64 {
        let mut done = 0;
        for step in piece.chunks_mut(STEP_BYTES) {
            if self.read(inode, offset + done, step, path).is_err() {
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
            let start = match self.filesystem.seek(inode, at, Seek::Data) {
                Err(Error::NoMoreData) => break,
                found => found.map_err(image(path))?,
            };
            let end = self.filesystem.seek(inode, start, Seek::Hole).map_err(image(path))?;
            parts.push((start, end - start));
            at = end;
        }
        Ok(parts)
    }

    fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8], path: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let count = self.filesystem.read_at(inode, offset + done as u64, &mut buffer[done..]);
            match count.map_err(image(path))? {
                0 => return Err(TransferError::Changed(shown(path))),
                count => done += count,
            }
        }
        Ok(())
    }
}

/// The attributes of a file of an image.
pub(super) fn meta_of(filesystem: &Volume, stat: &Stat, path: &[u8]) -> Result<Meta> {
    let names = names_of_xattrs(filesystem, stat, path)?;
    let with_value = |name: Vec<u8>| {
        let value = filesystem.get_xattr(stat.inode, &name).map_err(image_attribute(path, &name))?;
        Ok((name, value))
    };
    Ok(Meta { xattrs: names.into_iter().map(with_value).collect::<Result<_>>()?, ..bare_meta(stat) })
}

/// The attributes of a file that are in its inode.
fn bare_meta(stat: &Stat) -> Meta {
    let mode = stat.permissions.bits();
    Meta { mode, uid: stat.uid, gid: stat.gid, atime: stat.atime, mtime: stat.mtime, xattrs: Vec::new() }
}

/// The names of a file's extended attributes, sorted.
fn names_of_xattrs(filesystem: &Volume, stat: &Stat, path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut names = filesystem
        .list_xattrs(stat.inode)
        .map_err(|source| TransferError::Image { path: format!("{}: its attributes", shown(path)), source })?;
    names.retain(|name| !is_not_the_files(name));
    names.sort_unstable();
    Ok(names)
}

/// Adds the file and the attribute to an error.
fn image_attribute<'a>(path: &'a [u8], name: &'a [u8]) -> impl FnOnce(Error) -> TransferError + 'a {
    move |source| TransferError::Image { path: format!("{}: attribute {}", shown(path), shown(name)), source }
}

impl Source for ImageSource<'_> {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        let mut walk = ImageWalk::new(self.filesystem, self.start, &self.prefix);
        while let Some(step) = walk.next() {
            let found = match step {
                Ok(WalkEvent::Found(found)) => found,
                Ok(WalkEvent::Left(_)) => continue,
                Err(error) => {
                    self.pass_over(error, out)?;
                    continue;
                }
            };
            let sort = if found.is_dir() { Sort::Directory } else { Sort::Other };
            if (self.leave_out)(&found.path, sort) {
                walk.skip_below();
                continue;
            }
            let first_name = (found.stat.links > 1).then(|| (found.stat.inode, found.path.clone()));
            if let Err(error) = self.visit(found, out) {
                // Files below a directory that was not sent have no place either, and a link must not refer to a file
                // that was not sent.
                walk.skip_below();
                if let Some((inode, path)) = first_name
                    && self.links.get(&inode) == Some(&path)
                {
                    self.links.remove(&inode);
                }
                self.pass_over(error, out)?;
            }
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}

/// Whether the cause of an error is the image or the device below it.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io { .. })
}
