//! Reads one file of an image: what is sent with its name.

use crate::adjust::Attributes;
use crate::error::{Result, TransferError, image, shown};
use crate::event::{MAX_INLINE_BYTES, Meta, is_not_the_files};
use crate::image::walk::Found;
use std::sync::atomic::{AtomicU64, Ordering};
use xfskit_vfs::InodeNumber;
use xfskit_vfs::{Error, FileType, Stat, Volume};

/// A file of the walk.
pub(super) enum Step {
    Found(Found),
    Read(Read),
    /// It was not found, for this reason.
    Failed(TransferError),
}

/// What the walk has found, with what was read of it.
pub(super) struct Read {
    pub found: Found,
    pub attributes: Result<Attributed>,
    /// The contents, if they are sent with the file and the file has no other name.
    pub whole: Option<Result<Vec<u8>>>,
}

/// The attributes of a file that could be read, and why others could not.
pub(super) struct Attributed {
    pub meta: Meta,
    pub damage: Option<TransferError>,
}

impl Read {
    /// Bytes of contents and attributes that are held.
    pub fn bytes(&self) -> u64 {
        let attributes = self.attributes.as_ref().map_or(0, |read| read.meta.xattrs.iter().map(bytes_of).sum());
        let contents = self.whole.as_ref().and_then(|read| read.as_ref().ok()).map_or(0, |bytes| bytes.len() as u64);
        attributes + contents
    }
}

fn bytes_of((name, value): &(Vec<u8>, Vec<u8>)) -> u64 {
    (name.len() + value.len()) as u64
}

/// Whether a file may take more memory than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the next one that is sent.
    Next,
    /// It is read ahead, and left for later where there is no room.
    Ahead,
}

/// The room for files that are read ahead. How much the attributes of a file are is only known when they are there, so
/// files that are begun may take as much again; else what was read of them would often have to be read twice.
pub(super) struct Room {
    most_bytes: u64,
    used_bytes: AtomicU64,
}

impl Room {
    /// Room of a size, some of it in use.
    pub fn new(most_bytes: u64, used_bytes: u64) -> Self {
        Self { most_bytes, used_bytes: used_bytes.into() }
    }

    /// Whether no further file is begun.
    fn is_full(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) >= self.most_bytes
    }

    /// Takes some, and says whether a file that was begun can stay.
    fn take(&self, bytes: u64) -> bool {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= 2 * self.most_bytes
    }
}

/// Reads files of an image. Several threads may use one.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub filesystem: &'a dyn Volume,
    pub attributes: Attributes,
}

impl Reader<'_> {
    /// Reads what is sent with a file's name; gives the file back where there is no room for it yet.
    pub fn read_small(self, found: Found, wants_data: bool, turn: Turn, room: &Room) -> Step {
        if turn == Turn::Ahead && room.is_full() {
            return Step::Found(found);
        }
        let attributes = self.attributes_of(&found.stat, &found.path, turn, room).transpose();
        let Some(attributes) = attributes else { return Step::Found(found) };
        let is_sent_with_it = found.stat.file_type == FileType::File
            && found.stat.links == 1
            && attributes.is_ok()
            && is_whole(&found.stat, wants_data);
        if is_sent_with_it {
            // The files were chosen so that their contents have room.
            room.take(found.stat.size);
        }
        let whole = is_sent_with_it.then(|| self.whole(&found.stat, &found.path));
        Step::Read(Read { found, attributes, whole })
    }

    /// The attributes of a file, without those that cannot be read, so that its contents are copied all the same.
    /// `None` where there is no room for them.
    fn attributes_of(self, stat: &Stat, path: &[u8], turn: Turn, room: &Room) -> Result<Option<Attributed>> {
        let mut meta = bare_meta(stat);
        if self.attributes == Attributes::Dropped {
            return Ok(Some(Attributed { meta, damage: None }));
        }
        let is_damage =
            |error: &TransferError| matches!(error, TransferError::Image { source, .. } if is_unreadable(source));
        let (mut names, mut damage) = (Vec::new(), None);
        match names_of_xattrs(self.filesystem, stat, path) {
            Err(error) if is_damage(&error) => damage = Some(error),
            found => names = found?,
        }
        for name in names {
            match self.filesystem.get_xattr(stat.inode, &name).map_err(image_attribute(path, &name)) {
                Err(error) if is_damage(&error) => damage = damage.or(Some(error)),
                value => {
                    let attribute = (name, value?);
                    let has_room = room.take(bytes_of(&attribute));
                    meta.xattrs.push(attribute);
                    if turn == Turn::Ahead && !has_room {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(Attributed { meta, damage }))
    }

    /// The contents of a small file.
    pub fn whole(self, stat: &Stat, path: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; stat.size as usize];
        self.read(stat.inode, 0, &mut bytes, path)?;
        Ok(bytes)
    }

    /// Fills the buffer from a place in the file on.
    pub fn read(self, inode: InodeNumber, offset: u64, buffer: &mut [u8], path: &[u8]) -> Result<()> {
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
pub(super) fn meta_of(filesystem: &dyn Volume, stat: &Stat, path: &[u8]) -> Result<Meta> {
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
fn names_of_xattrs(filesystem: &dyn Volume, stat: &Stat, path: &[u8]) -> Result<Vec<Vec<u8>>> {
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

/// Whether a file's contents are sent with its name.
pub(super) fn is_whole(stat: &Stat, wants_data: bool) -> bool {
    let is_dense = stat.blocks.saturating_mul(512) >= stat.size;
    stat.size <= MAX_INLINE_BYTES && is_dense && (wants_data || stat.size == 0)
}

/// Whether the cause of an error is the image or the device below it.
pub(super) fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io { .. })
}
