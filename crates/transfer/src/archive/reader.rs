//! Reads a stream in blocks, and knows its position.

use super::BLOCK;
use crate::error::{Result, TransferError};
use std::io::{ErrorKind, Read};

/// Most bytes of long names and PAX records before one file: a thousand attributes of the largest size, 64 KiB.
pub(super) const MAX_EXTENSION_BYTES: u64 = 64 << 20;

pub(super) struct Reader<R> {
    stream: R,
    at: u64,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn bad(&self, what: impl Into<String>) -> TransferError {
        TransferError::BadTar { at: self.at, what: what.into() }
    }

    /// Fills a buffer; it is an error if the stream ends first.
    pub(super) fn fill(&mut self, buffer: &mut [u8], within: &'static str) -> Result<()> {
        let count = self.read(buffer)?;
        if count < buffer.len() { Err(TransferError::CutShort(self.at, within)) } else { Ok(()) }
    }

    /// The next block; `None` where the stream ends before it.
    pub(super) fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        match self.read(&mut block)? {
            0 => Ok(None),
            BLOCK => Ok(Some(block)),
            count if self.at == count as u64 && packer(&block[..count]).is_some() => Ok(Some(block)),
            _ => Err(TransferError::CutShort(self.at, "a header")),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.stream.read(&mut buffer[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Files give no such errors; the programs that unpack do.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput
                    ) =>
                {
                    self.at += done as u64;
                    return Err(self.bad(format!("it cannot be unpacked further: {error}")));
                }
                Err(source) => {
                    return Err(TransferError::Host { path: "the tar stream".into(), what: "reading it", source });
                }
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, mut count: u64, within: &'static str) -> Result<()> {
        let mut buffer = vec![0; count.min(64 * 1024) as usize];
        while count > 0 {
            let step = count.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..step], within)?;
            count -= step as u64;
        }
        Ok(())
    }

    /// The contents of a header that describes another header, of at most so many bytes.
    pub(super) fn extension(&mut self, size: u64, most: u64) -> Result<Vec<u8>> {
        if size > most {
            let mib = MAX_EXTENSION_BYTES >> 20;
            return Err(self.bad(format!("headers of one file with more than {mib} MiB of names and attributes")));
        }
        let mut bytes = Vec::new();
        // Piece by piece, because the size is only what the stream claims.
        while (bytes.len() as u64) < size {
            let start = bytes.len();
            bytes.resize(start + (size - start as u64).min(1 << 20) as usize, 0);
            self.fill(&mut bytes[start..], "a header")?;
        }
        self.skip(padding(size), "a header")?;
        Ok(bytes)
    }
}

/// What an archive is that must be unpacked first, and the command that does it; `FILE` stands for the archive.
pub(super) fn packer(head: &[u8]) -> Option<(&'static str, &'static str)> {
    const PACKERS: [(&[u8], &str, &str); 9] = [
        (b"\xfd7zXZ", "xz", "xz -dc FILE"),
        (b"BZh", "bzip2", "bzip2 -dc FILE"),
        (b"PK\x03\x04", "zip", "bsdtar -cf - @FILE"),
        (b"7z\xbc\xaf", "7z", "bsdtar -cf - @FILE"),
        (b"LZIP", "lzip", "lzip -dc FILE"),
        (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc FILE"),
        (&[0x1f, 0x9d], "compress", "gzip -dc FILE"),
        (b"070701", "cpio", "bsdtar -cf - @FILE"),
        (b"!<arch>", "ar", "bsdtar -cf - @FILE"),
    ];
    PACKERS.iter().find(|(magic, ..)| head.starts_with(magic)).map(|(_, name, command)| (*name, *command))
}

/// Bytes from the end of contents to the next block.
pub(super) fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}
