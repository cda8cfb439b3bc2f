//! Where the files of a tar archive lie in it, for those that are read by name: the parts of a container image.

use super::places::{Place, clean};
use super::source::TarSource;
use crate::error::Result;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Links that lead to one another.
const MAX_LINKS: usize = 8;
const BUFFER_BYTES: usize = 1 << 20;

/// An archive whose files are read by name.
#[derive(Debug)]
pub(crate) struct ArchiveIndex {
    file: Arc<File>,
    places: HashMap<Vec<u8>, Place>,
}

impl ArchiveIndex {
    /// Reads the headers of an archive that is not packed. Its name is for messages.
    pub(crate) fn new(file: File, name: String) -> Result<Self> {
        let file = Arc::new(file);
        let stream =
            BufReader::with_capacity(BUFFER_BYTES, FilePart { file: Arc::clone(&file), at: 0, left: u64::MAX });
        Ok(Self { file, places: TarSource::new(stream).named(name).places()? })
    }

    /// The contents of a file, and their length; `None` if there is no file of that path.
    pub(crate) fn open(&self, path: &str) -> Option<(FilePart, u64)> {
        let mut path = clean(path.as_bytes());
        for _ in 0..MAX_LINKS {
            match self.places.get(&path)? {
                Place::Data(at, size) => {
                    return Some((FilePart { file: Arc::clone(&self.file), at: *at, left: *size }, *size));
                }
                Place::Link(target) => path.clone_from(target),
            }
        }
        None
    }
}

/// A part of a file, which others may read at the same time.
#[derive(Debug)]
pub(crate) struct FilePart {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for FilePart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        (self.at, self.left) = (self.at + count as u64, self.left - count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_archive() {
        for (path, expected) in [("./a/b", "a/b"), ("a/../b", "b"), ("../../b", "b"), ("/", ""), ("a//b/.", "a/b")] {
            assert_eq!(clean(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
