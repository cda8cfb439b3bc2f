//! The files of a layout.

use super::documents::Descriptor;
use crate::error::{Result, TransferError};
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
        TransferError::BadContainer { file: format!("{}: {part}", self.dir.display()), what }
    }

    /// A document in the folder itself.
    pub(super) fn document<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let text = read(&self.dir.join(name), MAX_DOCUMENT_BYTES)?;
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
        let is_hex = |hex: &str, digits: usize| {
            hex.len() == digits && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match digest.split_once(':') {
            Some((algorithm @ "sha256", hex)) if is_hex(hex, 64) => {
                Ok(self.dir.join("blobs").join(algorithm).join(hex))
            }
            Some((algorithm @ "sha512", hex)) if is_hex(hex, 128) => {
                Ok(self.dir.join("blobs").join(algorithm).join(hex))
            }
            _ => Err(self.bad(digest, "a digest that is neither sha256 nor sha512".into())),
        }
    }

    /// A document that a descriptor names, verified.
    pub(super) fn read(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        if descriptor.size > MAX_DOCUMENT_BYTES {
            return Err(self.bad(&descriptor.digest, "a document of more than 4 MiB".into()));
        }
        let text = read(&self.path(&descriptor.digest)?, descriptor.size)?;
        let digest = digest_of(&descriptor.digest, &mut text.as_slice()).expect("a slice can be read");
        self.compare(descriptor, digest, text.len() as u64).map(|()| text)
    }

    /// Reads a blob that a descriptor names, and compares it.
    pub(super) fn verify(&self, descriptor: &Descriptor) -> Result<()> {
        let path = self.path(&descriptor.digest)?;
        let host = |source| TransferError::Host { path: path.display().to_string(), what: "reading it", source };
        let mut file = File::open(&path).map_err(host)?;
        let size = file.metadata().map_err(host)?.len();
        let digest = digest_of(&descriptor.digest, &mut file).map_err(host)?;
        self.compare(descriptor, digest, size)
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

/// At most one byte more than a file is to have.
fn read(path: &Path, expected: u64) -> Result<Vec<u8>> {
    let host = |source| TransferError::Host { path: path.display().to_string(), what: "reading it", source };
    let mut text = Vec::new();
    File::open(path).map_err(host)?.take(expected + 1).read_to_end(&mut text).map_err(host)?;
    Ok(text)
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
