//! The files of a layout: regular files within its folder, or within an archive of one. A link in it may lead to
//! another place in it, and not out of it; a pipe or a device is refused and not waited for.

use super::documents::Descriptor;
use crate::archive::{ArchiveIndex, unpacked};
use crate::error::{Result, TransferError};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256, Sha512};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest document: the specification asks for this many bytes at least.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// The folder of a layout, or an archive of one.
#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
    /// The files of an archive.
    archive: Option<ArchiveIndex>,
}

impl Blobs {
    /// # Errors
    /// `Host` for an archive that cannot be read, those of a tar stream.
    pub(super) fn new(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Ok(Self { dir: path.into(), archive: None });
        }
        let name = path.display().to_string();
        let host = |source| TransferError::Host { path: name.clone(), what: "reading it", source };
        let file = File::open(path).map_err(host)?;
        if !file.metadata().map_err(host)?.is_file() {
            return Err(TransferError::BadContainer { file: name, what: "it is neither a folder nor a file".into() });
        }
        let mut head = [0; 4];
        let count = std::os::unix::fs::FileExt::read_at(&file, &mut head, 0).map_err(host)?;
        let packer = match &head[..count] {
            [0x1f, 0x8b, ..] => Some("gzip"),
            [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
            _ => None,
        };
        if let Some(packer) = packer {
            let what = format!("an archive that is packed; unpack it first: {packer} -dc {name} > FILE");
            return Err(TransferError::BadContainer { file: name, what });
        }
        Ok(Self { dir: path.into(), archive: Some(ArchiveIndex::new(file, name)?) })
    }

    pub(super) fn bad(&self, part: &str, what: String) -> TransferError {
        TransferError::BadContainer { file: self.shown(part), what }
    }

    /// A part of the layout for messages.
    pub(super) fn shown(&self, part: &str) -> String {
        format!("{}: {part}", self.dir.display())
    }

    /// A document in the folder itself.
    pub(super) fn document<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let text = self.read_file(name, MAX_DOCUMENT_BYTES)?;
        if text.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(self.bad(name, "a document of more than 4 MiB".into()));
        }
        self.parse(name, &text)
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, part: &str, text: &[u8]) -> Result<T> {
        serde_json::from_slice(text).map_err(|error| self.bad(part, error.to_string()))
    }

    /// The file of the host that a part is in.
    pub(super) fn host_path(&self, part: &str) -> PathBuf {
        if self.archive.is_some() { self.dir.clone() } else { self.dir.join(part) }
    }

    /// The path of a blob below the folder.
    pub(super) fn path_below(&self, digest: &str) -> Result<String> {
        let is_hex = |hex: &str, digits: usize| {
            hex.len() == digits && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match digest.split_once(':') {
            Some((algorithm @ "sha256", hex)) if is_hex(hex, 64) => Ok(format!("blobs/{algorithm}/{hex}")),
            Some((algorithm @ "sha512", hex)) if is_hex(hex, 128) => Ok(format!("blobs/{algorithm}/{hex}")),
            _ => Err(self.bad(digest, "a digest that is neither sha256 nor sha512".into())),
        }
    }

    /// A document that a descriptor names, verified.
    pub(super) fn read(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        if descriptor.size > MAX_DOCUMENT_BYTES {
            return Err(self.bad(&descriptor.digest, "a document of more than 4 MiB".into()));
        }
        let text = self.read_file(&self.path_below(&descriptor.digest)?, descriptor.size)?;
        let digest = digest_of(&descriptor.digest, &mut text.as_slice()).expect("a slice can be read");
        self.compare(descriptor, digest, text.len() as u64).map(|()| text)
    }

    /// Reads a blob that a descriptor names, and compares it.
    pub(super) fn verify(&self, descriptor: &Descriptor) -> Result<()> {
        let part = self.path_below(&descriptor.digest)?;
        let (mut stream, size) = self.open(&part)?;
        let host = |source| TransferError::Host { path: self.shown(&part), what: "reading it", source };
        let digest = digest_of(&descriptor.digest, &mut stream).map_err(host)?;
        self.compare(descriptor, digest, size)
    }

    /// Compares a layer with the digest of what it is when it is unpacked.
    pub(super) fn verify_unpacked(&self, part: &str, expected: &str) -> Result<()> {
        let stream = unpacked(self.open(part)?.0);
        let digest = stream.and_then(|mut stream| digest_of(expected, &mut stream));
        let digest = digest.map_err(|error| self.bad(part, format!("it cannot be unpacked: {error}")))?;
        if digest == expected {
            return Ok(());
        }
        let what =
            format!("unpacked, its digest is {digest}, and the image's config says {expected} (rootfs.diff_ids)");
        Err(self.bad(part, what))
    }

    /// Whether there is a part.
    pub(super) fn has(&self, part: &str) -> bool {
        match &self.archive {
            Some(archive) => archive.open(part).is_some(),
            None => self.dir.join(part).symlink_metadata().is_ok(),
        }
    }

    /// A part, and its length.
    pub(super) fn open(&self, part: &str) -> Result<(Box<dyn Read + Send>, u64)> {
        if let Some(archive) = &self.archive {
            let found = archive.open(part);
            let (stream, size) = found.ok_or_else(|| self.bad(part, "the archive has no such file".into()))?;
            return Ok((Box::new(stream), size));
        }
        let file = self.open_file(Path::new(part))?;
        let host = |source| TransferError::Host { path: self.shown(part), what: "reading it", source };
        let size = file.metadata().map_err(host)?.len();
        Ok((Box::new(file), size))
    }

    /// Opens a regular file within the folder.
    fn open_file(&self, path: &Path) -> Result<File> {
        let whole = self.dir.join(path);
        let host = |source| TransferError::Host { path: whole.display().to_string(), what: "reading it", source };
        let dir = File::open(&self.dir).map_err(host)?;
        // A pipe would be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = match rustix::fs::openat2(&dir, path, flags, Mode::empty(), below) {
            // A kernel before 5.6, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(&dir, path, flags | OFlags::NOFOLLOW, Mode::empty()),
            opened => opened,
        };
        let part = path.display().to_string();
        let file = match opened {
            Err(Errno::XDEV | Errno::LOOP) => {
                return Err(self.bad(&part, "a link that leads out of the layout's folder".into()));
            }
            opened => File::from(opened.map_err(|error| host(error.into()))?),
        };
        match file.metadata().map_err(host)?.is_file() {
            true => Ok(file),
            false => Err(self.bad(&part, "it is no regular file".into())),
        }
    }

    /// At most one byte more than a file is to have.
    fn read_file(&self, part: &str, expected: u64) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let read = self.open(part)?.0.take(expected + 1).read_to_end(&mut text);
        read.map_err(|source| TransferError::Host { path: self.shown(part), what: "reading it", source })?;
        Ok(text)
    }

    fn compare(&self, descriptor: &Descriptor, digest: String, size: u64) -> Result<()> {
        if size != descriptor.size {
            let what = format!("it should have {} bytes and has {size}", descriptor.size);
            return Err(self.bad(&descriptor.digest, what));
        }
        if digest != descriptor.digest {
            return Err(self.bad(&descriptor.digest, format!("its digest is {digest}: the layout is damaged")));
        }
        Ok(())
    }
}

/// The digest of a stream by the algorithm of another digest.
fn digest_of(like: &str, stream: &mut dyn Read) -> std::io::Result<String> {
    if like.starts_with("sha512:") { hash::<Sha512>("sha512", stream) } else { hash::<Sha256>("sha256", stream) }
}

fn hash<D: Digest>(name: &str, stream: &mut dyn Read) -> std::io::Result<String> {
    let mut hash = D::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut text = format!("{name}:");
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
