//! Standard input, read to its end before the image is opened: the program that writes it may have the same image open,
//! and an input that ends in an error must not leave a part of itself in a file.

use crate::open::new_file::NewFile;
use crate::output::error::{Context, Result};
use std::fs::File;
use std::io::{Read, Seek, Write, stdin};
use std::path::Path;
use std::time::Duration;

/// How long the program that fed a pipe may keep the image open after it has closed the pipe.
pub const PIPE_ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Input up to this size stays in memory.
const MAX_BYTES_IN_MEMORY: usize = 16 << 20;

/// The whole input.
pub enum Input {
    /// In memory.
    Small(Vec<u8>),
    /// In a file without a name.
    Large(NewFile),
}

impl Input {
    /// Reads everything. Input that is too large for memory is stored in a file without a name beside the image; or, if
    /// the image is a device or no file can be made there, in the folder for temporary files.
    ///
    /// # Errors
    /// Those of the input, and of the file.
    pub fn read(image: &Path) -> Result<Self> {
        let mut input = stdin().lock();
        let mut bytes = Vec::new();
        input.by_ref().take(MAX_BYTES_IN_MEMORY as u64 + 1).read_to_end(&mut bytes).context("standard input")?;
        if bytes.len() <= MAX_BYTES_IN_MEMORY {
            return Ok(Self::Small(bytes));
        }
        let (unnamed, dir) = NewFile::to_keep_input(image)?;
        let kept = || format!("{}: keeping standard input there until it ends", dir.display());
        let mut file = unnamed.file();
        file.write_all(&bytes).with_context(kept)?;
        std::io::copy(&mut input, &mut file).with_context(kept)?;
        Ok(Self::Large(unnamed))
    }

    /// The size of the input in bytes.
    ///
    /// # Errors
    /// Those of the file.
    pub fn size_bytes(&self) -> Result<u64> {
        Ok(match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::Large(unnamed) => unnamed.file().metadata().context("standard input")?.len(),
        })
    }

    /// A reader from the start of the input.
    ///
    /// # Errors
    /// Those of the file.
    pub fn reader(&self) -> Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::Small(bytes) => Box::new(bytes.as_slice()),
            Self::Large(unnamed) => {
                let mut file: &File = unnamed.file();
                file.rewind().context("standard input")?;
                Box::new(file)
            }
        })
    }
}

/// Whether standard input is a pipe: the program that writes to it may have the image open a moment longer than the
/// pipe.
pub fn is_pipe() -> bool {
    let stat = rustix::fs::fstat(rustix::stdio::stdin());
    stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo)
}
