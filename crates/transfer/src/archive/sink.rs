//! Writes a tree as a tar stream: PAX headers, attributes in GNU tar's form, ACLs as text, sparse files in GNU's form
//! 1.0.

use super::reader::padding;
use super::{BLOCK, acl, pax, sparse};
use crate::error::{Losses, Result, TransferError};
use crate::event::{Contents, Kind, Node, split};
use crate::pipe::Sink;
use std::io::Write;
use tar::{EntryType, Header};
use xfskit_vfs::DeviceNumber;

/// The largest values that fit a header's fields.
const MAX_NAME_BYTES: usize = 100;
const MAX_SIZE: u64 = 0o77_777_777_777;
const MAX_ID: u32 = 0o7_777_777;
const MAX_DEVICE: u32 = 0o7_777_777;

/// Writes a tar stream.
pub struct TarSink<W> {
    stream: W,
    /// Bytes of the last file's contents that are still to be written, and the padding behind them.
    left: u64,
    padding: u64,
    losses: Losses,
    /// The name of the tree's root.
    root: Vec<u8>,
}

impl<W: Write> TarSink<W> {
    /// Writes to `stream`.
    pub fn new(stream: W) -> Self {
        Self { stream, left: 0, padding: 0, losses: Losses::default(), root: b".".to_vec() }
    }

    /// Names the root `name`: a root that is not a directory cannot be unpacked as `.`.
    #[must_use]
    pub fn with_root(self, name: &[u8]) -> Self {
        Self { root: name.to_vec(), ..self }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let failed = |source| TransferError::Host { path: "the tar stream".into(), what: "writing it", source };
        self.stream.write_all(bytes).map_err(failed)
    }

    fn pad(&mut self) -> Result<()> {
        let padding = std::mem::take(&mut self.padding);
        self.write(&[0; BLOCK][..padding as usize])
    }

    /// Writes the headers of a file. A file that is stored without its holes has a `real_size` besides the stored size.
    fn headers(&mut self, node: &Node, kind: EntryType, stored: u64, real_size: Option<u64>) -> Result<()> {
        let mut records = Vec::new();
        let mut name = if node.path.is_empty() { self.root.clone() } else { node.path.clone() };
        if kind == EntryType::Directory {
            name.push(b'/');
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(node.meta.mode.into());
        let target = match &node.kind {
            Kind::Symlink(target) | Kind::Link(target) => target.as_slice(),
            _ => b"",
        };
        if std::str::from_utf8(&name).is_err() || std::str::from_utf8(target).is_err() {
            // Readers take names for UTF-8 unless this record precedes them.
            pax::push(&mut records, b"hdrcharset", b"BINARY");
        }
        if let Some(size) = real_size {
            pax::push(&mut records, b"GNU.sparse.major", b"1");
            pax::push(&mut records, b"GNU.sparse.minor", b"0");
            pax::push(&mut records, b"GNU.sparse.realsize", size.to_string().as_bytes());
            pax::push(&mut records, b"GNU.sparse.name", &name);
            // The name that a reader without support for sparse files sees.
            name = [b"GNUSparseFile.0/", split(&node.path).1].concat();
        }
        set_text(&mut header, Field::Name, &name, real_size.is_none().then_some(b"path"), &mut records);
        match &node.kind {
            Kind::Symlink(_) | Kind::Link(_) => {
                set_text(&mut header, Field::Target, target, Some(b"linkpath"), &mut records);
            }
            Kind::Char(number) | Kind::Block(number) => {
                let DeviceNumber { major, minor } = DeviceNumber::from_linux(*number);
                debug_assert!(major <= MAX_DEVICE && minor <= MAX_DEVICE);
                let set = header.set_device_major(major).and_then(|()| header.set_device_minor(minor));
                set.expect("a ustar header has fields for them");
            }
            _ => {}
        }
        header.set_size(stored.min(MAX_SIZE));
        if stored > MAX_SIZE {
            pax::push(&mut records, b"size", stored.to_string().as_bytes());
        }
        self.attributes(node, &mut header, &mut records);
        header.set_cksum();
        if !records.is_empty() {
            self.extension(&records, node)?;
        }
        self.write(header.as_bytes())
    }

    /// Writes owner, times and attributes: values that do not fit the header become records.
    fn attributes(&mut self, node: &Node, header: &mut Header, records: &mut Vec<u8>) {
        let meta = &node.meta;
        for (id, key) in [(meta.uid, b"uid"), (meta.gid, b"gid")] {
            if id > MAX_ID {
                pax::push(records, key, id.to_string().as_bytes());
            }
        }
        header.set_uid(meta.uid.min(MAX_ID).into());
        header.set_gid(meta.gid.min(MAX_ID).into());
        let seconds = u64::try_from(meta.mtime.seconds).unwrap_or(0).min(MAX_SIZE);
        header.set_mtime(seconds);
        if meta.mtime.nanoseconds != 0 || i64::try_from(seconds) != Ok(meta.mtime.seconds) {
            pax::push(records, b"mtime", pax::time_text(meta.mtime).as_bytes());
        }
        if meta.atime != meta.mtime {
            pax::push(records, b"atime", pax::time_text(meta.atime).as_bytes());
        }
        if let Kind::Link(_) = node.kind {
            return;
        }
        for (name, value) in &meta.xattrs {
            let key: &[u8] = match name.as_slice() {
                b"system.posix_acl_access" => b"SCHILY.acl.access",
                b"system.posix_acl_default" => b"SCHILY.acl.default",
                name => {
                    pax::push(records, &pax::attribute_key(name), value);
                    continue;
                }
            };
            match acl::to_text(value) {
                Some(text) => pax::push(records, key, &text),
                None => self.losses.attributes.note(&node.path),
            }
        }
    }

    /// Writes the header that contains records.
    fn extension(&mut self, records: &[u8], node: &Node) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        let name = [b"PaxHeaders/", split(&node.path).1].concat();
        set_text(&mut header, Field::Name, &name, None, &mut Vec::new());
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(records.len() as u64);
        header.set_cksum();
        self.write(header.as_bytes())?;
        self.write(records)?;
        self.padding = padding(records.len() as u64);
        self.pad()
    }

    /// Writes the headers of a regular file whose contents follow.
    fn begin_file(&mut self, node: &Node, size: u64, parts: &[(u64, u64)]) -> Result<()> {
        if size == 0 || parts == [(0, size)] {
            self.headers(node, EntryType::Regular, size, None)?;
            self.left = size;
        } else {
            let map = sparse::encode(parts, size);
            let data: u64 = parts.iter().map(|(_, length)| length).sum();
            self.headers(node, EntryType::Regular, map.len() as u64 + data, Some(size))?;
            self.write(&map)?;
            self.left = data;
        }
        self.padding = padding(self.left);
        Ok(())
    }
}

enum Field {
    Name,
    Target,
}

/// Puts text into a header's field as far as it fits. If it does not fit as a whole, adds a record.
fn set_text(header: &mut Header, field: Field, text: &[u8], key: Option<&[u8]>, records: &mut Vec<u8>) {
    if let Some(key) = key
        && (text.len() > MAX_NAME_BYTES || !text.is_ascii())
    {
        pax::push(records, key, text);
    }
    let old = header.as_old_mut();
    let place = match field {
        Field::Name => &mut old.name,
        Field::Target => &mut old.linkname,
    };
    let length = text.len().min(MAX_NAME_BYTES);
    place[..length].copy_from_slice(&text[..length]);
}

impl<W: Write> Sink for TarSink<W> {
    fn node(&mut self, node: Node) -> Result<()> {
        let kind = match &node.kind {
            Kind::Directory => EntryType::Directory,
            Kind::File { size, contents: Contents::Whole(bytes) } => {
                let size = *size;
                self.begin_file(&node, size, &[(0, size)])?;
                self.data(0, bytes)?;
                return self.pad();
            }
            Kind::File { size, contents: Contents::Parts(parts) } => return self.begin_file(&node, *size, parts),
            Kind::Symlink(_) => EntryType::Symlink,
            Kind::Link(_) => EntryType::Link,
            Kind::Char(_) => EntryType::Char,
            Kind::Block(_) => EntryType::Block,
            Kind::Fifo => EntryType::Fifo,
            Kind::Socket => {
                self.losses.sockets.note(&node.path);
                return Ok(());
            }
        };
        self.headers(&node, kind, 0, None)
    }

    fn data(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).expect("a source sends the parts that it named");
        self.write(bytes)
    }

    fn end(&mut self) -> Result<()> {
        assert_eq!(self.left, 0, "a source sends all the parts that it named");
        self.pad()
    }

    /// The header has stated the number of bytes and is already written, so the rest is filled with zeros.
    fn broken(&mut self, why: &TransferError) -> Result<()> {
        while self.left > 0 {
            let zeros = [0; BLOCK];
            let count = self.left.min(BLOCK as u64);
            self.left -= count;
            self.write(&zeros[..count as usize])?;
        }
        self.losses.padded.note_reason(why);
        self.pad()
    }

    fn finish(&mut self) -> Result<()> {
        self.write(&[0; 2 * BLOCK])?;
        let failed = |source| TransferError::Host { path: "the tar stream".into(), what: "writing it", source };
        self.stream.flush().map_err(failed)
    }

    /// Nothing to undo: a stream without its end mark is incomplete.
    fn abort(&mut self) {}

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}
