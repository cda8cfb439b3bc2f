//! The files of a layout: regular files within its folder. A link in the folder may lead to another place in it, and
//! not out of it; a pipe or a device is refused and not waited for.

use super::documents::Descriptor;
use crate::archive::unpacked;
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

/// The folder of a layout.
#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
}

impl Blobs {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.into() }
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
        let text = self.read_file(Path::new(name), MAX_DOCUMENT_BYTES)?;
        if text.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(self.bad(name, "a document of more than 4 MiB".into()));
        }
        self.parse(name, &text)
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, part: &str, text: &[u8]) -> Result<T> {
        serde_json::from_slice(text).map_err(|error| self.bad(part, error.to_string()))
    }

    /// The path of a blob.
    pub(super) fn path(&self, digest: &str) -> Result<PathBuf> {
        Ok(self.dir.join(self.path_below(digest)?))
    }

    /// The path of a blob below the folder.
    fn path_below(&self, digest: &str) -> Result<PathBuf> {
        let is_hex = |hex: &str, digits: usize| {
            hex.len() == digits && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match digest.split_once(':') {
            Some((algorithm @ "sha256", hex)) if is_hex(hex, 64) => Ok(Path::new("blobs").join(algorithm).join(hex)),
            Some((algorithm @ "sha512", hex)) if is_hex(hex, 128) => Ok(Path::new("blobs").join(algorithm).join(hex)),
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
        let mut file = self.open(&descriptor.digest)?;
        let path = self.path(&descriptor.digest)?.display().to_string();
        let host = |source| TransferError::Host { path: path.clone(), what: "reading it", source };
        let size = file.metadata().map_err(host)?.len();
        let digest = digest_of(&descriptor.digest, &mut file).map_err(host)?;
        self.compare(descriptor, digest, size)
    }

    /// Compares a layer with the digest of what it is when it is unpacked.
    pub(super) fn verify_unpacked(&self, descriptor: &Descriptor, expected: &str) -> Result<()> {
        let stream = unpacked(self.open(&descriptor.digest)?);
        let digest = stream.and_then(|mut stream| digest_of(expected, &mut stream));
        let digest = digest.map_err(|error| self.bad(&descriptor.digest, format!("it cannot be unpacked: {error}")))?;
        if digest == expected {
            return Ok(());
        }
        let what =
            format!("unpacked, its digest is {digest}, and the image's config says {expected} (rootfs.diff_ids)");
        Err(self.bad(&descriptor.digest, what))
    }

    /// Whether the folder has a blob.
    pub(super) fn has(&self, digest: &str) -> Result<bool> {
        Ok(self.path(digest)?.symlink_metadata().is_ok())
    }

    /// Opens a blob.
    pub(super) fn open(&self, digest: &str) -> Result<File> {
        self.open_file(&self.path_below(digest)?)
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
    fn read_file(&self, path: &Path, expected: u64) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let read = self.open_file(path)?.take(expected + 1).read_to_end(&mut text);
        let whole = self.dir.join(path).display().to_string();
        read.map_err(|source| TransferError::Host { path: whole, what: "reading it", source })?;
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
