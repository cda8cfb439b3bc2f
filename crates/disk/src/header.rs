//! The header of a virtual disk, as a process reads it that can do nothing else: for the names in it.

use crate::below::{Below, OPEN_FILES, reopened};
use crate::signature::{SIGNATURE_BYTES, Signature};
use crate::{qcow2, vmdk};
use imago::file::File as ImagoFile;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The file of a virtual disk whose header is about to be read.
pub struct Header {
    named: ImagoFile,
    file: File,
}

impl Header {
    /// Opens an open file once more, for reading. Nothing of it is read.
    ///
    /// # Errors
    /// Those of the system, also where it has no `/proc`.
    pub fn over(file: &impl AsFd) -> io::Result<Self> {
        Ok(Self { named: reopened(file)?, file: file.as_fd().try_clone_to_owned()?.into() })
    }

    /// Reads what the header names. Nothing is opened. A header that is damaged, or of a kind that is not handled,
    /// names nothing: who opens the disk is told why.
    pub fn read(self) -> Below {
        let mut first = [0; SIGNATURE_BYTES];
        let length = self.file.read_at(&mut first, 0).unwrap_or(0);
        match Signature::of(&first[..length]) {
            Signature::Qcow2 => qcow2::below(Path::new(OPEN_FILES), Arc::new(self.named)).unwrap_or_default(),
            Signature::Vmdk => Below { format: String::new(), names: vmdk::extents(self.named, &self.file) },
            Signature::Metadump | Signature::Other => Below::default(),
        }
    }
}
