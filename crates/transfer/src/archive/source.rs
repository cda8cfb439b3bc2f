//! Reads a tree from a tar stream.
//!
//! What both GNU tar and bsdtar read without complaint is read here with the same result; where they differ, what
//! POSIX says decides. A leading slash of a name is dropped, as GNU tar does; a name with `..` in it is refused. A
//! stream without its end mark is complete where a file is, and counted, for it may have been cut short there.

use super::header::{Header, until_zero};
use super::places::{Place as IndexPlace, clean};

use super::reader::{MAX_EXTENSION_BYTES, Reader, packer, padding};
use super::sparse::{self, Parts};
use super::{BLOCK, acl, pax};
use crate::error::{Losses, Result, TransferError, shown};
use crate::event::{
    Contents, Event, Kind, MAX_INLINE_BYTES, MAX_PATH_BYTES, Meta, Node, PIECE_BYTES, is_not_the_files, is_portable,
    split,
};
use crate::pipe::{Outlet, Source};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use xfskit_vfs::{DeviceNumber, Timestamp};

/// Bytes of a path that is too long in a message.
const SHOWN_BYTES: usize = 60;
/// Most bytes of a path that tells where an error is.
const MAX_SHOWN_BYTES: usize = 300;
/// Most files of an archive that is read by the names of its files.
const MAX_INDEXED: usize = 100_000;
/// Most bytes of their paths and targets.
const MAX_INDEXED_BYTES: usize = 64 << 20;
/// Most bytes of names and attributes in global headers, which every file behind them gets.
const MAX_GLOBAL_BYTES: usize = 64 << 10;

/// Reads a tar stream.
pub struct TarSource<R> {
    reader: Reader<R>,
    globals: Extensions,
    losses: Losses,
    archive: Option<String>,
    place: Place,
    /// A PAX header was read.
    is_pax: bool,
    container: ContainerMarks,
    is_layer: bool,
}

/// What an archive of a container image has besides its blobs.
#[derive(Debug, Default)]
struct ContainerMarks {
    layout: bool,
    index: bool,
    manifest: bool,
    layers: bool,
}

impl ContainerMarks {
    fn note(&mut self, path: &[u8]) {
        match path {
            b"oci-layout" => self.layout = true,
            b"index.json" => self.index = true,
            b"manifest.json" => self.manifest = true,
            _ => {}
        }
        let hex = path.strip_suffix(b".tar").unwrap_or_default();
        let is_digest = hex.len() == 64 && hex.iter().all(u8::is_ascii_hexdigit);
        self.layers |= path.ends_with(b"/layer.tar") || path.starts_with(b"blobs/sha256/") || is_digest;
    }

    /// How a user names the image; `None` where it is another archive.
    fn prefix(&self) -> Option<&'static str> {
        match self {
            Self { layout: true, index: true, layers: true, .. } => Some("oci:"),
            Self { manifest: true, layers: true, .. } => Some("docker-archive:"),
            _ => None,
        }
    }
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
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    /// GNU's long names, over which records go.
    long_path: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
    device_major: Option<u32>,
    device_minor: Option<u32>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    sparse: Sparse,
}

/// GNU's records of sparse files.
#[derive(Default)]
struct Sparse {
    major: Option<Vec<u8>>,
    parts: Option<Parts>,
    /// The first half of a part in the form 0.0.
    offset: Option<u64>,
    real_size: Option<u64>,
    /// The name of the file, in place of one for readers without support for sparse files.
    name: Option<Vec<u8>>,
}

/// Which files a record is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    NextFile,
    AllThatFollow,
}

impl Extensions {
    /// Bytes of names and attributes.
    fn bytes(&self) -> usize {
        let names = [&self.path, &self.target].into_iter().flatten().map(Vec::len).sum::<usize>();
        names + self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    /// Takes from others what is not given here.
    fn fill_from(&mut self, globals: &Self) {
        fn fill<T: Clone>(own: &mut Option<T>, other: &Option<T>) {
            if own.is_none() {
                own.clone_from(other);
            }
        }
        fill(&mut self.path, &globals.path);
        fill(&mut self.target, &globals.target);
        fill(&mut self.size, &globals.size);
        fill(&mut self.uid, &globals.uid);
        fill(&mut self.gid, &globals.gid);
        fill(&mut self.atime, &globals.atime);
        fill(&mut self.mtime, &globals.mtime);
        fill(&mut self.device_major, &globals.device_major);
        fill(&mut self.device_minor, &globals.device_minor);
        for (name, value) in &globals.xattrs {
            self.xattrs.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
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
            container: ContainerMarks::default(),
            is_layer: false,
        }
    }

    /// Sets the archive's name, for messages.
    #[must_use]
    pub fn named(mut self, archive: String) -> Self {
        self.archive = Some(archive);
        self
    }

    /// The stream is a layer of a container image, and no image itself.
    pub(crate) fn of_a_layer(mut self) -> Self {
        self.is_layer = true;
        self
    }

    /// The next file's headers; `None` after the last one.
    fn next_header(&mut self) -> Result<Option<(Header, Extensions)>> {
        let mut extensions = Extensions::default();
        let mut is_within = false;
        let mut bytes_left = MAX_EXTENSION_BYTES;
        loop {
            let header = match self.reader.block()? {
                None if is_within || self.reader.at() == 0 => {
                    return Err(TransferError::CutShort(self.reader.at(), "the archive: its end mark is missing"));
                }
                None => {
                    self.losses.unmarked.note(self.archive.as_deref().unwrap_or("the tar stream").as_bytes());
                    return Ok(None);
                }
                Some(block) if block == [0; BLOCK] && !is_within => return Ok(None),
                Some(block) => Header(block),
            };
            self.check(&header)?;
            let kind = header.kind();
            if !matches!(kind, b'x' | b'X' | b'g' | b'L' | b'K') {
                extensions.fill_from(&self.globals);
                return Ok(Some((header, extensions)));
            }
            self.is_pax |= matches!(kind, b'x' | b'X' | b'g');
            let size = header.size().ok_or_else(|| self.reader.bad("a header with a wrong size"))?;
            let bytes = self.reader.extension(size, bytes_left)?;
            if kind == b'g' {
                self.take_globals(&bytes)?;
                continue;
            }
            is_within = true;
            bytes_left -= size;
            match kind {
                b'L' => extensions.long_path = Some(until_zero(&bytes).to_vec()),
                b'K' => extensions.long_target = Some(until_zero(&bytes).to_vec()),
                _ => self.take_records(&mut extensions, &bytes, Scope::NextFile)?,
            }
        }
    }

    fn take_globals(&mut self, bytes: &[u8]) -> Result<()> {
        let mut globals = std::mem::take(&mut self.globals);
        self.take_records(&mut globals, bytes, Scope::AllThatFollow)?;
        if globals.bytes() > MAX_GLOBAL_BYTES {
            let kib = MAX_GLOBAL_BYTES >> 10;
            return Err(self
                .reader
                .bad(format!("global PAX headers with more than {kib} KiB of names and attributes")));
        }
        self.globals = globals;
        Ok(())
    }

    fn check(&self, header: &Header) -> Result<()> {
        if header.has_its_sum() {
            return Ok(());
        }
        // Those that are not unpacked by themselves.
        let packed = packer(&header.0).filter(|_| self.reader.at() <= BLOCK as u64);
        Err(match packed {
            Some((name, command)) => {
                let file = self.archive.as_deref().unwrap_or("FILE");
                let command = command.replace("FILE", file);
                self.reader.bad(format!("{name}: unpack it first: {command} | xfskit mkfs --from - ..."))
            }
            None => self.reader.bad("no header where one belongs, or one with a wrong checksum"),
        })
    }

    /// Where the files lie, by their paths.
    pub(super) fn places(mut self) -> Result<HashMap<Vec<u8>, IndexPlace>> {
        let places = self.find_places();
        places.map_err(|error| self.within(error))
    }

    fn find_places(&mut self) -> Result<HashMap<Vec<u8>, IndexPlace>> {
        let (mut places, mut bytes) = (HashMap::new(), 0);
        while let Some((header, extensions)) = self.next_header()? {
            let size = extensions.size.or_else(|| header.size());
            let stored = size.ok_or_else(|| self.reader.bad("a header with a wrong size"))?;
            let names = [extensions.path, extensions.long_path];
            let path = clean(&names.into_iter().flatten().next().unwrap_or_else(|| header.name()));
            let targets = [extensions.target, extensions.long_target];
            let target = targets.into_iter().flatten().next().unwrap_or_else(|| header.target());
            bytes += path.len() + target.len();
            if path.len().max(target.len()) > MAX_PATH_BYTES || bytes > MAX_INDEXED_BYTES {
                return Err(self.reader.bad("paths that are longer than those of a container image"));
            }
            let place = match header.kind() {
                b'0' | 0 | b'7' => IndexPlace::Data(self.reader.at(), stored),
                b'1' => IndexPlace::Link(clean(&target)),
                b'2' => IndexPlace::Link(clean(&[split(&path).0, b"/", &target].concat())),
                _ => continue,
            };
            if matches!(place, IndexPlace::Data(..)) {
                self.skip(stored)?;
            }
            places.insert(path, place);
            if places.len() > MAX_INDEXED {
                return Err(self.reader.bad(format!("more than {MAX_INDEXED} files for a container image")));
            }
        }
        Ok(places)
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
        if let Some(prefix) = self.container.prefix().filter(|_| !self.is_layer) {
            let file = self.archive.clone().unwrap_or_else(|| "the tar stream".into());
            let named = format!("{prefix}{}", self.archive.as_deref().unwrap_or("FILE"));
            let what = format!(
                "it is a container image, whose files are in the layers: --from {named} unpacks these; to have the \
                 blobs themselves, unpack it into a folder first"
            );
            return Err(TransferError::BadContainer { file, what });
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

    fn take_records(&mut self, extensions: &mut Extensions, bytes: &[u8], scope: Scope) -> Result<()> {
        for record in pax::parse(bytes) {
            let (key, value) = record.map_err(|what| self.reader.bad(what))?;
            let known = match key.strip_prefix(b"GNU.sparse.") {
                Some(name) if scope == Scope::NextFile => self.take_sparse(&mut extensions.sparse, name, value)?,
                Some(_) => return Err(self.reader.bad("a map of a sparse file in a global PAX header")),
                None => self.take_record(extensions, key, value)?,
            };
            if !known {
                let key = String::from_utf8_lossy(key);
                return Err(self.reader.bad(format!("a PAX record {key} whose value cannot be read")));
            }
        }
        Ok(())
    }

    /// Takes a record; false if its value cannot be read. One without a value takes back what was said before.
    fn take_record(&mut self, extensions: &mut Extensions, key: &[u8], value: &[u8]) -> Result<bool> {
        fn set<T>(place: &mut Option<T>, text: &[u8], value: Option<T>) -> bool {
            *place = value.filter(|_| !text.is_empty());
            place.is_some() || text.is_empty()
        }
        let number = || sparse::decimal(value);
        let id = || number().and_then(|number| u32::try_from(number).ok());
        let text = || Some(until_zero(value).to_vec());
        Ok(match key {
            b"path" => set(&mut extensions.path, value, text()),
            b"linkpath" => set(&mut extensions.target, value, text()),
            b"size" => set(&mut extensions.size, value, number()),
            b"uid" => set(&mut extensions.uid, value, id()),
            b"gid" => set(&mut extensions.gid, value, id()),
            b"atime" => set(&mut extensions.atime, value, pax::parse_time(value)),
            b"mtime" => set(&mut extensions.mtime, value, pax::parse_time(value)),
            b"SCHILY.devmajor" => set(&mut extensions.device_major, value, id()),
            b"SCHILY.devminor" => set(&mut extensions.device_minor, value, id()),
            _ => self.take_attribute(extensions, key, value)?,
        })
    }

    /// Takes a record of a sparse file; false if its value cannot be read.
    fn take_sparse(&self, sparse: &mut Sparse, name: &[u8], value: &[u8]) -> Result<bool> {
        let number = || sparse::decimal(value);
        let bad = |what| self.reader.bad(what);
        Ok(match name {
            b"name" => set(&mut sparse.name, Some(until_zero(value).to_vec())),
            b"major" => set(&mut sparse.major, Some(value.to_vec())),
            b"map" => set(&mut sparse.parts, Some(sparse::from_record(value).map_err(bad)?)),
            b"realsize" | b"size" => set(&mut sparse.real_size, number()),
            b"offset" => set(&mut sparse.offset, number()),
            b"numbytes" => {
                let (Some(offset), Some(length)) = (sparse.offset.take(), number()) else { return Ok(false) };
                sparse::push(sparse.parts.get_or_insert_default(), offset, length).map_err(bad)?;
                true
            }
            _ => true,
        })
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
    fn entry(&mut self, header: &Header, mut extensions: Extensions, out: &mut Outlet) -> Result<()> {
        let size = extensions.size.or_else(|| header.size());
        let stored = size.ok_or_else(|| self.reader.bad("a header with a wrong size"))?;
        match header.kind() {
            // The name of the volume.
            b'V' => return self.skip(stored),
            // Solaris' ACL of the next file.
            b'A' => {
                self.losses.attributes.note(b"an ACL of Solaris");
                return self.skip(stored);
            }
            _ => {}
        }
        let names = [extensions.sparse.name.take(), extensions.path.take(), extensions.long_path.take()];
        let raw = names.into_iter().flatten().next().unwrap_or_else(|| header.name());
        self.place = Place::In(raw.iter().copied().take(MAX_SHOWN_BYTES).collect());
        let path = self.clean(&raw)?;
        self.container.note(&path);
        let targets = [extensions.target.take(), extensions.long_target.take()];
        let target = targets.into_iter().flatten().next().unwrap_or_else(|| header.target());
        let meta = self.meta(header, &mut extensions)?;
        let kind = match header.kind() {
            b'0' | 0 | b'7' if raw.ends_with(b"/") => Kind::Directory,
            b'0' | 0 | b'7' | b'S' => return self.file(header, extensions.sparse, (path, meta), stored, out),
            b'1' => Kind::Link(self.clean(&target)?),
            b'2' => Kind::Symlink(target),
            b'3' => Kind::Char(self.device(header, &extensions)?),
            b'4' => Kind::Block(self.device(header, &extensions)?),
            b'5' | b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'M' => return Err(self.reader.bad("a file that began in another volume: put the volumes together first")),
            // As POSIX has it.
            _ => {
                self.losses.unknown_types.note(&path);
                return self.file(header, extensions.sparse, (path, meta), stored, out);
            }
        };
        out.send(Event::Node(Node { path, kind, meta }))?;
        match header.kind() {
            // The list of what was in a directory.
            b'D' => self.skip(stored),
            // Contents follow a further name only in PAX streams. In others the size is that of the file, whose
            // contents were stored with its first name.
            b'1' if self.is_pax => self.skip(stored),
            // These have no contents, whatever their size field says: some programs store there what a directory may
            // grow to.
            _ => Ok(()),
        }
    }

    /// The number of a device in Linux's form.
    fn device(&self, header: &Header, extensions: &Extensions) -> Result<u32> {
        let own = header.device();
        let major = extensions.device_major.or(own.map(|own| own.0));
        let minor = extensions.device_minor.or(own.map(|own| own.1));
        let number = major.zip(minor).map(|(major, minor)| DeviceNumber { major, minor });
        let known = number.filter(|number| DeviceNumber::from_linux(number.to_linux()) == *number);
        known.map(DeviceNumber::to_linux).ok_or_else(|| self.reader.bad("a device node with wrong numbers"))
    }

    fn skip(&mut self, stored: u64) -> Result<()> {
        self.reader.skip(stored, "a file")?;
        self.reader.skip(padding(stored), "a file")
    }

    fn file(
        &mut self,
        header: &Header,
        sparse: Sparse,
        (path, meta): (Vec<u8>, Meta),
        stored: u64,
        out: &mut Outlet,
    ) -> Result<()> {
        let (parts, size, stored_data) = self.layout(header, sparse, stored)?;
        let is_whole = parts.as_slice() == [(0, size)] || size == 0;
        if is_whole && size <= MAX_INLINE_BYTES {
            let mut bytes = vec![0; size as usize];
            self.reader.fill(&mut bytes, "a file")?;
            self.reader.skip(padding(stored), "a file")?;
            let kind = Kind::File { size, contents: Contents::Whole(bytes) };
            return out.send(Event::Node(Node { path, kind, meta }));
        }
        if !out.wants_data() {
            let kind = Kind::File { size, contents: Contents::Parts(parts) };
            out.send(Event::Node(Node { path, kind, meta }))?;
            self.reader.skip(stored_data, "a file")?;
            return self.reader.skip(padding(stored), "a file");
        }
        let kind = Kind::File { size, contents: Contents::Parts(parts.clone()) };
        out.send(Event::Node(Node { path, kind, meta }))?;
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
    fn layout(&mut self, header: &Header, sparse: Sparse, stored: u64) -> Result<(Parts, u64, u64)> {
        let (parts, size, data) = if header.kind() == b'S' {
            let size = header.real_size().ok_or_else(|| self.reader.bad("a sparse file without a size"))?;
            (sparse::old(header, &mut self.reader)?, Some(size), stored)
        } else if sparse.major.as_deref() == Some(b"1") {
            let (parts, taken) = sparse::in_contents(&mut self.reader)?;
            let left = stored.checked_sub(taken);
            (parts, sparse.real_size, left.ok_or_else(|| self.reader.bad("a map longer than its file"))?)
        } else if let Some(parts) = sparse.parts {
            (parts, sparse.real_size, stored)
        } else {
            return Ok((vec![(0, stored)], stored, stored));
        };
        let end = || parts.last().map_or(0, |(start, length)| start.saturating_add(*length));
        let size = size.unwrap_or_else(end);
        let parts = sparse::verify(parts, size, data).map_err(|what| self.reader.bad(what))?;
        Ok((parts, size, data))
    }

    fn meta(&mut self, header: &Header, extensions: &mut Extensions) -> Result<Meta> {
        let bad = |what: &str| self.reader.bad(format!("a header with a wrong {what}"));
        let mode = header.mode().ok_or_else(|| bad("mode"))?;
        let uid = extensions.uid.or_else(|| header.uid()).ok_or_else(|| bad("owner"))?;
        let gid = extensions.gid.or_else(|| header.gid()).ok_or_else(|| bad("group"))?;
        let own = || header.mtime().map(|seconds| Timestamp { seconds, nanoseconds: 0 });
        let mtime = extensions.mtime.or_else(own).ok_or_else(|| bad("time"))?;
        let atime = extensions.atime.unwrap_or(mtime);
        let xattrs = std::mem::take(&mut extensions.xattrs).into_iter().collect();
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
