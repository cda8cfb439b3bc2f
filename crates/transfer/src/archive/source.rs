//! Reads a tree from a tar stream.
//!
//! A leading slash of a name is dropped, as GNU tar does; a name with `..` in it is refused. A stream without its end
//! mark counts as cut short.

use super::reader::{Reader, packer, padding};
use super::sparse::{self, Parts};
use super::{BLOCK, acl, pax};
use crate::error::{Losses, Result, TransferError, shown};
use crate::event::{
    Contents, Event, Kind, MAX_INLINE_BYTES, MAX_PATH_BYTES, Meta, Node, PIECE_BYTES, is_not_the_files, is_portable,
};
use crate::pipe::{Outlet, Source};
use std::collections::BTreeMap;
use std::io::Read;
use tar::Header;
use xfskit::ondisk::{DeviceNumber, Timestamp};

/// Bytes of a path that is too long in a message.
const SHOWN_BYTES: usize = 60;
/// Most bytes of a path that tells where an error is.
const MAX_SHOWN_BYTES: usize = 300;

/// Reads a tar stream.
pub struct TarSource<R> {
    reader: Reader<R>,
    globals: Extensions,
    losses: Losses,
    archive: Option<String>,
    place: Place,
    /// A PAX header was read.
    is_pax: bool,
}

/// Where the stream is, as far as a user knows it.
#[derive(Default)]
enum Place {
    /// Before the first file.
    #[default]
    Start,
    /// In the file of this path.
    In(Vec<u8>),
    /// Behind it.
    Behind(Vec<u8>),
}

/// The properties of a file that the preceding headers give.
#[derive(Clone, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    sparse: Sparse,
}

/// GNU's records of sparse files.
#[derive(Clone, Default)]
struct Sparse {
    major: Option<Vec<u8>>,
    map: Option<Vec<u8>>,
    real_size: Option<u64>,
}

impl<R: Read + Send> TarSource<R> {
    /// The stream.
    pub fn new(stream: R) -> Self {
        Self {
            reader: Reader::new(stream),
            globals: Extensions::default(),
            losses: Losses::default(),
            archive: None,
            place: Place::Start,
            is_pax: false,
        }
    }

    /// Sets the archive's name, for messages.
    #[must_use]
    pub fn named(mut self, archive: String) -> Self {
        self.archive = Some(archive);
        self
    }

    /// The next file's headers; `None` after the last one.
    fn next_header(&mut self) -> Result<Option<(Header, Extensions)>> {
        let mut extensions = self.globals.clone();
        let mut begun = false;
        loop {
            let header = match self.reader.block()? {
                None => return Err(TransferError::CutShort(self.reader.at(), "the archive: its end mark is missing")),
                Some(block) if block == [0; BLOCK] && !begun => return Ok(None),
                Some(block) => Header::from_byte_slice(&block).clone(),
            };
            self.check(&header)?;
            let kind = header.entry_type().as_byte();
            if !matches!(kind, b'x' | b'X' | b'g' | b'L' | b'K') {
                return Ok(Some((header, extensions)));
            }
            begun = true;
            self.is_pax |= matches!(kind, b'x' | b'X' | b'g');
            let size = header.entry_size().map_err(|_| self.reader.bad("a header with a wrong size"))?;
            let bytes = self.reader.extension(size)?;
            match kind {
                b'L' => extensions.path = Some(until_zero(&bytes)),
                b'K' => extensions.target = Some(until_zero(&bytes)),
                b'g' => {
                    let mut globals = std::mem::take(&mut self.globals);
                    self.take_records(&mut globals, &bytes)?;
                    self.take_records(&mut extensions, &bytes)?;
                    self.globals = globals;
                }
                _ => self.take_records(&mut extensions, &bytes)?,
            }
        }
    }

    fn check(&self, header: &Header) -> Result<()> {
        let bytes = header.as_bytes();
        // In the sum, the eight bytes of the checksum itself count as blanks.
        let own = 148..156;
        let sum: u32 =
            bytes.iter().enumerate().map(|(at, &byte)| if own.contains(&at) { 32 } else { u32::from(byte) }).sum();
        if header.cksum().ok() == Some(sum) {
            return Ok(());
        }
        // Those that are not unpacked by themselves.
        let packed = packer(bytes).filter(|_| self.reader.at() <= BLOCK as u64);
        Err(match packed {
            Some((name, command)) => {
                let file = self.archive.as_deref().unwrap_or("FILE");
                let command = command.replace("FILE", file);
                self.reader.bad(format!("{name}: unpack it first: {command} | xfskit mkfs --from - ..."))
            }
            None => self.reader.bad("no header where one belongs, or one with a wrong checksum"),
        })
    }

    /// Adds the archive and the file in it to an error of the archive.
    fn within(&self, error: TransferError) -> TransferError {
        let is_own = matches!(
            error,
            TransferError::BadTar { .. }
                | TransferError::CutShort(..)
                | TransferError::BadLayer { .. }
                | TransferError::UnsafePath(_)
        );
        let Some(archive) = self.archive.clone().filter(|_| is_own) else { return error };
        let place = match &self.place {
            Place::Start => String::new(),
            Place::In(path) => format!("in {}: ", shown(path)),
            Place::Behind(path) => format!("behind {}: ", shown(path)),
        };
        TransferError::InArchive { archive, place, source: Box::new(error) }
    }

    fn send_all(&mut self, out: &mut Outlet) -> Result<()> {
        while let Some((header, extensions)) = self.next_header()? {
            self.entry(&header, extensions, out)?;
            if let Place::In(path) = std::mem::take(&mut self.place) {
                self.place = Place::Behind(path);
            }
        }
        // Reads the rest, since the program that writes the stream may still be writing padding, and the checksum of a
        // packed stream stands at its end.
        loop {
            match self.reader.block() {
                Ok(Some(_)) => {}
                Err(error @ TransferError::BadTar { .. }) => return Err(error),
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    fn take_records(&mut self, extensions: &mut Extensions, bytes: &[u8]) -> Result<()> {
        for (key, value) in pax::parse(bytes).map_err(|what| self.reader.bad(what))? {
            let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            let id = || number().and_then(|number| u32::try_from(number).ok());
            let known = match key {
                b"path" | b"GNU.sparse.name" => set(&mut extensions.path, Some(value.to_vec())),
                b"linkpath" => set(&mut extensions.target, Some(value.to_vec())),
                b"size" => set(&mut extensions.size, number()),
                b"uid" => set(&mut extensions.uid, id()),
                b"gid" => set(&mut extensions.gid, id()),
                b"atime" => set(&mut extensions.atime, pax::parse_time(value)),
                b"mtime" => set(&mut extensions.mtime, pax::parse_time(value)),
                b"GNU.sparse.major" => set(&mut extensions.sparse.major, Some(value.to_vec())),
                b"GNU.sparse.map" => set(&mut extensions.sparse.map, Some(value.to_vec())),
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => set(&mut extensions.sparse.real_size, number()),
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                    let map = extensions.sparse.map.get_or_insert_default();
                    map.extend_from_slice(if map.is_empty() { b"" } else { b"," });
                    map.extend_from_slice(value);
                    true
                }
                _ => self.take_attribute(extensions, key, value)?,
            };
            if !known {
                let key = String::from_utf8_lossy(key);
                return Err(self.reader.bad(format!("a PAX record {key} whose value cannot be read")));
            }
        }
        Ok(())
    }

    /// Takes a record of an attribute. All other records are ignored, since an image has no place for them.
    fn take_attribute(&mut self, extensions: &mut Extensions, key: &[u8], value: &[u8]) -> Result<bool> {
        let acl: Option<&[u8]> = match key {
            b"SCHILY.acl.access" => Some(b"system.posix_acl_access"),
            b"SCHILY.acl.default" => Some(b"system.posix_acl_default"),
            _ => None,
        };
        if let Some(name) = acl {
            let value = acl::from_text(value).map_err(|what| self.reader.bad(what))?;
            extensions.xattrs.insert(name.to_vec(), value);
            return Ok(true);
        }
        let Some(attribute) = pax::attribute(key, value) else { return Ok(true) };
        let (name, value) = attribute.map_err(|what| self.reader.bad(what))?;
        if is_portable(&name) && !is_not_the_files(&name) {
            extensions.xattrs.insert(name, value);
        } else if !is_not_the_files(&name) {
            self.losses.attributes.note(&name);
        }
        Ok(true)
    }

    /// Sends a file of any kind.
    fn entry(&mut self, header: &Header, extensions: Extensions, out: &mut Outlet) -> Result<()> {
        let stored = match extensions.size {
            Some(size) => size,
            None => header.entry_size().map_err(|_| self.reader.bad("a header with a wrong size"))?,
        };
        let own_path = || header.path_bytes().into_owned();
        let raw = extensions.path.clone().unwrap_or_else(own_path);
        self.place = Place::In(raw.iter().copied().take(MAX_SHOWN_BYTES).collect());
        let path = self.clean(&raw)?;
        let target = || {
            let own = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
            extensions.target.clone().or_else(own).unwrap_or_default()
        };
        let meta = self.meta(header, &extensions)?;
        let bad_device = || self.reader.bad("a device node with wrong numbers");
        let device = || -> Result<u32> {
            let (major, minor) = (header.device_major(), header.device_minor());
            let (Ok(Some(major)), Ok(Some(minor))) = (major, minor) else { return Err(bad_device()) };
            let (number, packed) = (DeviceNumber { major, minor }, DeviceNumber { major, minor }.to_linux());
            if DeviceNumber::from_linux(packed) == number { Ok(packed) } else { Err(bad_device()) }
        };
        let entry_type = header.entry_type().as_byte();
        let kind = match entry_type {
            b'0' | 0 | b'7' if raw.ends_with(b"/") => Kind::Directory,
            b'0' | 0 | b'7' | b'S' => return self.file(header, &extensions, (path, meta), stored, out),
            b'1' => Kind::Link(self.clean(&target())?),
            b'2' => Kind::Symlink(target()),
            b'3' => Kind::Char(device()?),
            b'4' => Kind::Block(device()?),
            b'5' | b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            // The name of the volume.
            b'V' => return self.skip(stored),
            other => return Err(self.reader.bad(format!("a file of the unknown type {:?}", char::from(other)))),
        };
        out.send(Event::Node(Node { path, kind, meta }))?;
        match entry_type {
            // These have no contents, whatever their size field says: some programs store there what a directory may
            // grow to.
            b'2'..=b'6' => Ok(()),
            // Contents follow a further name only in PAX streams. In others the size is that of the file, whose
            // contents were stored with its first name.
            b'1' if !self.is_pax => Ok(()),
            _ => self.skip(stored),
        }
    }

    fn skip(&mut self, stored: u64) -> Result<()> {
        self.reader.skip(stored, "a file")?;
        self.reader.skip(padding(stored), "a file")
    }

    fn file(
        &mut self,
        header: &Header,
        extensions: &Extensions,
        (path, meta): (Vec<u8>, Meta),
        stored: u64,
        out: &mut Outlet,
    ) -> Result<()> {
        let (parts, size, stored_data) = self.layout(header, extensions, stored)?;
        let is_whole = parts.as_slice() == [(0, size)] || size == 0;
        if is_whole && size <= MAX_INLINE_BYTES {
            let mut bytes = vec![0; size as usize];
            self.reader.fill(&mut bytes, "a file")?;
            self.reader.skip(padding(stored), "a file")?;
            let kind = Kind::File { size, contents: Contents::Whole(bytes) };
            return out.send(Event::Node(Node { path, kind, meta }));
        }
        let kind = Kind::File { size, contents: Contents::Parts(parts.clone()) };
        out.send(Event::Node(Node { path, kind, meta }))?;
        if !out.wants_data() {
            self.reader.skip(stored_data, "a file")?;
            return self.reader.skip(padding(stored), "a file");
        }
        for (start, length) in parts {
            let mut done = 0;
            while done < length {
                let mut bytes = vec![0; (length - done).min(PIECE_BYTES as u64) as usize];
                self.reader.fill(&mut bytes, "a file")?;
                let offset = start + done;
                done += bytes.len() as u64;
                out.send(Event::Data { offset, bytes })?;
            }
        }
        self.reader.skip(padding(stored), "a file")?;
        out.send(Event::End)
    }

    /// The parts of a file that contain data, its size, and the bytes of data in the stream.
    fn layout(&mut self, header: &Header, extensions: &Extensions, stored: u64) -> Result<(Parts, u64, u64)> {
        let Sparse { major, map, real_size } = &extensions.sparse;
        let (parts, size, data) = if header.entry_type().as_byte() == b'S' {
            let gnu = header.as_gnu().ok_or_else(|| self.reader.bad("a sparse file without GNU's header"))?;
            let size = gnu.real_size().map_err(|_| self.reader.bad("a sparse file without a size"))?;
            (sparse::old(gnu, &mut self.reader)?, size, stored)
        } else if major.as_deref() == Some(b"1") {
            let (parts, taken) = sparse::in_contents(&mut self.reader)?;
            let left = stored.checked_sub(taken);
            (parts, real_size.unwrap_or(0), left.ok_or_else(|| self.reader.bad("a map longer than its file"))?)
        } else if let Some(map) = map {
            let parts = sparse::in_records(map);
            let parts = parts.ok_or_else(|| self.reader.bad("a map of a sparse file that cannot be read"))?;
            (parts, real_size.unwrap_or(0), stored)
        } else {
            return Ok((vec![(0, stored)], stored, stored));
        };
        let parts = sparse::verify(parts, size, data).map_err(|what| self.reader.bad(what))?;
        Ok((parts, size, data))
    }

    fn meta(&mut self, header: &Header, extensions: &Extensions) -> Result<Meta> {
        let bad = |what: &str| self.reader.bad(format!("a header with a wrong {what}"));
        let mode = header.mode().map_err(|_| bad("mode"))? as u16 & 0o7777;
        let id = |given: Option<u32>, own: std::io::Result<u64>| match given {
            Some(id) => Some(id),
            None => own.ok().and_then(|id| u32::try_from(id).ok()),
        };
        let uid = id(extensions.uid, header.uid()).ok_or_else(|| bad("owner"))?;
        let gid = id(extensions.gid, header.gid()).ok_or_else(|| bad("group"))?;
        let mtime = match extensions.mtime {
            Some(time) => time,
            None => Timestamp { seconds: header.mtime().map_err(|_| bad("time"))? as i64, nanoseconds: 0 },
        };
        let atime = extensions.atime.unwrap_or(mtime);
        let xattrs = extensions.xattrs.clone().into_iter().collect();
        Ok(Meta { mode, uid, gid, atime, mtime, xattrs })
    }

    /// Converts a path to one below the tree's root, without empty and `.` components.
    fn clean(&mut self, raw: &[u8]) -> Result<Vec<u8>> {
        if raw.len() > MAX_PATH_BYTES {
            let beginning = shown(&raw[..SHOWN_BYTES]);
            let what = format!("{beginning}...: a path of {} bytes; {MAX_PATH_BYTES} are the most", raw.len());
            return Err(self.reader.bad(what));
        }
        if raw.starts_with(b"/") {
            self.losses.absolute.note(raw);
        }
        let mut path = Vec::with_capacity(raw.len());
        for name in raw.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(TransferError::UnsafePath(shown(raw))),
                name => {
                    path.extend_from_slice(if path.is_empty() { b"" } else { b"/" });
                    path.extend_from_slice(name);
                }
            }
        }
        Ok(path)
    }
}

impl<R: Read + Send> Source for TarSource<R> {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        self.send_all(out).map_err(|error| self.within(error))
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}

/// Sets the value of a record; false if the value could not be read.
fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

fn until_zero(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}
