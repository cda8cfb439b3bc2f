//! Reads one file of an image: what is sent with its name.

use crate::adjust::Attributes;
use crate::error::{Result, TransferError, image, shown};
use crate::event::{MAX_INLINE_BYTES, Meta, is_not_the_files};
use crate::image::walk::Found;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Error, FileType, Stat, Volume};

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

/// Reads files of an image. Several threads may use one.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub filesystem: &'a Volume,
    pub attributes: Attributes,
}

impl Reader<'_> {
    /// Reads what is sent with a file's name.
    pub fn read_small(self, found: Found, wants_data: bool) -> Read {
        let attributes = self.attributes_of(&found.stat, &found.path);
        let is_sent_with_it = found.stat.file_type == FileType::File
            && found.stat.links == 1
            && attributes.is_ok()
            && is_whole(&found.stat, wants_data);
        let whole = is_sent_with_it.then(|| self.whole(&found.stat, &found.path));
        Read { found, attributes, whole }
    }

    /// The attributes of a file, without those that cannot be read, so that its contents are copied all the same.
    fn attributes_of(self, stat: &Stat, path: &[u8]) -> Result<Attributed> {
        let mut meta = bare_meta(stat);
        if self.attributes == Attributes::Dropped {
            return Ok(Attributed { meta, damage: None });
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
                value => meta.xattrs.push((name, value?)),
            }
        }
        Ok(Attributed { meta, damage })
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

/// Whether a file's contents are sent with its name.
pub(super) fn is_whole(stat: &Stat, wants_data: bool) -> bool {
    let is_dense = stat.blocks.saturating_mul(512) >= stat.size;
    stat.size <= MAX_INLINE_BYTES && is_dense && (wants_data || stat.size == 0)
}

/// Whether the cause of an error is the image or the device below it.
pub(super) fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io { .. })
}
